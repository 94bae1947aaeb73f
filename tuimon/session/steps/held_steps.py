"""A window of steps, packed: what sums over steps are made of, in a tenth of the memory."""

from __future__ import annotations

import msgspec

from tuimon.records import SlowStep, Steps

#: Larger values, of a damaged log, are not packed.
_MOST_NS = 1 << 62


class HeldPhase(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Like ``PhaseTime``. A type of its own: those of records are checked when decoded."""

    name: str
    total_ns: int


class HeldRange(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Like ``RangeTime``."""

    path: str
    count: int
    total_ns: int
    phase: str


class HeldSlowStep(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The fields held of a ``SlowStep``."""

    total_ns: int
    side_work_ns: int


class HeldSteps(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The fields held of ``Steps``, by the same names."""

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
    slowest: HeldSlowStep | None
    histogram: list[tuple[int, int]]
    phases: list[HeldPhase]
    ranges: list[HeldRange]

    @property
    def usual(self) -> int:
        """How many of the steps the times are of."""
        return max(0, self.count - self.slowed)


_encode = msgspec.msgpack.Encoder().encode
#: A packed window as it was.
unpacked = msgspec.msgpack.Decoder(HeldSteps).decode


def packed(record: Steps) -> bytes:
    """A window as ``unpacked`` reads it."""
    slowest = record.slowest
    return _encode(  # phases and ranges are arrays in a record too
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
            None if slowest is None else (slowest.total_ns, min(side_work_ns(slowest), _MOST_NS)),
            record.histogram,
            record.phases,
            record.ranges,
        )
    )


def side_work_ns(step: SlowStep | HeldSlowStep) -> int:
    """How much of it was spent neither on its data nor in its passes."""
    if isinstance(step, HeldSlowStep):
        return step.side_work_ns
    other_ns = 0
    for phase in step.phases:
        if phase.name == "other":
            other_ns += phase.total_ns
    return other_ns
