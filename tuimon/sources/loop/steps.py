"""From labelled time to steps: what one iteration of the user's loop is.

Steps are found in this order: ``tuimon.step()``; from the first fetch after an update to the next such fetch, whether
or not gradients are inspected in between; without a DataLoader from the end of one update to the end of the next, or,
where optimizers take turns, of one round of their updates to that of the next; without a torch optimizer from backward
to backward; while nothing has trained, from batch to batch. An update is a run of optimizer steps with no fetch and no
backward between them.

The finder cuts time into *pieces*, each ending with an update; how many pieces make a step is decided in ``pieces.py``.
"""

from __future__ import annotations

from tuimon.agent.ring.layout import GAP_AFTER_FETCH, GAP_AFTER_UPDATE, Passed
from tuimon.sources.loop.batches import Batches, ForwardSteps, divide_forward
from tuimon.sources.loop.pieces import BARE_LIMIT, Drive, Optimizers, Pieces
from tuimon.sources.loop.step import EndedSteps, Step

#: Optimizers of an update that are distinguished; where each parameter has its own, there may be thousands.
_OPTIMIZERS = 8
#: Long steps of a gap that are known one by one.
_PAUSES = 64
#: An optimizer is gone when this many times more backwards than it ever took have passed since its last step.
_GONE_RATIO = 4


