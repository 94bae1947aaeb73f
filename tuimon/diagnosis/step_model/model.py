"""The step as measured, and the gain of each change of it: all gains come from ``StepModel.gain``."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from msgspec.structs import replace

from tuimon.diagnosis.finding import WARNING_GAIN, WIDEST_RANGE, Change, Fix
from tuimon.diagnosis.interval import WHOLE, Interval
from tuimon.diagnosis.step_model.edits import EDITS, HALF, ModelStep, changed

#: A fix that gains less than this factor gains nothing.
_NOTHING = 1.005
#: Least part of the cores that is effective if more workers and threads than cores want to run. Measured in
#: tests/scenarios: on 2 cores, 2 workers made a loop that also computes 1.3 times as fast (embedding_extraction).
_SHARED_CORES = 0.65
#: A rearrangement that saves a share of the step slows down the rest by at most this part of that share: 0 to 0.4 were
#: measured in tests/scenarios and tests/explain_pairs.
REST = 0.4
#: A removal of at least this share of the step has no upper end to its gain: our choice; beyond, each point of the
#: share changes the gain by more than 7 %, and samples show shares only to within some points.
OPEN_SHARE = 0.85
#: Most threads of a pool, beyond the first, for which all others wait if one is late: our choice; 1 was measured.
_MOST_COUPLED = 3.0
#: Rounds after which the length of a step changes by less than a percent.
_ROUNDS = 12


class StepModel(NamedTuple):
    """A step as it probably is, and a step in which only what is certain can be gained."""

    likely: ModelStep
    certain: ModelStep
    step_ms: float  # as measured, without evaluation
    own_ms: float = 0.0  # part of ``step_ms``: the training thread's own work, with its waits for a core
    claimed: Interval | None = None  # share of the step that may be gained; relief of contention may not exceed it
    possible: ModelStep | None = None  # a step in which more may be gained than is likely

    def fix(self, action: str, change: Change | None, part: Interval = WHOLE, changes_training: bool = False) -> Fix:
        """A fix that makes this change."""
        gained = self.gain(change, part) if change is not None else None
        likely = self._likely(change, part) if change is not None else None
        return Fix.gaining(action, gained, change, likely=likely, changes_training=changes_training)

    def gain(self, change: Change, part: Interval = WHOLE) -> Interval | None:
        """The speedup by a change, between two ends; ``part``: the share of what it changes to which it applies.

        None if nothing is known of it; from 1 to 1 if nothing is gained.

        - A removal saves at best all of the work. At least it saves half, as replacements seldom cost nothing, or as
          little as is certain, whichever is less, but not half of that: removing 40 % +- 8 % gains at least 1.25 times,
          by half of 40 %, and 40 % +- 24 % gains 1.19 times, by 16 %.
        - The ends are at most ``WIDEST_RANGE`` apart; a wider range is cut to the part around the middle, but
          never begins above what is certain. Removing 75 % gains 2 to 4 times.
        - A removal of more than ``OPEN_SHARE`` of the step has no upper end: removing 90 % gains at least 5 times.
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
        # changes of workers, and rearrangements, have bounds of their own
        claimed = self.claimed.high if EDITS[change.what].least != "slower" and self.claimed is not None else 0.0
        if max(claimed, 1.0 - 1.0 / most) >= OPEN_SHARE:
            return Interval(max(low, min(certain, middle / WIDEST_RANGE)), math.inf)
        high = min(most, math.sqrt(WIDEST_RANGE) * middle)
        low = max(low, min(certain, high / WIDEST_RANGE))
        return Interval(low, min(high, WIDEST_RANGE * low))

    def _likely(self, change: Change, part: Interval) -> float:
        return min(gain(self.likely, change, part.middle), self._bound)

    @property
    def _bound(self) -> float:
        """The speedup without what is claimed: Amdahl's law."""
        share = (self.claimed or WHOLE).high
        return 1.0 / (1.0 - share) if share < 1.0 else math.inf

    def surely(self, change: Change | None, part: Interval = WHOLE) -> float:
        """The gain for ordering fixes: if a removal saves only half, or the change only what is certain."""
        if change is None or part.high <= 0.0:
            return 1.0
        certain = gain(self._crowded(change), change, max(0.0, part.low))
        return max(1.0, min(certain, gain(self.likely, change, part.middle), self._by_half(change, part.middle)))

    def _crowded(self, change: Change) -> ModelStep:
        """The certain step, with fewer effective cores if the change makes more workers than there are cores."""
        step = self.certain
        if change.what != "workers" or change.to * step.batch_running + step.own_threads <= step.cores:
            return step
        return replace(step, cores=max(step.own_threads, _SHARED_CORES * step.cores))

    def _by_half(self, change: Change, part: float) -> float:
        """The gain if half of what is to go stays; infinite if the change cannot be done by half."""
        if change.to != 0.0 or EDITS[change.what].least != "half":
            return math.inf
        return gain(self.likely, change._replace(to=HALF), part)

    def own_part(self, share: Interval) -> Interval:
        """This share of the measured step, as a part of the training thread's own work in the model.

        The share has waits for a core in proportion to all of that work, while the model's step is without those waits.
        """
        own_ms = max(self.own_ms, self.likely.own_ms)
        scale = self.step_ms / own_ms if own_ms > 0 else 0.0
        return Interval.around(min(1.0, share.middle * scale), share.error * scale)

    def best_number(self, numbers: Iterable[int]) -> int | None:
        """The fewest workers that gain as much as any of these numbers of workers; None if none gains anything."""
        gains = {number: gain(self.likely, Change("workers", number)) for number in sorted(set(numbers))}
        most = max(gains.values(), default=0.0)
        if most < WARNING_GAIN:
            return None
        return next(number for number, gained in gains.items() if gained * WARNING_GAIN >= most)


