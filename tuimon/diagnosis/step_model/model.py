"""The step as it was measured, and what each change of it gains: ``StepModel.gain`` is the only way to a gain."""

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
#: Most workers that are simulated one by one: more of them are taken for so many that are faster and use more cores.
_MOST_WORKERS = 6
#: Batches that lie ready at most, and about how many are counted once the queue has filled. That bounds the work: at
#: most some 40 batches of 7 tasks.
_MOST_AHEAD = 12
_BATCHES = 16
#: Threads of a pool, after the first, of which a late one holds up all the others: our choice; 1 was measured.
_MOST_COUPLED = 3.0
#: Below so many ms two events are one.
_AT_ONCE = 1e-9


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
        high = min(most, math.sqrt(WIDEST_RANGE) * middle)
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


# -- how long a step takes


class _Piece(NamedTuple):
    """The next stretch of a task: it takes this long on so many cores; with none the task only waits.

    A thread that has a core for a share of the time does as much of its work. Those of a pool wait for each other: it
    goes on while all have a core, which is that share to the power of their number, the ``exponent``.
    """

    ms: float
    cores: float
    exponent: float = 1.0

    def per_ms(self, share: float) -> float:
        """How many ms of it are done in a ms while a thread that wants a core has one for this share of the time."""
        return share**self.exponent if self.cores else 1.0


#: Until something happens elsewhere.
_BLOCKED = _Piece(math.inf, 0.0)


@lru_cache(maxsize=64)
def step_ms(step: Step) -> float:
    """How long steps take, each with its part of the evaluation, of what starts an epoch and of late batches."""
    beside_ms = step.evaluation_ms + step.starts_ms + step.held_ms
    if beside_ms:
        return step_ms(replace(step, evaluation_ms=0.0, starts_ms=0.0, held_ms=0.0)) + beside_ms
    fetch_ms = step.batch_ms + step.hand_over_ms + step.drawing_ms
    parts_ms = step.own_ms + step.fetches * fetch_ms
    if parts_ms <= _AT_ONCE * (8 + 4 * step.fetches):
        return parts_ms  # nothing is long enough to be simulated
    if not step.workers:
        own_ms = sum(piece.ms * max(1.0, piece.cores / step.cores) for piece in _own_pieces(step))
        return own_ms + step.fetches * (step.batch_ms + step.drawing_ms)
    return _Simulation(step).mean_ms()


def _own_pieces(step: Step) -> tuple[_Piece, ...]:
    running_ms = step.own_ms * step.own_running
    own = _Piece(running_ms, step.own_threads, 1.0 + min(step.own_threads - 1.0, _MOST_COUPLED))
    return _pieces(own, _Piece(step.own_ms - running_ms, 0.0))


def _pieces(*pieces: _Piece) -> tuple[_Piece, ...]:
    """The pieces that take time."""
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
        self._each = step.workers / self._workers  # workers that a simulated one stands for
        self._ahead = max(self._workers, min(step.workers * max(1, step.prefetch), _MOST_AHEAD))
        # batches of workers that began together come together: whole rounds are counted
        self._counted = self._workers * math.ceil(_BATCHES / step.fetches / self._workers)
        before = math.ceil((self._ahead + self._workers) / step.fetches)
        self._number = self._counted + before
        self._made: set[int] = set()
        self._fetched = 0
        self._changed = True  # either of them, so that who is blocked may go on
        self._now = 0.0
        self._ends: list[float] = []  # of steps

    def mean_ms(self) -> float:
        """Mean length of the later steps."""
        tasks = [self._trainer(), *(self._worker(first) for first in range(self._workers))]
        doing = [_BLOCKED] * len(tasks)
        left = [_BLOCKED.ms] * len(tasks)  # of each one's piece
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
        """A batch that is ready, or wanted, lets others go on, and these others again, until all that can do."""
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
        """Each begins a part of a batch after the one before: those that run at once do not stay in step for long."""
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
