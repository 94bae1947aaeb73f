"""Several optimizers that step in turn, each once, such as those of a GAN: one round of them is one step."""

from __future__ import annotations

#: Which optimizers stepped in an update.
Optimizers = frozenset[int]
#: Most updates of a round.
_MOST = 6
#: Whole rounds, one after another, that make a loop of them.
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

    @property
    def size(self) -> int:
        """How many updates make a step; 1 unless there are rounds of more."""
        return len(self._order) if self._count >= _ENOUGH else 1

    @property
    def open(self) -> int:
        """How many updates of an unfinished round have come; 0 where there are no rounds."""
        return self._at if self.size > 1 else 0

    @property
    def are_decided(self) -> bool:
        """True if the updates until now have shown what makes a step; a few more will show it where they have not."""
        return self._count > 0 and (len(self._order) == 1 or self.size > 1)

    def pass_updates(self, count: int) -> int:
        """So many updates were only counted; returns how many steps that ends."""
        if self.size == 1:
            return count
        steps, self._at = divmod(self._at + count, len(self._order))
        return steps

    def add_update(self, optimizers: Optimizers) -> None:
        """Add an update."""
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

    @staticmethod
    def _may_follow(order: tuple[Optimizers, ...], optimizers: Optimizers) -> bool:
        """True if an update may be the next of a round: none before it was by one of these optimizers."""
        known = all(one and one.isdisjoint(optimizers) for one in order)
        return bool(optimizers) and known and 0 < len(order) < _MOST
