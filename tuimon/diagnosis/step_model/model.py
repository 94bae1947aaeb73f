"""The step as measured, and the gain of each change of it: all gains come from ``StepModel.gain``."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import count
from typing import NamedTuple

from msgspec.structs import replace

from tuimon.diagnosis.finding import WARNING_GAIN, WIDEST_RANGE, Change, Fix
from tuimon.diagnosis.interval import WHOLE, Interval
from tuimon.diagnosis.step_model.edits import EDITS, HALF, Step, changed

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
#: Most workers that are simulated one by one; more are simulated as this many, each faster and on more cores.
_MOST_WORKERS = 6
#: Most batches that lie ready, and about how many batches are counted after the queue has filled. That bounds the work
#: to some 40 batches of 7 tasks.
_MOST_AHEAD = 12
_BATCHES = 16
#: Most threads of a pool, beyond the first, for which all others wait if one is late: our choice; 1 was measured.
_MOST_COUPLED = 3.0
#: Two events less than this many ms apart are simultaneous.
_AT_ONCE = 1e-9


class StepModel(NamedTuple):
    """A step as it probably is, and a step in which only what is certain can be gained."""

    likely: Step
    certain: Step
    step_ms: float  # as measured, without evaluation
    own_ms: float = 0.0  # part of ``step_ms``: the training thread's own work, with its waits for a core
    claimed: Interval | None = None  # share of the step that may be gained; relief of contention may not exceed it
    possible: Step | None = None  # a step in which more may be gained than is likely

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

    def _crowded(self, change: Change) -> Step:
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


def gain(step: Step, change: Change, part: float = 1.0) -> float:
    """The speedup by a change, with evaluation; ``part``: the share of what it changes to which it applies."""
    changed_ms = step_ms(changed(step, change, part))
    return step_ms(step) / changed_ms if changed_ms > 0 else float("inf")


# -- how long a step takes


class _Piece(NamedTuple):
    """The next stretch of a task: it takes ``ms`` on so many ``cores``; without cores the task only waits.

    A thread that has a core for a share of the time does that share of its work. Threads of a pool wait for each other:
    the pool advances while all have a core, which is that share to the power of their number, the ``exponent``.
    """

    ms: float
    cores: float
    exponent: float = 1.0

    def per_ms(self, share: float) -> float:
        """How many ms of the piece are done per ms if threads that want a core have one for this share of the time."""
        return share**self.exponent if self.cores else 1.0


#: A task in this piece waits until another task lets it go on.
_BLOCKED = _Piece(math.inf, 0.0)


@lru_cache(maxsize=64)
def step_ms(step: Step) -> float:
    """The length of steps with their parts of the evaluation, of epoch starts and of waits for late batches."""
    beside_ms = step.evaluation_ms + step.starts_ms + step.held_ms
    if beside_ms:
        return step_ms(replace(step, evaluation_ms=0.0, starts_ms=0.0, held_ms=0.0)) + beside_ms
    fetch_ms = step.batch_ms + step.hand_over_ms + step.drawing_ms
    parts_ms = step.own_ms + step.fetches * fetch_ms
    if parts_ms <= _AT_ONCE * (8 + 4 * step.fetches):
        return parts_ms  # nothing takes long enough to be simulated
    if not step.workers:
        own_ms = sum(piece.ms * max(1.0, piece.cores / step.cores) for piece in _own_pieces(step))
        return own_ms + step.fetches * (step.batch_ms + step.drawing_ms)
    return _Simulation(step).mean_ms()


def _own_pieces(step: Step) -> tuple[_Piece, ...]:
    running_ms = step.own_ms * step.own_running
    own = _Piece(running_ms, step.own_threads, 1.0 + min(step.own_threads - 1.0, _MOST_COUPLED))
    return _pieces(own, _Piece(step.own_ms - running_ms, 0.0))


def _pieces(*pieces: _Piece) -> tuple[_Piece, ...]:
    """The pieces of a noticeable length."""
    return tuple(piece for piece in pieces if piece.ms > _AT_ONCE)


class _Simulation:
    """The training thread and its workers, event by event, until enough steps have ended.

    Workers make batches, the training thread fetches them in order, all share the cores. Worked example: one worker
    needs 10 ms for a batch, the training thread 4 ms for the rest of a step. While the thread is at one batch the
    worker makes the next, so a step takes 10 ms. Two workers make one every 5 ms; three, one every 3.3 ms, but then the
    thread's own 4 ms decide. On a single core a step takes 14 ms whatever their number.
    """

    def __init__(self, step: Step) -> None:
        self._step = step
        self._workers = min(step.workers, _MOST_WORKERS)
        self._each = step.workers / self._workers  # workers that each simulated one stands for
        self._ahead = max(self._workers, min(step.workers * max(1, step.prefetch), _MOST_AHEAD))
        # workers that began together deliver together, so whole rounds are counted
        self._counted = self._workers * math.ceil(_BATCHES / step.fetches / self._workers)
        before = math.ceil((self._ahead + self._workers) / step.fetches)
        self._number = self._counted + before
        self._made: set[int] = set()
        self._fetched = 0
        self._changed = True  # a batch was made or fetched, so that blocked tasks may go on
        self._now = 0.0
        self._ends: list[float] = []  # when each step ended

    def mean_ms(self) -> float:
        """Mean length of the later steps."""
        tasks = [self._trainer(), *(self._worker(first) for first in range(self._workers))]
        doing = [_BLOCKED] * len(tasks)
        left = [_BLOCKED.ms] * len(tasks)  # ms left of each task's piece
        available = self._step.cores
        while len(self._ends) < self._number:
            if self._changed:
                self._unblock(tasks, doing, left)
            wanted = sum([piece.cores for piece in doing])
            if wanted > available:
                share = available / wanted
                speeds = [piece.per_ms(share) for piece in doing]
                span = min([ms / speed for ms, speed in zip(left, speeds, strict=True)])
                left = [ms - span * speed for ms, speed in zip(left, speeds, strict=True)]
            else:
                span = min(left)
                left = [ms - span for ms in left]
            self._now += span
            for task, ms in enumerate(left):
                if ms <= _AT_ONCE:
                    doing[task] = next(tasks[task])
                    left[task] = doing[task].ms
        return (self._ends[-1] - self._ends[-1 - self._counted]) / self._counted

    def _unblock(self, tasks: list[Iterator[_Piece]], doing: list[_Piece], left: list[float]) -> None:
        """Let blocked tasks go on after a batch was made or fetched, and again those that these unblock."""
        while self._changed and len(self._ends) < self._number:
            self._changed = False
            for task, ms in enumerate(left):
                if ms == math.inf:
                    doing[task] = next(tasks[task])
                    left[task] = doing[task].ms

    def _trainer(self) -> Iterator[_Piece]:
        step = self._step
        own = _own_pieces(step)
        taking_over = _pieces(_Piece(step.hand_over_ms + step.drawing_ms, 1.0))
        while True:
            for _ in range(step.fetches):
                while self._fetched not in self._made:
                    yield _BLOCKED
                self._made.discard(self._fetched)
                yield from taking_over
                self._fetched += 1
                self._changed = True
            yield from own
            self._ends.append(self._now)

    def _worker(self, first: int) -> Iterator[_Piece]:
        """A worker, which begins a part of a batch later than the one before: real workers soon get out of step."""
        batch_ms = self._step.batch_ms / self._each
        yield from _pieces(_Piece(batch_ms * first / self._workers, 0.0))
        running_ms = batch_ms * self._step.batch_running
        pieces = _pieces(_Piece(running_ms, self._each), _Piece(batch_ms - running_ms, 0.0))
        for batch in count(first, self._workers):
            while batch >= self._fetched + self._ahead:
                yield _BLOCKED
            yield from pieces
            self._made.add(batch)
            self._changed = True
