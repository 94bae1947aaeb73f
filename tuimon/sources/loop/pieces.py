"""From pieces to steps: how many pieces, each ending with an update, make one step; pieces are held back until then."""

from __future__ import annotations

from enum import Enum

from tuimon.agent.ring import layout
from tuimon.agent.ring.layout import BARE_UPDATES, Passed
from tuimon.sources.loop.step import COUNTED, Step

#: Which optimizers stepped in an update.
Optimizers = frozenset[int]
#: Most updates of a round.
_MOST = 6
#: Whole rounds, one after another, that show a loop of rounds.
_ENOUGH = 2


class Rounds:
    """Receives the optimizers of each update, in order, and finds the rounds that they make.

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
        """The number of updates of an unfinished round so far; 0 if there are no rounds."""
        return self._at if self.size > 1 else 0

    @property
    def are_decided(self) -> bool:
        """True if the updates until now have shown what makes a step; if not, a few more will."""
        return self._count > 0 and (len(self._order) == 1 or self.size > 1)

    def pass_updates(self, count: int) -> int:
        """Pass a number of updates that were only counted; returns the number of steps that end with them."""
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
        return bool(optimizers) and known and 0 < len(order) < _MOST


class Drive(Enum):
    """The events that bound the steps of a loop."""

    UNKNOWN = "unknown"
    FETCH = "fetch"
    UPDATE = "update"
    API = "api"


#: Pieces of steps are held back up to this number, or for this time (ns) from the end of the first, which may have
#: begun with minutes of set-up. In a loop with an optimizer the first few show whether fetches bound the steps.
_UPDATES = 8, 3_000_000_000
#: ... unless the first has trained on a batch: two models in turn may share that, and the next is one step away.
_BATCH_UPDATES = 8, 20_000_000_000
#: ... and unless a fetch has just begun: only its batch's backward is still to come, however slow the steps are.
_FETCHED_UPDATES = 8, 1_000_000_000_000
#: Backwards before the first optimizer step may accumulate gradients, so that none of them is a step. 32 and more in
#: one step are rare, and a loop whose optimizer is not torch's is recognised that much later.
_BACKWARDS = 32, 20_000_000_000
#: ... less rare if the program has an optimizer of torch's. Only if that never steps, or steps unseen in compiled code,
#: is the loop known so much later.
_EXPECTED_UPDATE = 1024, 120_000_000_000


class Pieces:
    """Receives the finished pieces of a loop, in order; holds them back until it is known which of them make a step."""

    def __init__(self) -> None:
        self.drive = Drive.UNKNOWN
        self.optimizer_seen = False  # one of torch's has stepped, and is not gone
        self.optimizer_expected = False  # the program has one
        self.train_fetches = 0  # fetches that trained, in a row, with few pieces between them
        self.bare = 0  # pieces since the last one that trained on a fetched batch
        self.at_fetch = True  # the latest piece has ended at a fetch
        self.ended: list[Step] = []  # steps that ended since they were last taken
        self.held: list[Step] = []  # pieces of steps that are not finished
        self._rounds = Rounds()  # of the updates of a loop without a DataLoader

    def add(self, piece: Step, optimizers: Optimizers = frozenset()) -> None:
        """The next piece, which ends with an update; steps are made as far as the kind of loop is known."""
        self.held.append(piece)
        self.at_fetch = piece.after_fetch
        if not piece.fetched:
            self.bare += 1
        drive = self.drive
        if drive is Drive.FETCH:
            if self.bare > BARE_UPDATES:
                self._settle_on(Drive.UPDATE)
            elif piece.after_fetch:
                self.end_step()
        elif drive is Drive.API:
            if len(self.held) > BARE_UPDATES:  # the calls have stopped
                self.drive = Drive.UNKNOWN
        else:
            self._rounds.add_update(optimizers)
            if drive is Drive.UNKNOWN:
                self._settle_unknown()
            else:
                self._end_rounds()

    def end_at_fetch(self, rest: Step, time_ns: int) -> bool:
        """A fetch follows ``rest``, backwards without an update; returns whether the step before it ends there."""
        if self.drive not in (Drive.FETCH, Drive.UNKNOWN) or not self.held or not self.train_fetches:
            return False
        piece = self.held[-1]
        piece.absorb(rest)
        piece.after_fetch = self.at_fetch = True
        piece.end_ns = time_ns
        if self.drive is Drive.FETCH:
            self.end_step()
        return True

    def train_on_batch(self) -> None:
        """A backward has used a fetched batch; two in a row make a loop that is driven by its DataLoader.

        Unless the batch was fetched before the update, ahead of its step: such a fetch bounds no steps.
        """
        if not self.at_fetch:
            self.train_fetches = 0
            if self.drive is Drive.FETCH:
                self._settle_on(Drive.UPDATE)
            return
        if self.drive is Drive.UPDATE and self.bare > _UPDATES[0]:
            self.train_fetches = 0  # a validation batch now and then does not drive the loop
        self.train_fetches += 1
        self.bare = 0
        known = self.drive is Drive.UPDATE or (self.drive is Drive.UNKNOWN and self.optimizer_seen)
        if known and self.train_fetches >= 2:
            self._settle_on(Drive.FETCH)

    def see_optimizer(self) -> Step | None:
        """An optimizer has stepped; returns the pieces held back, as one, if they have turned out not to be steps.

        Backwards without an optimizer step may be updates; the first such step shows that they accumulated gradients.
        """
        self.optimizer_seen = True
        if self.drive is not Drive.UNKNOWN or not self.held:
            return None
        self.bare = 0
        return self._join_held()

    def end_step(self) -> None:
        """All that is held was one step."""
        if self.held:
            step = self._join_held()
            if step.counts:
                self.ended.append(step)

    def finish(self) -> None:
        """No piece follows: what was held back is as whole as it will get."""
        if self.drive is Drive.UNKNOWN:
            self._settle_on(Drive.FETCH if self.train_fetches else Drive.UPDATE)
        if self.drive is not Drive.API:
            self.end_step()

    @property
    def are_rounds(self) -> bool:
        """True if several updates make a step."""
        return self.drive is Drive.UPDATE and self._rounds.size > 1

    def pass_gap(self, gap: Step, passed: Passed, place: int, *, is_open: bool) -> Step:
        """``gap``: the time in which boundaries were only counted; returns the piece that goes on behind it.

        ``is_open``: the last update of the gap may go on as well. Steps that the gap has a part of have no times.
        """
        if self.drive is Drive.UNKNOWN:
            self._settle_on(Drive.FETCH if passed.steps else Drive.UPDATE)
        self.bare = passed.updates // passed.steps if passed.steps else self.bare + passed.updates
        if self.drive is Drive.FETCH and self.bare > BARE_UPDATES:
            self._settle_on(Drive.UPDATE)
        count = passed.steps
        if self.drive is Drive.UPDATE:
            count = self._rounds.pass_updates(passed.updates - is_open)
        self.at_fetch = True
        if count:
            self.held.append(gap)
            # a step is timed from here on only if the gap has ended where one begins
            begins_with = {Drive.FETCH: layout.FETCH_BEGIN, Drive.API: layout.STEP}.get(self.drive)
            joined, gap = self._join_held(), Step(timed=place == begins_with)
            joined.phases = {COUNTED: joined.total_ns}
            joined.count, joined.timed, joined.whole, joined.slowed = count, False, True, False
            self.ended.append(joined)
        more = self._rounds.open if self.are_rounds else len(self.held)
        self.held += [Step(timed=False) for _ in range(more - len(self.held))]
        return gap

    def _settle_unknown(self) -> None:
        if not self.optimizer_seen:
            most, longest_ns = _EXPECTED_UPDATE if self.optimizer_expected else _BACKWARDS
        elif not self.train_fetches:
            most, longest_ns = _UPDATES
        else:  # the next backward shows whether this fetch is of a training batch
            most, longest_ns = _FETCHED_UPDATES if self.held[-1].after_fetch else _BATCH_UPDATES
        is_enough = len(self.held) >= most or self.held[-1].end_ns - self.held[0].end_ns >= longest_ns
        if self.train_fetches >= 2:
            if self.optimizer_seen or is_enough:
                self._settle_on(Drive.FETCH)
        elif is_enough or (self._rounds.are_decided and self.optimizer_seen and not self.train_fetches):
            self._settle_on(Drive.UPDATE)

    def _settle_on(self, drive: Drive) -> None:
        """The kind of loop is known now, or has changed."""
        self.drive = drive
        if drive is Drive.UPDATE:
            self._end_rounds()
            return
        held, self.held = self.held, []
        for piece in held:
            self.held.append(piece)
            if piece.after_fetch:
                self.end_step()

    def _end_rounds(self) -> None:
        """Each round of updates that has come to its end was a step, as was each update that belongs to no round."""
        held, size = self.held, self._rounds.size
        whole = len(held) - self._rounds.open
        alone = whole % size
        self.ended += [piece for piece in held[:alone] if piece.counts]
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
