"""Stack samples in the formats of speedscope and of flame graph tools."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from tuimon.records import Frame, Record
from tuimon.text import plain
from tuimon.views.export.stack_samples import Selection, ThreadProfile, thread_profiles

SCHEMA = "https://www.speedscope.app/file-format-schema.json"


def speedscope(
    records: Iterable[Record], selection: Selection, name: str, exporter: str
) -> dict[str, Any]:  # Any: JSON
    """The whole file as JSON values. Samples are merged per stack: order within a thread is by weight, not by time."""
    index: dict[tuple[str, str, int], int] = {}
    frames: list[dict[str, Any]] = []  # Any: JSON

    def number(frame: Frame) -> int:
        key = (frame.function, frame.file, frame.line)
        if key not in index:
            index[key] = len(frames)
            frames.append({"name": frame.function, "file": frame.file, "line": frame.line})
        return index[key]

    def profile(thread: ThreadProfile) -> dict[str, Any]:  # Any: JSON
        ordered = sorted(thread.stacks, key=lambda item: -item[1])
        return {
            "type": "sampled",
            "name": f"{thread.of}{': ' if thread.of else ''}{thread.role} ({thread.pid}/{thread.tid} {thread.name})",
            "unit": "none",
            "startValue": 0,
            "endValue": sum(count for _, count in ordered),
            "samples": [[number(frame) for frame in stack] for stack, _ in ordered],
            "weights": [count for _, count in ordered],
        }

    profiles = [profile(thread) for thread in thread_profiles(records, selection)]
    return {
        "$schema": SCHEMA,
        "name": name,
        "exporter": exporter,
        "activeProfileIndex": 0,
        "shared": {"frames": frames},
        "profiles": profiles,
    }


def collapsed(records: Iterable[Record], selection: Selection) -> Iterator[str]:
    """One line a stack, threads merged, most samples first."""
    counts: dict[str, int] = {}
    for thread in thread_profiles(records, selection):
        for stack, count in thread.stacks:
            line = ";".join(map(_collapsed_frame, stack))
            counts[line] = counts.get(line, 0) + count
    for line, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        yield f"{line} {count}"


def _collapsed_frame(frame: Frame) -> str:
    # ";" separates frames and the last space separates the count
    return plain(f"{frame.function} ({frame.file}:{frame.line})").replace(";", ":")
