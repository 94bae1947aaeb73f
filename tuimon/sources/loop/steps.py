"""From labelled time to steps: what one iteration of the user's loop is.

An update is a run of optimizer steps with no fetch and no backward between them. The first of these that applies ends
one step and begins the next:

1. ``tuimon.step()``;
2. the first fetch after an update, whether or not gradients are inspected in between;
3. without a DataLoader, or if batches are fetched ahead, before the update: the end of an update; if optimizers take
   turns, that of a round of their updates;
4. without a torch optimizer: backward;
5. while nothing has trained: a batch.

``StepFinder`` cuts time into *pieces*, each ending with an update; ``Pieces`` decides how many of them make a step.
"""

from __future__ import annotations

from enum import Enum

from tuimon.agent.ring import layout
from tuimon.agent.ring.layout import BARE_UPDATES, GAP_AFTER_FETCH, GAP_AFTER_UPDATE, Passed
from tuimon.sources.loop.batches import Batches, divide_forward
from tuimon.sources.loop.step import COUNTED, Step

#: Which optimizers stepped in an update.
Optimizers = frozenset[int]
#: An optimizer is gone when this many times more backwards than it ever took have passed since its last step.
_GONE_RATIO = 4
#: Whole rounds, one after another, that show a loop of rounds.
_ENOUGH = 2


class Rounds:
    """Finds whether optimizers take turns: then a *round*, one update by each, is a step.

    The optimizers of each update are given in order. Two networks with an optimizer each:

    >>> rounds = Rounds()
    >>> for optimizer in (1, 2, 1, 2, 1):
    ...     rounds.add_update(frozenset({optimizer}))
    ...     print(rounds.size, rounds.open)
    1 0
    1 0
    1 0
    2 0
    2 1
    """

    def __init__(self) -> None:
        self._order: tuple[Optimizers, ...] = ()  # of a round, or of the updates that may begin one
        self._at = 0  # which of them comes next
        self._count = 0  # whole rounds, up to _ENOUGH; 0: the first has not come to its end
        self.size = 1  # how many updates make a step

    @property
    def open(self) -> int:
        """The number of updates so far in a round that is not finished; 0 if there are no rounds."""
        return self._at if self.size > 1 else 0

    @property
    def are_decided(self) -> bool:
        """True if the updates until now show how many make a step."""
        return self._count > 0 and (len(self._order) == 1 or self.size > 1)

    def pass_updates(self, count: int) -> int:
        """Add updates that were only counted; returns the number of steps that end with them."""
        if self.size == 1:
            return count
        steps, self._at = divmod(self._at + count, len(self._order))
        return steps

    def add_update(self, optimizers: Optimizers) -> None:
        if self._count and optimizers == self._order[self._at]:
            self._at = (self._at + 1) % len(self._order)
            self._count = min(self._count + (self._at == 0), _ENOUGH)
        elif not self._count and self._order and optimizers == self._order[0]:
            self._at, self._count = 1 % len(self._order), 1
        elif not self._count and self._may_follow(self._order, optimizers):
            self._order = (*self._order, optimizers)
        else:
            before = self._order[self._at - 1 : self._at or None]  # the update before this one
            self._order = (*before, optimizers) if self._may_follow(before, optimizers) else (optimizers,)
            self._at, self._count = 0, 0
        self.size = len(self._order) if self._count >= _ENOUGH else 1

    @staticmethod
    def _may_follow(order: tuple[Optimizers, ...], optimizers: Optimizers) -> bool:
        """True if an update may be the next of a round: none before it was by one of these optimizers."""
        known = all(one and one.isdisjoint(optimizers) for one in order)
        return bool(optimizers) and known and 0 < len(order) < 6  # updates


class StepEnd(Enum):
    """The event at which each step of a loop ends and the next begins."""

    UNKNOWN = "unknown"
    FETCH = "fetch"
    UPDATE = "update"
    API = "api"


