"""Recorded GPU trainings as numbers: what ``tests/data/gpu_recordings`` holds."""

from __future__ import annotations

import gzip
import json
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from tuimon.agent.ring import layout

FOLDER = Path(__file__).parents[1] / "data" / "gpu_recordings"
KERNEL, COPY, MEMSET = range(3)
#: The training thread's current stream.
MAIN = 0

_KINDS = {
    name: getattr(layout, name)
    for name in (
        "FETCH_BEGIN", "FETCH_END", "BACKWARD_BEGIN", "BACKWARD_END", "OPTIMIZER_BEGIN", "OPTIMIZER_END",
    )
}  # fmt: skip


class Work(NamedTuple):
    """A kernel, copy or memset: its launch call on the CPU, and when it ran on the GPU; in ns."""

    called_ns: int
    returned_ns: int
    start_ns: int
    end_ns: int
    stream: int
    kind: int

    @property
    def launched_ns(self) -> int:
        """From here on the GPU could run it: a copy that blocks starts before its call returns."""
        return min(self.returned_ns, self.start_ns)


class Wait(NamedTuple):
    """A call of the CPU that may wait: "synchronise", "stream_wait", "malloc" or "free"."""

    kind: str
    begin_ns: int
    end_ns: int
    by_main_thread: bool


class Mark(NamedTuple):
    """A boundary of the training loop, as a hook would have marked it."""

    time_ns: int
    kind: int
    value: int


class Recording(NamedTuple):
    """One recorded training."""

    name: str
    gpu: str
    world_size: int | None
    pinned: bool  # it copies from pinned memory
    skip_first_steps: int
    marks: tuple[Mark, ...]
    works: tuple[Work, ...]
    waits: tuple[Wait, ...]


def names() -> list[str]:
    """All recordings there are."""
    return sorted(path.name.partition(".")[0] for path in FOLDER.glob("*.json.gz"))


@cache
def load(name: str) -> Recording:
    """A recording by its name."""
    data = json.loads(gzip.decompress((FOLDER / f"{name}.json.gz").read_bytes()))
    unit_ns = data["unit_ns"]
    return Recording(
        name=data["name"],
        gpu=data["gpu"],
        world_size=data["world_size"],
        pinned=data["pinned"],
        skip_first_steps=data["skip_first_steps"],
        marks=tuple(Mark(time * unit_ns, _KINDS[kind], value) for time, kind, value in data["boundaries"]),
        works=tuple(_works(data["works"], unit_ns)),
        waits=tuple(
            Wait(kind, begin * unit_ns, (begin + length) * unit_ns, bool(main))
            for kind, begin, length, main in data["waits"]
        ),
    )


def _works(columns: dict[str, list[int]], unit_ns: int) -> list[Work]:
    rows: Any = zip(
        accumulate(columns["called"]),
        *(columns[name] for name in ("call_length", "start", "length", "stream", "kind")),
        strict=True,
    )
    return [
        Work(
            called * unit_ns,
            (called + call_length) * unit_ns,
            (called + start) * unit_ns,
            (called + start + length) * unit_ns,
            stream,
            kind,
        )
        for called, call_length, start, length, stream, kind in rows
    ]


def phase(before: int, after: int) -> str:
    """As the records name what lies between two boundaries."""
    if (before, after) == (layout.FETCH_BEGIN, layout.FETCH_END):
        return "data"
    if after == layout.BACKWARD_BEGIN:
        return "forward"
    if after == layout.BACKWARD_END:
        return "backward"
    return "optimizer" if (before, after) == (layout.OPTIMIZER_BEGIN, layout.OPTIMIZER_END) else "other"