def gain(step: ModelStep, change: Change, part: float = 1.0) -> float:
    """The speedup by a change, with evaluation; ``part``: the share of what it changes to which it applies."""
    changed_ms = step_ms(changed(step, change, part))
    return step_ms(step) / changed_ms if changed_ms > 0 else float("inf")


# -- how long a step takes


@lru_cache(maxsize=512)
def step_ms(step: ModelStep) -> float:
    """The length of a step, with its parts of the evaluation, of epoch starts and of waits for late batches.

    The training thread and its workers go on side by side, so whoever takes longer sets the pace, or the cores do.
    Worked example: one worker needs 10 ms for a batch, the training thread 4 ms for the rest of a step. While the
    thread is at one batch the worker makes the next, so a step takes 10 ms. Two workers make one every 5 ms; three, one
    every 3.3 ms, but then the thread's own 4 ms decide. On a single core a step takes 14 ms whatever their number.

    Where threads want more cores than there are, each has one for a share of the time. Who is slowed down wants its
    cores for longer, so lengths and shares follow from each other, in rounds.
    """
    beside_ms = step.evaluation_ms + step.starts_ms + step.held_ms
    running_ms, making_ms = step.own_ms * step.own_running, step.fetches * step.batch_ms
    taking_ms = step.fetches * ((step.hand_over_ms if step.workers else step.batch_ms) + step.drawing_ms)
    alone_ms = step.own_ms + running_ms * (max(1.0, step.own_threads / step.cores) - 1.0) + taking_ms
    if not step.workers:
        return beside_ms + alone_ms
    made_ms = making_ms * step.batch_running  # of that, on a core
    least_ms = (running_ms * step.own_threads + taking_ms + made_ms) / step.cores
    whole_ms = max(step.own_ms + taking_ms, making_ms / step.workers, least_ms)
    own, taking, making = speeds = [1.0, 1.0, 1.0]  # as parts of those with a core for each thread
    for _ in range(_ROUNDS if whole_ms else 0):
        is_own, is_taking = running_ms / own / whole_ms, taking_ms / taking / whole_ms
        at_work = min(step.workers, made_ms / making / whole_ms)
        beside = at_work * (1.0 - 1.0 / step.workers)
        found = (
            _speed(step, step.own_threads, at_work, 1.0 + min(step.own_threads - 1.0, _MOST_COUPLED)),
            _speed(step, 1.0, at_work),
            is_own * _speed(step, 1.0 + step.own_threads, beside)
            + is_taking * _speed(step, 2.0, beside)
            + max(0.0, 1.0 - is_own - is_taking) * _speed(step, 1.0, beside),
        )
        own, taking, making = speeds = [(before + now) / 2 for before, now in zip(speeds, found, strict=True)]
        own_ms = step.own_ms + running_ms * (1.0 / own - 1.0) + taking_ms / taking
        whole_ms = max(own_ms, (making_ms + made_ms * (1.0 / making - 1.0)) / step.workers, least_ms)
    return beside_ms + min(whole_ms, alone_ms + making_ms)  # all one after the other at most


def _speed(step: ModelStep, threads: float, others: float, power: float = 1.0) -> float:
    """The speed of so many threads beside a mean number of others, as a part of that with a core for each.

    Threads of a pool wait for each other: it goes on while all have a core, which is the share of the time that each
    has one to the ``power`` of their number.
    """
    fewest, part = divmod(others, 1.0)
    least, most = (min(1.0, step.cores / (threads + number)) for number in (fewest + 1.0, fewest))
    return part * math.pow(least, power) + (1.0 - part) * math.pow(most, power)
