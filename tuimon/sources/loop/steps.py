"""From labelled time to steps: what one iteration of the user's loop is.

Steps are found in this order: ``tuimon.step()``; from the first fetch after an update to the next such fetch, whether
or not gradients are inspected in between; without a DataLoader, or if each batch is fetched before the update, ahead of
its step, from the end of one update to the end of the next, or, if optimizers take turns, of one round of their
updates to that of the next; without a torch optimizer from backward to backward; while nothing has trained, from batch
to batch. An update is a run of optimizer steps with no fetch and no backward between them.

The finder cuts time into *pieces*, each ending with an update; how many pieces make a step is decided in ``pieces.py``.
"""

from __future__ import annotations

from tuimon.agent.ring.layout import BARE_UPDATES, GAP_AFTER_FETCH, GAP_AFTER_UPDATE, Passed
from tuimon.sources.loop.batches import Batches, divide_forward
from tuimon.sources.loop.pieces import Pieces, StepEnd
from tuimon.sources.loop.step import Step

#: An optimizer is gone when this many times more backwards than it ever took have passed since its last step.
_GONE_RATIO = 4


class StepFinder:
    """Receives labelled time and the outermost boundaries of one thread from ``LoopMachine``, in order."""

    def __init__(self) -> None:
        self.last_ns: int | None = None  # when the latest marker was; None before the first, and outside the loop
        self.is_profiled = False  # tuimon's trace or memory history is being taken
        self.begins_anew = False  # the thread trains now, after evaluations that were reported as steps
        self.cuts = 0  # pieces that have ended
        self.total_updates = 0
        self.total_backwards = 0
        self.pieces = Pieces()  # those that have ended, and the steps made of them
        self.batches = Batches()
        self.open = Step(whole=False)  # the piece being filled
        self._updated: Step | None = None  # a piece that has ended with an update, if no further optimizer follows
        self._optimizers: set[int] = set()  # of the update that has just ended
        self._is_cut_short = False  # the step after this one begins where a gap was cut short
        self._backwards_since_update = 0
        self._most_backwards = 0  # of an update by an optimizer

    def take_ended(self) -> list[Step]:
        """Return and clear the steps that have ended."""
        ended, self.pieces.ended = self.pieces.ended, []
        return [*self.batches.take_forward(), *ended]

    def take_evaluation(self) -> tuple[int, int]:
        """Return and clear the time (ns) of evaluations between steps, and the number of their batches."""
        taken = self.batches.eval_ns, self.batches.eval_count
        self.batches.eval_ns = self.batches.eval_count = 0
        return taken

    def advance(self, label: str, time_ns: int) -> int:
        """Add the time since the last marker to a phase; returns the time of that marker."""
        last_ns, self.last_ns = self.last_ns, time_ns
        if last_ns is None or time_ns <= last_ns:
            return time_ns
        step, times, duration_ns = self.open, self.batches.times, time_ns - last_ns
        phases = step.phases
        phases[label] = phases.get(label, 0) + duration_ns
        step.total_ns += duration_ns
        times[label] = times.get(label, 0) + duration_ns
        step.slowed |= self.is_profiled
        return last_ns

    @property
    def total_forward(self) -> int:
        """The number of steps of a thread that has not trained, by ``tuimon.step()`` or its batches."""
        return 0 if self.batches.forward is None else self.batches.forward_total + self.cuts

    @property
    def is_slowed(self) -> bool:
        """True if a trace or memory history that tuimon takes has slowed the open step, or held it up."""
        return self.is_profiled or self.open.slowed

    def begin_profiler(self, time_ns: int, *, traces: bool) -> None:
        """Begin tuimon's trace or memory history; ``traces``: the step that begins is the first of a trace."""
        self.is_profiled = True
        if traces:
            self.open.traced_ns = time_ns

    def end_profiler(self) -> None:
        """End it; the open step has waited for the end."""
        self.is_profiled, self.open.slowed = False, True

    def begin_iter(self, time_ns: int) -> None:
        """End the piece after an update, as the fetch that follows would: workers are started."""
        self._close_at_fetch(time_ns)
        self.batches.begin_iter()

    def begin_fetch(self, time_ns: int, iterator: int) -> bool:
        """End the piece if an update came before this fetch; True if it shows that the batch before was evaluated."""
        batches = self.batches
        batches.evaluate_before_fetch(iterator, self.open)
        if not self._end_at_fetch(time_ns):
            step = self.open
            # nothing has trained yet in the open piece of a stream that has just begun ...
            is_fresh = not step.whole and not step.backwards and not self.pieces.held
            # ... or all fetches until now were of iterators that a program went through before it trains
            is_set_up = not self.total_backwards and not self.cuts and batches.turns_from_evaluation(iterator)
            if step.total_ns == 0 or is_fresh or is_set_up:
                self.open = Step(timed=step.timed)  # the stream, or its training, begins with this fetch
                batches.forget_times()
        return batches.begin_fetch(iterator, self.open, time_ns)

    def begin_backward(self, *, returned: bool = False) -> None:
        """Begin a backward, maybe inside an optimizer's closure; without a fetch since the update it ends the piece.

        ``returned``: it returns gradients to the program and accumulates none. In a loop with an optimizer that may be
        part of an evaluation, such as of forces, which are derivatives of an energy: the batch has not trained yet,
        unless one before it from the same iterator has.
        """
        self._close_update()
        has_optimizer = self.pieces.optimizer_seen or self.pieces.optimizer_expected
        if not (returned and has_optimizer and self.batches.add_returned_backward()):
            self._use_batch(1, trains=not returned)

    def _use_batch(self, backwards: int, *, trains: bool) -> None:
        """Count all fetched batches as used by this number of backwards; ``trains``: they train for certain."""
        batches, step = self.batches, self.open
        if batches.forward is not None:
            self.begins_anew |= batches.begin_training()
        backwards += batches.use_fetched(trains=trains)
        step.backwards += backwards
        self.total_backwards += backwards
        self._backwards_since_update += backwards
        if self._backwards_since_update > max(BARE_UPDATES, _GONE_RATIO * self._most_backwards):
            self.pieces.optimizer_seen = False  # the optimizer is gone: from now on a backward is an update
        if batches.is_waiting:
            batches.is_waiting = False
            step.fetched = True
            self.pieces.train_on_batch()

    def end_backward(self, time_ns: int) -> None:
        """End a backward; it is the update if no torch optimizer is seen."""
        if not self.pieces.optimizer_seen and not self.batches.returned:
            self.batches.forget_unused()
            self._end_update(time_ns)

    def expect_optimizer(self) -> None:
        """Note that the program has an optimizer: it may step after any number of backwards, or evaluations."""
        self.pieces.optimizer_expected = True
        self.begins_anew |= self.batches.begin_training()

    def end_optimizer_step(self, time_ns: int, optimizer: int = 0) -> None:
        """End an optimizer's step, which belongs to the same update as the one before, or begins another."""
        batches = self.batches
        if batches.returned:
            self._use_batch(0, trains=True)
        if batches.forward is not None:
            self.begins_anew |= batches.begin_training()
        self._most_backwards = max(self._most_backwards, self._backwards_since_update)
        if not self.pieces.optimizer_seen:
            accumulated = self.pieces.see_optimizer()
            if accumulated is not None:  # a piece that seemed to have ended goes on with what has come since
                accumulated.absorb(self._updated or self.open)
                if self._updated is None:
                    self.open = accumulated
                else:
                    self._updated = accumulated
        batches.end_update(self._most_backwards)
        self._backwards_since_update = 0
        updated = self._end_update(time_ns)
        updated.updates += 1
        self.total_updates += not self._optimizers
        if len(self._optimizers) < 8:  # if each parameter has one, there are thousands
            self._optimizers.add(optimizer)

    def end_step(self, time_ns: int) -> None:
        """End a step at ``tuimon.step()``, whatever other boundaries show."""
        batches = self.batches
        self.pieces.steps_end_at = StepEnd.API
        batches.evaluate_unused(self.open)
        batches.forget_times()
        ended, self.open = self.open, Step()
        ended.marked = True
        if batches.forward is not None:  # nothing has trained: what was fetched until now belongs to this step
            batches.are_of_program = True
            held, batches.forward = batches.forward, []
            for batch in held:
                ended.absorb(batch)
            divide_forward(ended)
            batches.use_fetched(trains=False)
            batches.is_waiting = False
        ended.end_ns = time_ns
        if self._updated is not None:
            self._updated.absorb(ended)
            self._close_update()
        else:
            self.cuts += 1
            self.pieces.held.append(ended)  # its last piece, which has no update
        self.pieces.end_step()

    def leave_loop(self) -> None:
        """Note that the program has left its loop: its time until it trains again belongs to no step."""
        self.finish()
        self.open, self.last_ns = Step(whole=False), None
        self.batches.leave_loop()

    def finish(self) -> None:
        """Make steps of all that was held back: the thread has ended."""
        self.batches.evaluate_unused(self.open)
        self._close_update()
        self.batches.are_known = True
        self.pieces.finish()

    # -- boundaries that were only counted

    def begin_gap(self, time_ns: int, *, at_fetch: bool) -> None:
        """Begin a gap, in which boundaries are only counted: at a fetch, a backward or ``tuimon.step()``."""
        if at_fetch:
            self._end_at_fetch(time_ns)
        else:
            self._close_update()
        self.open.timed = False

    def end_gap(self, time_ns: int, passed: Passed, place: int) -> None:
        """End a gap in which ``passed`` boundaries were counted. ``place``: flag of GAP_END.

        A step is only timed if the gap before it ends as planned. Otherwise events that cut gaps short, such as the
        end of an epoch, would be more frequent in timed steps than in all.
        """
        gap, updates = self.open, passed.updates
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
            self.begins_anew |= self.batches.begin_training()
            self.batches.pass_gap(passed, self._most_backwards, is_waiting=place == GAP_AFTER_FETCH)
        self.open = self.pieces.pass_gap(gap, passed, place, is_open=is_open)
        if updates:
            self.pieces.optimizer_seen = True
        if is_open:
            self._updated, self.open = self.open, Step(timed=False)
            self._updated.end_ns = time_ns
        self._is_cut_short = is_open

    # -- pieces

    def _end_update(self, time_ns: int) -> Step:
        """End the open piece with an update, which another optimizer's step may still extend; returns the piece."""
        updated = self._updated
        if updated is None:
            updated = self._updated = self.open
        else:
            updated.absorb(self.open)
        updated.end_ns = time_ns
        self.open = Step()
        return updated

    def _end_at_fetch(self, time_ns: int) -> bool:
        """End a piece that trained at this fetch; False if there is none."""
        if self._close_at_fetch(time_ns):
            return True
        step = self.open
        if step.backwards and not step.fetched and self.pieces.end_at_fetch(step, time_ns):
            self.open = Step()
            self.batches.forget_times()
            return True
        return False

    def _close_at_fetch(self, time_ns: int) -> bool:
        """End the piece with its update and the side work after it; False if there was no update."""
        updated = self._updated
        if updated is None:
            return False
        updated.absorb(self.open)
        updated.after_fetch, updated.end_ns = True, time_ns
        self.open = Step(timed=not self._is_cut_short)
        self._is_cut_short = False
        self.batches.forget_times()
        self._close_update()
        return True

    def _close_update(self) -> None:
        """Complete the piece that has ended with an update, if there is one; later time is in the next piece."""
        piece, self._updated = self._updated, None
        if piece is not None:
            self.cuts += 1
            optimizers = frozenset(self._optimizers)
            self._optimizers.clear()
            self.pieces.add(piece, optimizers)
