"""Recorded GPU trainings as numbers: what ``tests/data/gpu_recordings`` holds."""

import gzip
import json
from functools import cache
from itertools import accumulate
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from tuimon.agent.ring import layout

FOLDER = Path(__file__).parents[1] / "data" / "gpu_recordings"
KERNEL, COPY, MEMSET = range(3)
#: The training thread's current stream.
MAIN = 0
#: A stream that no recording of one rank has, and the exchanges of one backward pass on it.
_NCCL, _BUCKETS = 9, 8

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
    """A recording by its name; with "+exchange" at its end as ``with_exchange`` has it."""
    if name.endswith("+exchange"):
        return with_exchange(load(name.removesuffix("+exchange")))
    data = json.loads(gzip.decompress((FOLDER / f"{name}.json.gz").read_bytes()))
    unit_ns = data["unit_ns"]
    return Recording(
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


def with_exchange(recording: Recording) -> Recording:
    """The recording as one of four ranks: kernels of NCCL run on a stream of their own through most of backward."""
    works, begin_ns = list(recording.works), 0
    for mark in recording.marks:
        if mark.kind == layout.BACKWARD_BEGIN:
            begin_ns = mark.time_ns
        elif mark.kind == layout.BACKWARD_END:
            own = [work for work in recording.works if begin_ns <= work.called_ns < mark.time_ns]
            start_ns, end_ns = own[0].start_ns, max(work.end_ns for work in own)
            each_ns = (end_ns - start_ns) // _BUCKETS
            for number in range(_BUCKETS):
                at_ns = start_ns + number * each_ns
                called_ns = min(at_ns, mark.time_ns) - 5_000
                works.append(Work(called_ns, called_ns + 3_000, at_ns, at_ns + each_ns * 4 // 5, _NCCL, KERNEL))
    return recording._replace(world_size=4, works=tuple(sorted(works, key=attrgetter("called_ns"))))


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
