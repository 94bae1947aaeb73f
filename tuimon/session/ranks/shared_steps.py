"""Single steps of a rank, to be held against the same steps of other ranks."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from msgspec import Struct

from tuimon.records import BETWEEN, Steps

#: The phases of ``SharedStep.parts_us``.
SHARED_PARTS = ("data", "forward", "backward", "optimizer", "other", BETWEEN)
#: The latest that are held of a rank: those of 16 s of a fast loop, and of all of the run as many to twice as many.
_LATEST = 64
#: A step, packed, in an eighth of the memory: its number, when it ended, and its phases in us, of which each has room
#: for 71 minutes.
_ROW = struct.Struct(f"=Qd{len(SHARED_PARTS)}I")
_MOST_US = (1 << 32) - 1


class SharedStep(Struct, frozen=True, gc=False):  # hundreds of ranks have them: not for the garbage collector
    """One step: its number, when it ended, and its phases."""

    index: int
    end_s: float
    parts_us: tuple[int, ...]  # of SHARED_PARTS


class SharedSteps:
    """The latest, and some of the whole run, evenly spread."""

    __slots__ = ("_latest", "_run", "_stride")

    def __init__(self) -> None:
        self._latest = bytearray()
        self._run = bytearray()
        self._stride = 1

    def add_steps(self, record: Steps) -> None:
        """Add those of a window."""
        if not record.rank_steps:
            return
        t, latest, run, stride = record.t, self._latest, self._run, self._stride
        for row in record.rank_steps:
            end_s = t - row.before_us / 1e6
            phases_us = row.data_us, row.forward_us, row.backward_us, row.optimizer_us, row.other_us, row.between_us
            step = _ROW.pack(row.index, end_s, *[us if us <= _MOST_US else _MOST_US for us in phases_us])
            latest += step
            if row.index % stride == 0:
                run += step
        if len(latest) > _LATEST * _ROW.size:
            del latest[: -_LATEST * _ROW.size]
        while len(self._run) > 2 * _LATEST * _ROW.size:
            self._stride *= 2
            rows = _ROW.iter_unpack(self._run)
            self._run = bytearray().join([_ROW.pack(*row) for row in rows if row[0] % self._stride == 0])

    def latest(self) -> Sequence[SharedStep]:
        """The latest of them."""
        return _steps_of(self._latest)

    def since(self, t: float) -> Sequence[SharedStep]:
        """The steps of the whole run that ended after a moment."""
        return [step for step in _steps_of(self._run) if step.end_s > t]


def _steps_of(packed: bytearray) -> list[SharedStep]:
    return [SharedStep(index, end_s, tuple(parts_us)) for index, end_s, *parts_us in _ROW.iter_unpack(packed)]
