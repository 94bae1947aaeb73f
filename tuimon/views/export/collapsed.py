"""Collapsed stacks (``function (file:line);…;leaf COUNT``, root first): what flame graph tools read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tuimon.records import Frame, Record
from tuimon.text import plain
from tuimon.views.export.stack_samples import Selection, thread_profiles


def collapsed(records: Iterable[Record], selection: Selection) -> Iterator[str]:
    """One line a stack, threads merged, most samples first."""
    counts: dict[str, int] = {}
    for thread in thread_profiles(records, selection):
        for stack, count in thread.stacks:
            line = ";".join(map(_frame, stack))
            counts[line] = counts.get(line, 0) + count
    for line, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        yield f"{line} {count}"


def _frame(frame: Frame) -> str:
    # ";" separates frames and the last space separates the count
    return plain(f"{frame.function} ({frame.file}:{frame.line})").replace(";", ":")