# Pieces are held back until it is known what ends a step: at most this many, and for at most this time (ns) from the
# end of the first piece, which may have begun with minutes of set-up.
#: In a loop with an optimizer that has trained on no batch: the first few pieces show whether fetches bound the steps.
_UPDATES = 8, 3_000_000_000
#: After a batch was trained on: the next batch shows it, but two models may take turns on the first one.
_BATCH_UPDATES = 8, 20_000_000_000
#: After a second fetch has begun: only the backward of its batch is missing, however slow the steps are.
_FETCHED_UPDATES = 8, 1_000_000_000_000
#: Before any optimizer step, backwards may accumulate gradients: 32 and more in a step are rare. Steps of a loop whose
#: optimizer is not torch's are found only after that.
_BACKWARDS = 32, 20_000_000_000
#: The same in a program with a torch optimizer, which may never step, or step unseen in compiled code.
_EXPECTED_UPDATE = 1024, 120_000_000_000


class Pieces:
    """Holds the pieces of a loop back until it is known how many of them make a step, then joins them into steps."""

    def __init__(self) -> None:
        self.steps_end_at = StepEnd.UNKNOWN
        self.optimizer_seen = False  # one of torch's has stepped, and is not gone
        self.optimizer_expected = False  # the program has one
        self.train_fetches = 0  # fetches that trained, in a row, with few pieces between them
        self.bare = 0  # pieces since the last one that trained on a fetched batch
        self.at_fetch = True  # the latest piece has ended at a fetch
        self.ended: list[Step] = []  # steps that ended since they were last taken
        self.held: list[Step] = []  # pieces of steps that are not finished
        self._rounds = Rounds()  # of the updates of a loop without a DataLoader

    def add(self, piece: Step, optimizers: Optimizers = frozenset()) -> None:
        """Add the next piece, which ends with an update."""
        self.held.append(piece)
        self.at_fetch = piece.after_fetch
        if not piece.fetched:
            self.bare += 1
        ends_at = self.steps_end_at
        if ends_at is StepEnd.FETCH:
            if self.bare > BARE_UPDATES:
                self._set_step_end(StepEnd.UPDATE)
            elif piece.after_fetch:
                self.end_step()
        elif ends_at is StepEnd.API:
            if len(self.held) > BARE_UPDATES:  # the calls have stopped
                self.steps_end_at = StepEnd.UNKNOWN
        else:
            self._rounds.add_update(optimizers)
            if ends_at is StepEnd.UNKNOWN:
                self._decide_if_known()
            else:
                self._end_rounds()

    def end_at_fetch(self, rest: Step, time_ns: int) -> bool:
        """End the step before a fetch; ``rest``: backwards since its update. False if no step ends there."""
        if self.steps_end_at not in (StepEnd.FETCH, StepEnd.UNKNOWN) or not self.held or not self.train_fetches:
            return False
        piece = self.held[-1]
        piece.absorb(rest)
        piece.after_fetch = self.at_fetch = True
        piece.end_ns = time_ns
        if self.steps_end_at is StepEnd.FETCH:
            self.end_step()
        return True

    def train_on_batch(self) -> None:
        """Note that a backward has used a fetched batch: after two in a row, steps end at fetches.

        A batch that was fetched before the update, ahead of its step, does not count: such a fetch ends no step.
        """
        if not self.at_fetch:
            self.train_fetches = 0
            if self.steps_end_at is StepEnd.FETCH:
                self._set_step_end(StepEnd.UPDATE)
            return
        if self.steps_end_at is StepEnd.UPDATE and self.bare > _UPDATES[0]:
            self.train_fetches = 0  # a validation batch now and then ends no step
        self.train_fetches += 1
        self.bare = 0
        known = self.steps_end_at is StepEnd.UPDATE or (self.steps_end_at is StepEnd.UNKNOWN and self.optimizer_seen)
        if known and self.train_fetches >= 2:
            self._set_step_end(StepEnd.FETCH)

    def see_optimizer(self) -> Step | None:
        """Note an optimizer's step; returns the pieces held back, joined into one, if they are no steps.

        Backwards without an optimizer's step may be updates; the first such step shows that they only accumulated
        gradients.
        """
        self.optimizer_seen = True
        if self.steps_end_at is not StepEnd.UNKNOWN or not self.held:
            return None
        self.bare = 0
        return self._join_held()

    def end_step(self) -> None:
        """Join all pieces held back into one step."""
        if self.held:
            step = self._join_held()
            if step.is_step:
                self.ended.append(step)

    def finish(self) -> None:
        """Make steps of all pieces held back: no more will come."""
        if self.steps_end_at is StepEnd.UNKNOWN:
            self._set_step_end(StepEnd.FETCH if self.train_fetches else StepEnd.UPDATE)
        if self.steps_end_at is not StepEnd.API:
            self.end_step()

    @property
    def are_rounds(self) -> bool:
        """True if several updates make a step."""
        return self.steps_end_at is StepEnd.UPDATE and self._rounds.size > 1

    def pass_gap(self, gap: Step, passed: Passed, place: int, *, is_open: bool) -> Step:
        """Add a gap, in which boundaries were only counted; returns the piece that continues after it.

        ``is_open``: the last update of the gap may continue, too. Steps that lie partly in the gap have no times.
        """
        if self.steps_end_at is StepEnd.UNKNOWN:
            self._set_step_end(StepEnd.FETCH if passed.steps else StepEnd.UPDATE)
        self.bare = passed.updates // passed.steps if passed.steps else self.bare + passed.updates
        if self.steps_end_at is StepEnd.FETCH and self.bare > BARE_UPDATES:
            self._set_step_end(StepEnd.UPDATE)
        count = passed.steps
        if self.steps_end_at is StepEnd.UPDATE:
            count = self._rounds.pass_updates(passed.updates - is_open)
        self.at_fetch = True
        if count:
            self.held.append(gap)
            # a step is timed from here on only if the gap has ended where one begins
            begins_with = {StepEnd.FETCH: layout.FETCH_BEGIN, StepEnd.API: layout.STEP}.get(self.steps_end_at)
            joined, gap = self._join_held(), Step(timed=place == begins_with)
            joined.phases = {COUNTED: joined.total_ns}
            joined.count, joined.timed, joined.whole, joined.slowed = count, False, True, False
            self.ended.append(joined)
        more = self._rounds.open if self.are_rounds else len(self.held)
        self.held += [Step(timed=False) for _ in range(more - len(self.held))]
        return gap

    def _decide_if_known(self) -> None:
        if not self.optimizer_seen:
            most, longest_ns = _EXPECTED_UPDATE if self.optimizer_expected else _BACKWARDS
        elif not self.train_fetches:
            most, longest_ns = _UPDATES
        else:  # the next backward shows whether this fetch is of a training batch
            most, longest_ns = _FETCHED_UPDATES if self.held[-1].after_fetch else _BATCH_UPDATES
        is_enough = len(self.held) >= most or self.held[-1].end_ns - self.held[0].end_ns >= longest_ns
        if self.train_fetches >= 2:
            if self.optimizer_seen or is_enough:
                self._set_step_end(StepEnd.FETCH)
        elif is_enough or (self._rounds.are_decided and self.optimizer_seen and not self.train_fetches):
            self._set_step_end(StepEnd.UPDATE)

    def _set_step_end(self, step_end: StepEnd) -> None:
        """Set what ends a step, now that it is known or has changed."""
        self.steps_end_at = step_end
        if step_end is StepEnd.UPDATE:
            self._end_rounds()
            return
        held, self.held = self.held, []
        for piece in held:
            self.held.append(piece)
            if piece.after_fetch:
                self.end_step()

    def _end_rounds(self) -> None:
        """Make a step of each complete round of updates, and of each update outside a round."""
        held, size = self.held, self._rounds.size
        whole = len(held) - self._rounds.open
        alone = whole % size
        self.ended += [piece for piece in held[:alone] if piece.is_step]
        for at in range(alone, whole, size):
            self.held = held[at : at + size]
            self.end_step()
        self.held = held[whole:]

    def _join_held(self) -> Step:
        first, *later = self.held
        for piece in later:
            first.absorb(piece)
        self.held = []
        return first


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
        if optimizer in self._optimizers and not self.total_backwards:  # gradients come from elsewhere
            self._close_update()
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
