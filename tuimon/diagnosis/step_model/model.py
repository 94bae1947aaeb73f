"""The step as it was measured, and what each change of it gains.

Other work of its thread leaves a step cold caches. Without that work its code and data are where it left them: work
that goes takes more with it than its own time. Only steps of some milliseconds notice.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from tuimon.diagnosis.finding import WIDEST_RANGE, Change, Fix, What
from tuimon.diagnosis.severity import WARNING_GAIN
from tuimon.diagnosis.step_model.edits import EDITS, HALF, WHOLE, Part, Step, changed
from tuimon.diagnosis.step_model.simulation import step_ms
from tuimon.diagnosis.threshold import Threshold

#: From the lower end of the widest range to its middle, by ratio.
_TO_MIDDLE = math.sqrt(WIDEST_RANGE)
#: Below this factor a fix gains nothing.
_NOTHING = 1.005
COLD_MS = Threshold(
    1.15,
    "ms that a step takes more after a long stretch of other work or waiting than right after the step before",
    "bench/cold.py: 0.7 to 1.6 ms after 100 ms, in five models of 0.6 to 5.4 ms a step, whatever the work was; measured"
    " on two virtual cores, and on no other machine",
)
COOLING_MS = Threshold(
    12.0,
    "ms of other work after which a step is 63 % as cold as after a long stretch of it",
    "bench/cold.py: 0.0 to 0.5 ms more after 1 ms, 0.1 to 0.7 after 3, 0.4 to 1.0 after 10, 0.7 to 1.5 after 30",
)
#: Part of a step that is always left: our choice; the smallest model measured was 0.4 of its cold step.
_ALWAYS_LEFT = 0.5


class StepModel(NamedTuple):
    """A step as it is likely to be, and one in which no more than what is certain can be gained."""

    likely: Step
    certain: Step
    step_ms: float  # as measured, without evaluation
    in_ms: bool = False  # whether that is known, and the training thread's time is the step's, as without a GPU
    own_ms: float = 0.0  # of ``step_ms``, the training thread's own work with its waits for a core

    def fix(self, action: str, change: Change | None, part: Part = WHOLE) -> Fix:
        """A fix with its gain; without one where nothing is gained, or nothing is known of it.

        Work that is to go is all of it at best, and half of it at least, as it seldom costs nothing. If that range
        is wider than ``WIDEST_RANGE``, it is the part of it around the estimate: removing 90 % gains 5 to 10 times, as
        10 is the most, removing 97 % +- 1 % 24 to 47 times. No estimate is further above what is certain than the
        middle of such a range above its lower end.
        """
        if change is None or part.share <= 0.0:
            return Fix(action, change=change)
        gained = self._likely_gain(change, part.share)
        if math.isinf(gained):
            return Fix(action, change=change)
        if gained < _NOTHING:
            return Fix(action, low=1.0, change=change)
        certain = gain(self.certain, change, max(0.0, part.share - part.error))
        low = max(1.0, self.surely(change, part))
        gained = min(gained, max(_TO_MIDDLE * certain, WIDEST_RANGE * low))
        most = max(gained, self._likely_gain(change, min(1.0, part.share + part.error)))
        if gained > WIDEST_RANGE * low:
            low = min(most, _TO_MIDDLE * gained) / WIDEST_RANGE
        low = min(gained, low)
        return Fix(action, gained, low, min(most, WIDEST_RANGE * low), change)

    def _likely_gain(self, change: Change, part: float) -> float:
        """The gain of a change, with the rest of the step's gain from warm caches."""
        gained = gain(self.likely, change, part)
        if not self.in_ms or not EDITS[change.what].cools or change.to:
            return gained
        now_ms, left = step_ms(self.likely), changed(self.likely, change, part)
        left_ms = now_ms / gained
        fetch_ms = left.drawing_ms + (left.hand_over_ms if left.workers else left.batch_ms)
        staying_ms = left.fetches * fetch_ms if change.what in ("items", "fetch") else 0.0
        every = self.likely.burst_every if change.what == "side_work" else 1
        warm_ms = left_ms - warmed_ms(left.own_ms, now_ms - left_ms, staying_ms, every)
        return now_ms / warm_ms if warm_ms > 0 else gained

    def surely(self, change: Change | None, part: Part = WHOLE) -> float:
        """The least gain of a change, which orders fixes and decides the severity of a finding.

        Work that is to go may be done in half of its time instead, or may be as little as is certain. Hardly ever is it
        both, and a bound for that would follow from the number of samples: 40 % +- 8 % gain 1.25 times, as half of 40 %
        does, and 40 % +- 24 % gain 1.19 times, as 16 % do.
        """
        if change is None:
            return 1.0
        certain = gain(self.certain, change, max(0.0, part.share - part.error))
        certain = min(certain, gain(self.likely, change, part.share))  # half of it is never surer than all of it
        if change.to != 0.0 or EDITS[change.what].whole:
            return certain
        return min(certain, gain(self.likely, change._replace(to=HALF), part.share))

    def without(self, what: What, action: str, part: Part) -> Fix:
        """The fix by which work of the training thread goes."""
        return self.fix(action, Change(what, 0.0), part)

    def own_part(self, share: float, error: float = 0.0) -> Part:
        """This share of the measured step, as a part of the training thread's own work.

        That waited for cores as long as all of the work: the steps of the model have it without those waits.
        """
        own_ms = max(self.own_ms, self.likely.own_ms)
        scale = self.step_ms / own_ms if own_ms > 0 else 0.0
        return Part(min(1.0, share * scale), error * scale)

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


def warmed_ms(left_ms: float, removed_ms: float, staying_ms: float = 0.0, every: int = 1) -> float:
    """How much of ``left_ms`` of a step goes as well when ``removed_ms`` of other work goes, and ``staying_ms`` do not.

    The work is that of a step on average; it comes once in ``every`` steps.

    Worked example: 17 ms of parsing before each 2 ms of training. The training takes 0.87 ms less without it.
    """
    warmer_ms = _cold_ms((removed_ms + staying_ms) * every) - _cold_ms(staying_ms * every)
    return min(warmer_ms, (1.0 - _ALWAYS_LEFT) * left_ms) / every


def _cold_ms(other_ms: float) -> float:
    return COLD_MS * (1.0 - math.exp(-max(0.0, other_ms) / COOLING_MS))
