"""The latest windows of a process's steps, packed: 64 ranks hold some twenty each."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import NamedTuple

import msgspec
from msgspec import structs

from tuimon.records import PhaseTime, RangeTime, SlowStep, Steps
from tuimon.session.steps.totals import side_work_ns
from tuimon.session.windows import WINDOW_S

#: Where steps are longer than the window: how many windows with a step the recent figures cover at least.
_LEAST_WINDOWS = 3
_LIMIT = 600
#: What a damaged log says beyond is not packed.
_MOST_NS = 1 << 62


class _Packed(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What sums are made of. Its own types: those of a record are checked when it is decoded."""

    t: float
    window_s: float
    count: int
    first_index: int
    total_ns: int
    timed: int | None
    slowed: int
    slowed_ns: int
    eval_count: int
    gc_ns: int | None
    gc_count: int
    gc_longest_ns: int
    slowest: tuple[int, int, int] | None  # its number, length and side work
    histogram: list[tuple[int, int]]
    phases: list[tuple[str, int]]
    ranges: list[tuple[str, int, int, str]]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Packed)


class RecentWindow(NamedTuple):
    """A window of steps, and what is known of the process's threads in it."""

    record: Steps
    waited_ratio: float  # share (0..1) of it that they waited for a core
    cpu_ratio: float  # cores that they used


class RecentSteps:
    """The windows of the last 30 s, and of those before as many with a step as make up three."""

    __slots__ = ("_numbers", "_older", "_packed", "_pid")

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._packed: list[bytes] = []  # of the last 30 s
        self._numbers = array("d")  # of each when it ended, how many steps it has, and the shares of a RecentWindow
        self._older: list[bytes] = []  # of those with a step

    def append(self, record: Steps, waited_ratio: float, cpu_ratio: float) -> None:
        """Append a window; drops what is too old."""
        self._packed.append(_packed(record))
        self._numbers.extend((record.t, record.usual, waited_ratio, cpu_ratio))
        gone = max(len(self._packed) - _LIMIT, 0)
        while self._numbers[4 * gone] < record.t - WINDOW_S:
            gone += 1
        if gone:
            steps = self._numbers[1 : 4 * gone : 4]
            with_steps = (packed for packed, count in zip(self._packed, steps, strict=False) if count)
            self._older = [*self._older, *with_steps][-_LEAST_WINDOWS:]
            del self._packed[:gone], self._numbers[: 4 * gone]

    def windows(self) -> Iterator[RecentWindow]:
        """Those of the last 30 s."""
        return map(RecentWindow, map(self._unpacked, self._packed), self._numbers[2::4], self._numbers[3::4])

    def records(self) -> Iterator[Steps]:
        """Those of the last 30 s, after older ones where fewer than three of them have a step."""
        missing = _LEAST_WINDOWS - sum(map(bool, self._numbers[1::4]))
        older = self._older[-missing:] if missing > 0 else []
        return map(self._unpacked, (*older, *self._packed))

    def _unpacked(self, packed: bytes) -> Steps:
        known = _decoder.decode(packed)
        slowest = None
        if known.slowest is not None:
            index, total_ns, other_ns = known.slowest
            slowest = SlowStep(index, total_ns, [PhaseTime("other", other_ns)] if other_ns else [])
        return Steps(
            t=known.t,
            pid=self._pid,
            window_s=known.window_s,
            count=known.count,
            first_index=known.first_index,
            total_ns=known.total_ns,
            timed=known.timed,
            slowed=known.slowed,
            slowed_ns=known.slowed_ns,
            eval_count=known.eval_count,
            gc_ns=known.gc_ns,
            gc_count=known.gc_count,
            gc_longest_ns=known.gc_longest_ns,
            slowest=slowest,
            histogram=known.histogram,
            phases=[PhaseTime(*phase) for phase in known.phases],
            ranges=[RangeTime(*each) for each in known.ranges],
        )


def slim(record: Steps) -> Steps:
    """A window without what is held elsewhere: single steps, places, and the slowest step but for its side work."""
    slowest = record.slowest
    if slowest is not None:
        slowest = structs.replace(slowest, phases=[phase for phase in slowest.phases if phase.name == "other"])
    return structs.replace(record, slowest=slowest, rank_steps=[], range_places=[])


def _packed(record: Steps) -> bytes:
    slowest = record.slowest
    return _encoder.encode(  # as a _Packed; phases and ranges are arrays too
        (
            record.t,
            record.window_s,
            record.count,
            record.first_index,
            record.total_ns,
            record.timed,
            record.slowed,
            record.slowed_ns,
            record.eval_count,
            record.gc_ns,
            record.gc_count,
            record.gc_longest_ns,
            None if slowest is None else (slowest.index, slowest.total_ns, min(side_work_ns(slowest), _MOST_NS)),
            record.histogram,
            record.phases,
            record.ranges,
        )
    )
