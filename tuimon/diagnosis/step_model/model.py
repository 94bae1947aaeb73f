"""The step as it was measured, and what each change of it gains: ``StepModel.gain`` is the only way to a gain."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from msgspec.structs import replace

from tuimon.diagnosis.finding import WARNING_GAIN, WIDEST_RANGE, Change, Fix
from tuimon.diagnosis.interval import WHOLE, Interval
from tuimon.diagnosis.step_model.edits import EDITS, HALF, Step, changed
from tuimon.diagnosis.step_model.simulation import step_ms

#: From the lower end of the widest range to its middle, by ratio.
_TO_MIDDLE = math.sqrt(WIDEST_RANGE)
#: Below this factor a fix gains nothing.
_NOTHING = 1.005
#: Part of the cores that they are worth at least where more workers and threads want one than there are. Measured in
#: tests/scenarios: 2 workers made a loop on 2 cores, which computes as well, 1.3 times as fast (embedding_extraction).
_SHARED_CORES = 0.65
#: Part of the share of the step that a rearrangement saves, by which the rest of it takes longer at most: 0 to 0.4 were
#: measured in tests/scenarios and tests/explain_pairs.
REST = 0.4
#: Share of the step from which its removal has no told upper end: our choice; a point of it is worth more than 7 % of
#: the gain, and shares of samples are known to some points.
OPEN_SHARE = 0.85


class StepModel(NamedTuple):
    """A step as it is likely to be, and one in which no more than what is certain can be gained."""

    likely: Step
    certain: Step
    step_ms: float  # as measured, without evaluation
    own_ms: float = 0.0  # of ``step_ms``, the training thread's own work with its waits for a core
    claimed: Interval | None = None  # share of the step that may be gained: contention adds nothing to it
    possible: Step | None = None  # one in which more may be gained than is likely

    def fix(self, action: str, change: Change | None, part: Interval = WHOLE, changes_training: bool = False) -> Fix:
        """A fix that makes this change."""
        gained = self.gain(change, part) if change is not None else None
        likely = self._likely(change, part) if change is not None else None
        return Fix.gaining(action, gained, change, likely=likely, changes_training=changes_training)

    def gain(self, change: Change, part: Interval = WHOLE) -> Interval | None:
        """Times as fast with a change, between two ends; ``part``: of what it changes, the part that it concerns.

        None where nothing is known of it, and from 1 to 1 if nothing is gained.

        - Work that is to go is all of it at best. It is half of it at least, as it seldom costs nothing, or as little
          as is certain; hardly ever both: 40 % +- 8 % gain 1.25 times at least, as half of 40 % does, and 40 % +- 24 %
          gain 1.19 times, as 16 % do.
        - The ends are no further apart than ``WIDEST_RANGE``: then it is the part of the range around the middle, no
          further above what is certain than that. Removing 75 % gains 2 to 4 times.
        - A gain by more than ``OPEN_SHARE`` of the step has no upper end: removing 90 % gains 5 times at least.
        """
        if part.high <= 0.0:
            return None
        middle = self._likely(change, part)
        if math.isinf(middle):
            return None
        if middle < _NOTHING:
            return Interval(1.0, 1.0)
        certain = min(middle, max(1.0, gain(self._crowded(change), change, max(0.0, part.low))))
        low = min(certain, self._by_half(change, part.middle))
        if EDITS[change.what].least == "slower":
            low = max(1.0, min(low, middle / (1.0 + REST * (1.0 - 1.0 / middle))))
        most = max(middle, min(gain(self.possible or self.likely, change, part.high), self._bound))
        if low < _NOTHING:
            return Interval(1.0, min(most, WIDEST_RANGE))
        # workers, and whatever is rearranged, bound the gain by themselves
        claimed = self.claimed.high if EDITS[change.what].least != "slower" and self.claimed is not None else 0.0
        if max(claimed, 1.0 - 1.0 / most) >= OPEN_SHARE:
            return Interval(max(low, min(certain, middle / WIDEST_RANGE)), math.inf)
        high = min(most, _TO_MIDDLE * middle)
        low = max(low, min(certain, high / WIDEST_RANGE))
        return Interval(low, min(high, WIDEST_RANGE * low))

    def _likely(self, change: Change, part: Interval) -> float:
        return min(gain(self.likely, change, part.middle), self._bound)

    @property
    def _bound(self) -> float:
        """Times as fast without what is claimed: Amdahl's law."""
        share = (self.claimed or WHOLE).high
        return 1.0 / (1.0 - share) if share < 1.0 else math.inf

    def surely(self, change: Change | None, part: Interval = WHOLE) -> float:
        """The gain to order fixes by: of one that is made by half, or gains as little as is certain."""
        if change is None or part.high <= 0.0:
            return 1.0
        certain = gain(self._crowded(change), change, max(0.0, part.low))
        return max(1.0, min(certain, gain(self.likely, change, part.middle), self._by_half(change, part.middle)))

    def _crowded(self, change: Change) -> Step:
        """The step in which the least is gained, on as many cores as they are worth with more workers than that."""
        step = self.certain
        if change.what != "workers" or change.to * step.batch_running + step.own_threads <= step.cores:
            return step
        return replace(step, cores=max(step.own_threads, _SHARED_CORES * step.cores))

    def _by_half(self, change: Change, part: float) -> float:
        """The gain where half of what is to go stays; infinite where there is no half of it."""
        if change.to != 0.0 or EDITS[change.what].least != "half":
            return math.inf
        return gain(self.likely, change._replace(to=HALF), part)

    def own_part(self, share: Interval) -> Interval:
        """This share of the measured step, as a part of the training thread's own work.

        That waited for cores as long as all of the work: the steps of the model have it without those waits.
        """
        own_ms = max(self.own_ms, self.likely.own_ms)
        scale = self.step_ms / own_ms if own_ms > 0 else 0.0
        return Interval.around(min(1.0, share.middle * scale), share.error * scale)

    def best_number(self, numbers: Iterable[int]) -> int | None:
        """The fewest workers that gain as much as any of these numbers of them; None where none gains anything."""
        gains = {number: gain(self.likely, Change("workers", number)) for number in sorted(set(numbers))}
        most = max(gains.values(), default=0.0)
        if most < WARNING_GAIN:
            return None
        return next(number for number, gained in gains.items() if gained * WARNING_GAIN >= most)


def gain(step: Step, change: Change, part: float = 1.0) -> float:
    """Times as fast with a change, evaluation included; ``part``: of what it changes, the share that it concerns."""
    changed_ms = step_ms(changed(step, change, part))
    return step_ms(step) / changed_ms if changed_ms > 0 else float("inf")