class StepFinder:
    """Receives labelled time and the outermost boundaries of one thread from ``LoopMachine``, in order."""

    def __init__(self) -> None:
        self.is_profiled = False  # a profiler of ours is on
        self.cuts = 0  # pieces that have ended
        self.total_updates = 0
        self.total_backwards = 0
        self.pieces = Pieces()  # those that have ended, and the steps made of them
        self._batches = Batches()
        self._open = Step(whole=False)  # the piece being filled
        self._updated: Step | None = None  # a piece that has ended with an update, if no further optimizer follows
        self._optimizers: set[int] = set()  # of the update that has just ended
        self._is_cut_short = False  # the step after this one begins where a gap was cut short
        self._backwards_since_update = 0
        self._most_backwards = 0  # of an update by an optimizer
        self._begins_anew = False  # the thread trains now; what it did before was told to be steps

    def take_ended(self) -> EndedSteps:
        """Hand over the steps, and the evaluation, that have ended since the last call."""
        batches = [] if self._batches.forward is None else self._batches.forward.take_ended()
        begins_anew, self._begins_anew = self._begins_anew, False
        return EndedSteps([*batches, *self.pieces.take_ended()], *self._batches.take_evaluation(), begins_anew)

    def add_time(self, label: str, duration_ns: int) -> None:
        """This much time was spent in one phase."""
        self._open.add_time(label, duration_ns)
        if self.is_profiled:
            self._open.slowed = True
        self._batches.evaluation.add_time(label, duration_ns)

    @property
    def are_forward(self) -> bool:
        """True if the batches of a thread that has not trained are its steps."""
        return self._batches.forward is not None and self._batches.forward.has_told

    @property
    def total_forward(self) -> int:
        """Steps of a thread that has not trained, as far as ``tuimon.step()`` or its batches show them."""
        return 0 if self._batches.forward is None else self._batches.forward.total + self.cuts

    @property
    def is_slowed(self) -> bool:
        """True if the step under way is slowed, or was held up, by a profiler of ours."""
        return self.is_profiled or self._open.slowed

    def begin_profiler(self, time_ns: int, *, traces: bool) -> None:
        """A profiler of ours is on from here; ``traces``: the step that begins is the first of a trace."""
        self.is_profiled = True
        if traces:
            self._open.traced_ns = time_ns

    def end_profiler(self) -> None:
        """The profiler is off again; the step under way has waited for it."""
        self.is_profiled = False
        self.hold_up()

    def hold_up(self) -> None:
        """The step under way takes longer than it would by itself."""
        self._open.slowed = True

    def begin_iter(self, time_ns: int) -> None:
        """The start of workers after an update bounds a piece, like the fetch that follows."""
        self._close_at_fetch(time_ns)
        self._batches.evaluation.begin_iter()

    def end_iter(self, iterator: int) -> None:
        """This iterator is ready to be fetched from; 0: there is none."""
        self._batches.evaluation.end_iter(iterator)

    def begin_fetch(self, time_ns: int, iterator: int) -> bool:
        """A fetch after an update bounds a piece; returns whether it shows that the batch before was evaluated."""
        self._batches.settle_before(iterator, self._open)
        ended = self._end_at_fetch(time_ns)
        if not ended and (self._open.total_ns == 0 or self._fresh() or self._follows_set_up(iterator)):
            self._open = Step(timed=self._open.timed)  # the stream, or its training, begins with this fetch
            self._batches.evaluation.forget_times()
        return self._batches.begin_fetch(iterator, self._open, time_ns)

    def end_fetch(self, exhausted: bool) -> None:
        """A batch may train; an exhausted iterator that evaluated takes its last wait with it."""
        self._batches.end_fetch(exhausted, self._open)

    def begin_backward(self, *, returned: bool = False) -> None:
        """A backward, also inside an optimizer's closure; without a fetch since the update it bounds a piece.

        ``returned``: it returns gradients to the program and accumulates none. If a torch optimizer updates, that
        may be part of an evaluation, such as of forces, which are derivatives of an energy: the batch has not trained
        yet, unless one before it from the same iterator has.
        """
        if self._updated is not None:
            self._updated.after_fetch = False
            self._close_piece(self._updated.end_ns)
        if returned and self._has_optimizer() and self._batches.return_gradients():
            return
        self._use_batch(1)
        if not returned:
            self._batches.note_training()

    @property
    def may_evaluate(self) -> bool:
        """True if all backwards since the latest fetch have only returned gradients, and may have evaluated."""
        return self._batches.may_evaluate

    def _has_optimizer(self) -> bool:
        return self.pieces.optimizer_seen or self.pieces.optimizer_expected

    def _use_batch(self, backwards: int) -> None:
        """Count what was fetched until now as trained on, by so many backwards and those that wait."""
        self._begins_anew |= self._batches.begin_training()
        backwards += self._batches.use()
        self._open.backwards += backwards
        self.total_backwards += backwards
        self._backwards_since_update += backwards
        if self._backwards_since_update > self._most_until_gone():
            self.pieces.optimizer_seen = False  # the optimizer is gone: from now on a backward is an update
        if self._batches.is_waiting:
            self._batches.is_waiting = False
            self._open.fetched = True
            self.pieces.train_on_batch()

    def end_backward(self, time_ns: int) -> None:
        """End a backward; it is the update if no torch optimizer is seen."""
        if not self.pieces.optimizer_seen and not self.may_evaluate:
            self._end_update(time_ns)

    def expect_optimizer(self) -> None:
        """The program has an optimizer of torch's, which may step after any number of backwards, or evaluations."""
        self.pieces.optimizer_expected = True
        self._begins_anew |= self._batches.begin_training()

    def end_optimizer_step(self, time_ns: int, optimizer: int = 0) -> None:
        """One more optimizer of the same update, or a new update."""
        if self.may_evaluate:
            self._use_batch(0)
        self._begins_anew |= self._batches.begin_training()
        self._batches.note_training()
        self._most_backwards = max(self._most_backwards, self._backwards_since_update)
        if not self.pieces.optimizer_seen:
            accumulated = self.pieces.see_optimizer()
            if accumulated is not None:
                self._reopen(accumulated)
        self._batches.note_update(self._most_backwards)
        self._backwards_since_update = 0
        self._end_update(time_ns)
        self.total_updates += not self._optimizers
        if len(self._optimizers) < _OPTIMIZERS:
            self._optimizers.add(optimizer)
        if self._updated is not None:
            self._updated.updates += 1

    def end_step(self, time_ns: int) -> None:
        """``tuimon.step()`` overrules all."""
        self.pieces.drive = Drive.API
        self._batches.settle(self._open)
        ended, self._open = self._open, Step()
        ended.marked = True
        if self._batches.forward is not None:
            self._end_without_training(ended, self._batches.forward)
        if self._updated is not None:
            self._updated.absorb(ended)
            self._updated.end_ns = time_ns
            self._close_piece(time_ns)
            self.pieces.end_step()
        else:
            ended.end_ns = time_ns
            self.cuts += 1
            self.pieces.end_step(ended)

    def _end_without_training(self, ended: Step, forward: ForwardSteps) -> None:
        """``tuimon.step()`` in a thread that has not trained: what was fetched until now belongs to this step."""
        self._batches.are_of_program = True
        for batch in forward.take_held():
            ended.absorb(batch)
        divide_forward(ended)
        self._batches.use()
        self._batches.is_waiting = False

    def leave_loop(self) -> None:
        """The program has left its loop, maybe within a step: what it does until it trains again belongs to none."""
        self.finish()
        self._open = Step(whole=False)
        self._batches.leave_loop()

    def finish(self) -> None:
        """The thread has ended: what was held back is as whole as it will get."""
        self._batches.settle(self._open)
        if self._updated is not None:
            self._close_piece(self._updated.end_ns)
        if self._batches.forward is not None:
            self._batches.forward.finish()
        self.pieces.finish()

    # -- boundaries that were only counted

    def begin_gap(self, time_ns: int, *, at_fetch: bool) -> None:
        """From this boundary on they are: the first fetch, or backward, after an update, or ``tuimon.step()``."""
        if at_fetch:
            self._end_at_fetch(time_ns)
        elif self._updated is not None:
            self._updated.after_fetch = False
            self._close_piece(self._updated.end_ns)
        self._open.timed = False
        self.add_pause(self._open.total_ns)  # the first has begun with the update before

    def add_pause(self, duration_ns: int) -> None:
        """A counted step took at least so long."""
        if len(self._open.pauses_ns) < _PAUSES:
            self._open.pauses_ns += (duration_ns,)

    def end_gap(self, time_ns: int, passed: Passed, place: int) -> None:
        """So many have passed until here. ``place``: flag of GAP_END.

        Only a step that begins where a gap ends as planned is timed. Events that cut gaps short, such as the end of an
        epoch, would else be in more of the steps that are timed than of all.
        """
        gap, updates = self._open, passed.updates
        is_open = place == GAP_AFTER_UPDATE and updates > 0 and not self.pieces.are_rounds
        gap.timed = False
        self.cuts += updates
        self.total_updates += updates
        self.total_backwards += passed.backwards
        self._backwards_since_update = 0 if updates else self._backwards_since_update + passed.backwards
        gap.backwards += passed.backwards
        gap.updates += updates
        gap.fetched |= passed.fetches > 0
        gap.end_ns = time_ns
        if updates or passed.backwards:
            self._begins_anew |= self._batches.begin_training()
            self._batches.pass_gap(passed, self._most_backwards, is_waiting=place == GAP_AFTER_FETCH)
        self._open = self.pieces.pass_gap(gap, passed, place, is_open=is_open)
        if updates:
            self.pieces.optimizer_seen = True
        if is_open:
            self._updated, self._open = self._open, Step(timed=False)
            self._updated.end_ns = time_ns
        self._is_cut_short = is_open

    @property
    def is_evaluating(self) -> bool:
        """True if the latest fetch has shown that the batch before it was evaluated, and nothing has used its own."""
        return self._batches.are_evaluated

    # -- pieces

    def _fresh(self) -> bool:
        """True if nothing has trained yet in the open piece of a stream that has just begun."""
        return not self._open.whole and not self._open.backwards and not self.pieces.are_held

    def _follows_set_up(self, iterator: int) -> bool:
        """True if all fetches until now were of iterators that a program went through before it trains."""
        return not self.total_backwards and not self.cuts and self._batches.evaluation.turns_from_evaluation(iterator)

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
        self._batches.end_update()

    def _end_at_fetch(self, time_ns: int) -> bool:
        """True if a piece ends at this fetch: with an update, or backwards after it, of what it trained on."""
        if self._close_at_fetch(time_ns):
            return True
        if self._open.backwards and not self._open.fetched and self.pieces.end_at_fetch(self._open, time_ns):
            self._open = Step()
            self._batches.evaluation.forget_times()
            return True
        return False

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
            self._open = Step(timed=not self._is_cut_short)
            self._is_cut_short = False
            self._batches.evaluation.forget_times()
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
