"""What the batches of each loader are used for: a backward uses them, or none does."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

#: More batches in a row without a backward than this are evaluated, unless a backward follows all the same.
_MOST_AHEAD = 16


class _Uses(Struct):
    """Of one loader's batches."""

    trained: int = 0
    evaluated: int = 0
    unused: int = 0  # fetched since the last backward
    has_ended: bool = False  # the iterator of these

    def settle(self, *, trains: bool) -> None:
        """It is known whether a backward has used them."""
        if trains:
            self.trained += self.unused
        else:
            self.evaluated += self.unused
        self.unused, self.has_ended = 0, False


class LoaderRoles:
    """Follows batches from fetch to backward, of whatever threads.

    A thread's own loop cannot decide that: batches may be fetched ahead in one thread and trained on in another.
    Several in a row may be fetched before the first trains: those of the loader that was fetched from last.
    """

    def __init__(self) -> None:
        self._uses: dict[int, _Uses] = {}  # by loader
        self._open: dict[int, _Uses] = {}  # of those with unused batches
        self._latest = 0
        self._has_ended = False  # an iterator of these

    def add_fetches(self, loader: int, count: int = 1) -> None:
        """So many batches of a loader, without a backward between them."""
        if self._has_ended:
            self._settle_ended()
        uses = self._open.get(loader)
        if uses is None:
            uses = self._open[loader] = self._uses.setdefault(loader, _Uses())
        uses.unused += count
        self._latest = loader

    def end_iterator(self, loader: int) -> None:
        """A fetch that found no batch."""
        if loader in self._open:
            self._open[loader].has_ended = self._has_ended = True

    def add_backward(self) -> None:
        """It trains on what was fetched last; of another loader on one batch at most."""
        if not self._open:
            return
        for loader, uses in self._open.items():
            uses.settle(trains=loader == self._latest or (uses.unused == 1 and not uses.has_ended))
        self._open.clear()
        self._has_ended = False

    def role(self, loader: int) -> Literal["train", "eval"] | None:
        """What its batches were mostly used for; None where it is not known yet."""
        uses = self._uses.get(loader)
        if uses is None:
            return None
        evaluated = uses.evaluated + (uses.unused if uses.has_ended or uses.unused > _MOST_AHEAD else 0)
        if not uses.trained and not evaluated:
            return None
        return "train" if uses.trained >= evaluated else "eval"

    def _settle_ended(self) -> None:
        """Another fetch, and no backward before it: what an iterator has given until its end was evaluated."""
        self._has_ended = False
        for loader, uses in [*self._open.items()]:
            if uses.has_ended:
                uses.settle(trains=False)
                del self._open[loader]
