"""Single steps of a rank, to be held against the same steps of other ranks."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from msgspec import Struct

from tuimon.records import BETWEEN, Steps

#: The phases of ``SharedStep.parts_us``.
SHARED_PARTS = ("data", "forward", "backward", "optimizer", "other", BETWEEN)
#: The latest that are held of a rank: those of 16 s of a fast loop, and of all of the run as many to twice as many.
_LATEST = 64
#: A step, packed: its fields one after the other, in a fifth of the memory. Whole numbers have room: 285 years of us.
_COLUMNS = 2 + len(SHARED_PARTS)


class SharedStep(Struct, frozen=True, gc=False):  # hundreds of ranks have them: not for the garbage collector
    """One step: its number, when it ended, and its phases."""

    index: int
    end_s: float
    parts_us: tuple[int, ...]  # of SHARED_PARTS


class SharedSteps:
    """The latest, and some of the whole run, evenly spread."""

    __slots__ = ("_latest", "_run", "_stride")

    def __init__(self) -> None:
        self._latest = array("d")
        self._run = array("d")
        self._stride = 1

    def add_steps(self, record: Steps) -> None:
        """Add those of a window."""
        if not record.rank_steps:
            return
        t, latest, run, stride = record.t, self._latest, self._run, self._stride
        for row in record.rank_steps:
            end_s = t - row.before_us / 1e6
            phases_us = row.data_us, row.forward_us, row.backward_us, row.optimizer_us, row.other_us, row.between_us
            step = (row.index, end_s, *phases_us)
            latest.extend(step)
            if row.index % stride == 0:
                run.extend(step)
        if len(latest) > _LATEST * _COLUMNS:
            del latest[: -_LATEST * _COLUMNS]
        while len(self._run) > 2 * _LATEST * _COLUMNS:
            self._stride *= 2
            kept = (at for at in range(0, len(self._run), _COLUMNS) if self._run[at] % self._stride == 0)
            self._run = array("d", [value for at in kept for value in self._run[at : at + _COLUMNS]])

    def latest(self) -> Sequence[SharedStep]:
        """The latest of them."""
        return _steps_of(self._latest)

    def since(self, t: float) -> Sequence[SharedStep]:
        """Those of the whole run that ended after a moment."""
        return [step for step in _steps_of(self._run) if step.end_s > t]


def _steps_of(packed: array[float]) -> list[SharedStep]:
    values = iter(packed)
    rows = zip(*[values] * _COLUMNS, strict=True)
    return [SharedStep(int(index), end_s, tuple(map(int, parts_us))) for index, end_s, *parts_us in rows]
