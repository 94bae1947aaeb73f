"""From labelled time to steps: what one iteration of the user's loop is.

Steps are found in this order: ``tuimon.step()``; from the first fetch after an update to the next such fetch, whether
or not gradients are inspected in between; without
a DataLoader from the end of one update to the end of the next, or, where optimizers take turns, of one round of their
updates to that of the next; without a torch optimizer from backward to backward. An update is a run of optimizer steps
with no fetch and no backward between them.

The finder cuts time into *pieces*, each ending with an update; how many pieces make a step is decided in ``pieces.py``.
"""

from __future__ import annotations

from tuimon.sources.loop.ended import EndedSteps, StepCounts
from tuimon.sources.loop.evaluation import EvaluationFinder, Times
from tuimon.sources.loop.pieces import BARE_LIMIT, Drive, Pieces
from tuimon.sources.loop.rounds import Optimizers
from tuimon.sources.loop.step import Step, StepRun

#: Optimizers of an update that are distinguished; where each parameter has its own, there may be thousands.
_OPTIMIZERS = 8
#: An optimizer is gone when this many times more backwards than it ever took have passed since its last step.
_GONE_RATIO = 4


class StepFinder:
    """Receives labelled time and the outermost boundaries of one thread from ``LoopMachine``, in order."""

    def __init__(self) -> None:
        self.is_timed = True  # False while boundaries are added that passed in a rest
        self.is_profiled = False  # a profiler of ours is on
        self.cuts = 0  # pieces that have ended
        self.total_updates = 0
        self.total_backwards = 0
        self.pieces = Pieces()  # those that have ended, and the steps made of them
        self._eval_ns = 0
        self._eval_count = 0
        self._evaluation = EvaluationFinder()
        self._ahead: Times | None = None  # evaluation, unless the batch was fetched ahead of the one that trains next
        self._open = Step(whole=False)  # the piece being filled
        self._updated: Step | None = None  # a piece that has ended with an update, if no further optimizer follows
        self._batch_waiting = False  # a batch was fetched that no backward has used yet
        self._optimizers: set[int] = set()  # of the update that has just ended
        self._backwards_since_update = 0
        self._most_backwards = 0  # of an update by an optimizer
        self._returned = 0  # backwards since the latest fetch that only returned gradients, and may have evaluated
        self._iterator = 0  # of the latest fetch
        self._trained_on = 0  # the latest iterator of a batch that has trained for sure

    def take_ended(self) -> EndedSteps:
        """Hand over the steps, and the evaluation, that have ended since the last call."""
        ended = EndedSteps(self.pieces.take_ended(), self._eval_ns, self._eval_count)
        self._eval_ns, self._eval_count = 0, 0
        return ended

    def add_time(self, label: str, duration_ns: int) -> None:
        """This much time was spent in one phase."""
        self._open.add_time(label, duration_ns)
        if not self.is_timed:
            self._open.timed = False
        if self.is_profiled:
            self._open.slowed = True
        self._evaluation.add_time(label, duration_ns)

    @property
    def is_slowed(self) -> bool:
        """Whether the step under way is slowed, or was held up, by a profiler of ours."""
        return self.is_profiled or self._open.slowed

    def begin_profiler(self, time_ns: int, *, traces: bool) -> None:
        """A profiler of ours is on from here; ``traces``: the step that begins is the first of a trace."""
        self.is_profiled = True
        if traces:
            self._open.traced_ns = time_ns

    def end_profiler(self) -> None:
        """The profiler is off again; the step under way has waited for it."""
        self.is_profiled = False
        self._open.slowed = True

    def begin_iter(self, time_ns: int) -> None:
        """The start of workers after an update bounds a piece, like the fetch that follows."""
        self._close_at_fetch(time_ns)
        self._evaluation.begin_iter()

    def end_iter(self, iterator: int) -> None:
        """This iterator is ready to be fetched from; 0: there is none."""
        self._evaluation.end_iter(iterator)

    def begin_fetch(self, time_ns: int, iterator: int) -> bool:
        """A fetch after an update bounds a piece; returns whether it shows that the batch before was evaluated.

        Where that was the first of its iterator, only the next boundary proves it: a loop that fetches one batch ahead
        (Accelerate's, a prefetcher's) begins with two fetches, and then trains.
        """
        self._evaluate_ahead()
        if self._close_at_fetch(time_ns):
            pass
        elif self._open.backwards and not self._open.fetched and self.pieces.end_at_fetch(self._open, time_ns):
            self._open = Step()  # backwards after the update, of what it trained on, and no update by them
            self._evaluation.forget_times()
        elif self._open.total_ns == 0 or self._fresh() or self._follows_set_up(iterator):
            self._open = Step()  # the stream, or its training, begins with this fetch
            self._evaluation.forget_times()
        self._iterator = iterator
        may_be_ahead = self._evaluation.is_second_fetch(iterator)
        evaluated = self._evaluation.begin_fetch(iterator)
        if evaluated is None:
            return False
        self._batch_waiting = False
        self._returned = 0
        self._ahead = evaluated
        if not may_be_ahead:
            self._evaluate_ahead()
        return True

    def end_fetch(self, exhausted: bool) -> None:
        """A batch may train; an exhausted iterator that evaluated takes its last wait with it."""
        if exhausted:
            self._evaluate_ahead()
            self._move_to_evaluation(self._evaluation.exhaust())
        else:
            self._batch_waiting = True

    def begin_backward(self, *, returned: bool = False) -> None:
        """A backward, also inside an optimizer's closure; without a fetch since the update it bounds a piece.

        ``returned``: it returns gradients to the program and accumulates none. Where a torch optimizer updates, that
        may be part of an evaluation, such as of forces, which are derivatives of an energy: the batch has not trained
        yet, unless one before it from the same iterator has.
        """
        if self._updated is not None:
            self._updated.after_fetch = False
            self._close_piece(self._updated.end_ns)
        if returned and self._batch_waiting and self._iterator != self._trained_on and self._has_optimizer():
            self._returned += 1
        else:
            self._use_batch(1)
            if not returned:
                self._trained_on = self._iterator

    @property
    def may_evaluate(self) -> bool:
        """Whether all backwards since the latest fetch have only returned gradients, and may have evaluated."""
        return self._returned > 0

    def _has_optimizer(self) -> bool:
        return self.pieces.optimizer_seen or self.pieces.optimizer_expected

    def _use_batch(self, backwards: int) -> None:
        """What was fetched until now has been trained on, by so many backwards and those that wait."""
        backwards += self._returned
        self._returned = 0
        self._ahead = None
        self._evaluation.forget_all()
        self._open.backwards += backwards
        self.total_backwards += backwards
        self._backwards_since_update += backwards
        if self._backwards_since_update > self._most_until_gone():
            self.pieces.optimizer_seen = False  # the optimizer is gone: from now on a backward is an update
        if self._batch_waiting:
            self._batch_waiting = False
            self._open.fetched = True
            self.pieces.train_on_batch()

    def end_backward(self, time_ns: int) -> None:
        """Where no torch optimizer is seen, a backward is the update."""
        if not self.pieces.optimizer_seen and not self.may_evaluate:
            self._end_update(time_ns)

    def expect_optimizer(self) -> None:
        """The program has an optimizer of torch's, which may step after any number of backwards."""
        self.pieces.optimizer_expected = True

    def end_optimizer_step(self, time_ns: int, optimizer: int = 0) -> None:
        """One more optimizer of the same update, or a new update."""
        if self.may_evaluate:
            self._use_batch(0)
        self._trained_on = self._iterator
        self._most_backwards = max(self._most_backwards, self._backwards_since_update)
        if not self.pieces.optimizer_seen:
            accumulated = self.pieces.see_optimizer()
            if accumulated is not None:
                self._reopen(accumulated)
        self._backwards_since_update = 0
        self._end_update(time_ns)
        self.total_updates += 1
        if len(self._optimizers) < _OPTIMIZERS:
            self._optimizers.add(optimizer)
        if self._updated is not None:
            self._updated.updates += 1

    def end_step(self, time_ns: int) -> None:
        """``tuimon.step()`` overrules all."""
        self.pieces.drive = Drive.API
        self._evaluate_ahead()
        ended, self._open = self._open, Step()
        if self._updated is not None:
            self._updated.absorb(ended)
            self._updated.end_ns = time_ns
            self._close_piece(time_ns)
            self.pieces.end_step()
        else:
            ended.end_ns = time_ns
            self.cuts += 1
            self.pieces.end_step(ended)

    def leave_loop(self) -> None:
        """The program has left its loop, maybe within a step: what it does until it trains again is of none."""
        self.finish()
        self._open = Step(whole=False)
        self._batch_waiting = False
        self._returned = 0
        self._evaluation = EvaluationFinder()

    def finish(self) -> None:
        """The thread has ended: what was held back is as whole as it will get."""
        self._evaluate_ahead()
        if self._updated is not None:
            self._close_piece(self._updated.end_ns)
        self.pieces.finish()

    # -- whole steps at once (``sources/loop/regular.py``)

    @property
    def updated(self) -> Step | None:
        """The piece that has just ended with an update, where nothing has come after it."""
        return None if self._open.phases else self._updated

    def standing(self) -> tuple[object, ...] | None:
        """All that the way of the next boundaries depends on; None but where an update has just ended, in a known loop.

        Counters that are only compared with a limit are as good as that limit once they are beyond it.
        """
        updated, pieces = self.updated, self.pieces.standing()
        if updated is None or pieces is None or self.is_slowed or updated.slowed or self._evaluation.is_open:
            return None
        if self.pieces.changes_with(frozenset(self._optimizers)):
            return None
        return (
            pieces,
            self.is_timed,
            self._open.flags,
            updated.flags,
            self._batch_waiting,
            min(self._backwards_since_update, self._most_until_gone() + 1),
            self._most_backwards,
            self._evaluation.evaluating,
            self._trained_on,
        )

    def counts(self) -> StepCounts:
        """The counters as they stand."""
        return StepCounts(
            self.cuts,
            self.total_updates,
            self.total_backwards,
            self.pieces.train_fetches,
            self.pieces.bare,
            self._backwards_since_update,
        )

    @property
    def optimizers(self) -> Optimizers:
        """The optimizers of the update that has just ended."""
        return frozenset(self._optimizers)

    def pass_steps(
        self, ended: list[Step | StepRun], count: int, updated: Step, each: StepCounts, optimizers: Optimizers
    ) -> None:
        """So many steps have ended, the first with the piece that was ``updated``; ``each`` raised the counters so.

        ``optimizers``: those of the last update of each.
        """
        self.pieces.ended += ended
        self._updated = updated
        self.pieces.pass_updates(self._take_optimizers(), 1)
        self.pieces.pass_updates(optimizers, count - 1)
        self._optimizers.update(optimizers)
        self.cuts += count * each.cuts
        self.total_updates += count * each.updates
        self.total_backwards += count * each.backwards
        self.pieces.train_fetches += count * each.train_fetches
        self.pieces.bare += count * each.bare
        self._backwards_since_update += count * each.backwards_since_update

    @property
    def is_evaluating(self) -> bool:
        """Whether the latest fetch has shown that the batch before it was evaluated, and nothing has used its own."""
        is_known = self._evaluation.evaluating is not None and self._evaluation.evaluating == self._iterator
        return is_known and self._batch_waiting and self._ahead is None and not self.may_evaluate

    def pass_evaluations(self, count: int, duration_ns: int) -> None:
        """So many batches of the same iterator were evaluated in this time."""
        self._evaluate_ahead()
        self._eval_count += count
        self._eval_ns += duration_ns

    # -- pieces

    def _fresh(self) -> bool:
        """Whether nothing has trained yet in the open piece of a stream that has just begun."""
        return not self._open.whole and not self._open.backwards and not self.pieces.are_held

    def _follows_set_up(self, iterator: int) -> bool:
        """Whether all fetches until now were of iterators that a program went through before it trains."""
        return not self.total_backwards and not self.cuts and self._evaluation.turns_from_evaluation(iterator)

    def _most_until_gone(self) -> int:
        """Backwards since its last step after which an optimizer is gone."""
        return max(BARE_LIMIT, _GONE_RATIO * self._most_backwards)

    def _end_update(self, time_ns: int) -> None:
        if self._updated is None:
            self._updated = self._open
        else:
            self._updated.absorb(self._open)
        self._updated.end_ns = time_ns
        self._open = Step()
        self._ahead = None
        self._evaluation.forget_all()

    def _close_at_fetch(self, time_ns: int) -> bool:
        """Side work after the update belongs to the step before; whether there was an update."""
        if self._updated is None:
            return False
        self._updated.absorb(self._open)
        self._updated.after_fetch = True
        self._close_piece(time_ns)
        return True

    def _close_piece(self, end_ns: int) -> None:
        """The update is over: its piece is complete."""
        piece = self._updated
        if piece is None:
            return
        if piece.after_fetch:
            piece.end_ns = end_ns
            self._open = Step()
            self._evaluation.forget_times()
        self._updated = None
        self.cuts += 1
        self.pieces.add(piece, self._take_optimizers())

    def _take_optimizers(self) -> Optimizers:
        taken = frozenset(self._optimizers)
        self._optimizers.clear()
        return taken

    def _reopen(self, piece: Step) -> None:
        """A piece that seemed to have ended goes on with what has come since."""
        piece.absorb(self._updated or self._open)
        if self._updated is None:
            self._open = piece
        else:
            self._updated = piece

    def _evaluate_ahead(self) -> None:
        """No batch was fetched ahead: the first of the iterator was evaluated."""
        if self._ahead is None:
            return
        ahead, self._ahead = self._ahead, None
        self._eval_count += 1
        self._move_to_evaluation(ahead)

    def _move_to_evaluation(self, times: Times) -> None:
        """This much of the open piece was evaluation, not training."""
        for label, duration_ns in times:
            self._open.add_time(label, -duration_ns)
            self._eval_ns += duration_ns
