"""The step as it was measured, and what each change of it gains."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from tuimon.diagnosis.finding import WIDEST_RANGE, Change, Fix, What
from tuimon.diagnosis.interval import WHOLE, Interval
from tuimon.diagnosis.severity import WARNING_GAIN
from tuimon.diagnosis.step_model.edits import EDITS, HALF, Step, changed
from tuimon.diagnosis.step_model.simulation import step_ms

#: From the lower end of the widest range to its middle, by ratio.
_TO_MIDDLE = math.sqrt(WIDEST_RANGE)
#: Below this factor a fix gains nothing.
_NOTHING = 1.005


class StepModel(NamedTuple):
    """A step as it is likely to be, and one in which no more than what is certain can be gained."""

    likely: Step
    certain: Step
    step_ms: float  # as measured, without evaluation
    own_ms: float = 0.0  # of ``step_ms``, the training thread's own work with its waits for a core

    def fix(self, action: str, change: Change | None, part: Interval = WHOLE, changes_training: bool = False) -> Fix:
        """A fix with its gain; without one where nothing is gained, or nothing is known of it.

        Work that is to go is all of it at best, and half of it at least, as it seldom costs nothing. If that range
        is wider than ``WIDEST_RANGE``, it is the part of it around the estimate: removing 90 % gains 5 to 10 times, as
        10 is the most, removing 97 % +- 1 % 24 to 47 times. No estimate is further above what is certain than the
        middle of such a range above its lower end.
        """
        fix = Fix(action, change=change, changes_training=changes_training)
        if change is None or part.middle <= 0.0:
            return fix
        gained = gain(self.likely, change, part.middle)
        if math.isinf(gained):
            return fix
        if gained < _NOTHING:
            return fix._replace(low=1.0)
        certain = gain(self.certain, change, max(0.0, part.low))
        low = max(1.0, self.surely(change, part))
        gained = min(gained, max(_TO_MIDDLE * certain, WIDEST_RANGE * low))
        most = max(gained, gain(self.likely, change, min(1.0, part.high)))
        if gained > WIDEST_RANGE * low:
            low = min(most, _TO_MIDDLE * gained) / WIDEST_RANGE
        low = min(gained, low)
        return fix._replace(estimated_speedup=gained, low=low, high=min(most, WIDEST_RANGE * low))

    def surely(self, change: Change | None, part: Interval = WHOLE) -> float:
        """The least gain of a change, which orders fixes and decides the severity of a finding.

        Work that is to go may be done in half of its time instead, or may be as little as is certain. Hardly ever is it
        both, and a bound for that would follow from the number of samples: 40 % +- 8 % gain 1.25 times, as half of 40 %
        does, and 40 % +- 24 % gain 1.19 times, as 16 % do.
        """
        if change is None:
            return 1.0
        certain = gain(self.certain, change, max(0.0, part.low))
        certain = min(certain, gain(self.likely, change, part.middle))  # half of it is never surer than all of it
        if change.to != 0.0 or EDITS[change.what].whole:
            return certain
        return min(certain, gain(self.likely, change._replace(to=HALF), part.middle))

    def without(self, what: What, action: str, part: Interval) -> Fix:
        """The fix by which work of the training thread goes."""
        return self.fix(action, Change(what, 0.0), part)

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
