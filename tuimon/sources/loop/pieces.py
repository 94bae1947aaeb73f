"""From pieces to steps: finds how many pieces, each ending with an update, make one step."""

from __future__ import annotations

from enum import Enum

from tuimon.agent.ring import layout
from tuimon.agent.ring.layout import BARE_UPDATES, Passed
from tuimon.sources.loop.step import COUNTED, Step

#: Which optimizers stepped in an update.
Optimizers = frozenset[int]
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
#: Before any optimizer step, backwards may accumulate gradients: 32 and more in a step are rare. A loop whose optimizer
#: is not torch's is recognised that much later.
_BACKWARDS = 32, 20_000_000_000
#: The same in a program with an optimizer of torch's, which may never step, or step unseen in compiled code.
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
