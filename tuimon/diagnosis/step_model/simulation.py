"""Steps simulated event by event: workers make batches, the training thread fetches them in order, all share the cores.

Worked example: one worker needs 10 ms for a batch, the training thread 4 ms for the rest of a step. While the thread
is at one batch the worker makes the next, so a step takes 10 ms. Two workers make one every 5 ms; three, one every
3.3 ms, but then the thread's own 4 ms decide. On a single core a step takes 14 ms whatever their number.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from itertools import count
from typing import NamedTuple

from msgspec.structs import replace

from tuimon.diagnosis.step_model.edits import Step

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
    """The training thread and its workers, until enough steps have ended."""

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
