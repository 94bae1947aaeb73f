"""Single steps of a rank, to be held against the same steps of other ranks."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from tuimon.records import BETWEEN, Steps

#: The phases of ``SharedStep.parts_us``.
SHARED_PARTS = ("data", "forward", "backward", "optimizer", "other", BETWEEN)
#: The latest that are held of a rank: those of 16 s of a fast loop, and of all of the run as many to twice as many.
_LATEST = 64


class SharedStep(Struct, frozen=True, gc=False):  # hundreds of ranks have them: not for the garbage collector
    """One step: its number, when it ended, and its phases."""

    index: int
    end_s: float
    parts_us: tuple[int, ...]  # of SHARED_PARTS


class SharedSteps:
    """The latest, and some of the whole run, evenly spread."""

    __slots__ = ("_stride", "latest", "run")

    def __init__(self) -> None:
        self.latest: list[SharedStep] = []
        self.run: list[SharedStep] = []
        self._stride = 1

    def add_steps(self, record: Steps) -> None:
        """Add those of a window."""
        t, latest, stride = record.t, self.latest, self._stride
        for row in record.rank_steps:
            parts = row.data_us, row.forward_us, row.backward_us, row.optimizer_us, row.other_us, row.between_us
            step = SharedStep(row.index, t - row.before_us / 1e6, parts)
            latest.append(step)
            if row.index % stride == 0:
                self.run.append(step)
        if len(latest) > _LATEST:
            del latest[:-_LATEST]
        while len(self.run) > 2 * _LATEST:
            self._stride *= 2
            self.run = [step for step in self.run if step.index % self._stride == 0]

    def since(self, t: float) -> Sequence[SharedStep]:
        """Those of the whole run that ended after a moment."""
        return [step for step in self.run if step.end_s > t]
