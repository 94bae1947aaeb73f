"""Batches fetched in a row, before it is known whether those after the first will train as well."""

from __future__ import annotations

from collections.abc import Iterator

from tuimon.agent.ring import layout
from tuimon.sources.loop.evaluation import Times

#: Most batches in a row of a loader that has not trained yet: accumulation in a program's very first step.
_MOST_NEW = 16
#: Most of one that has trained: far more than anybody accumulates.
_MOST = 1024
#: A batch that is evaluated goes through the model before the next is fetched; one that is fetched ahead does not. Less
#: than this part of a forward pass that trains is no forward pass.
_FORWARD_PART = 1 / 3
#: Before the first forward pass is known: no program has so much to do between batches that it fetches ahead.
_LONGEST_NS = 1_000_000_000
#: Loaders remembered that have trained; some programs make one for every epoch.
_LOADERS = 64


class FetchedAhead:
    """Holds the time of such batches: Accelerate is one ahead, a Trainer fetches all that it accumulates over at once.

    Where it is not known yet how long a forward pass takes, the next backward tells whether they were evaluated.
    """

    def __init__(self) -> None:
        self._held: list[tuple[int, Times]] = []  # ns between the batch and the next fetch, and all of its time
        self._loader = 0
        self._evaluating = 0  # iterator of a batch that was none of these; those that follow in its row are none either
        self._forward_ns = 0
        self._trained: dict[int, None] = {}  # loaders

    def __bool__(self) -> bool:
        return bool(self._held)

    def hold(self, iterator: int, times: Times, *, is_first: bool) -> bool:
        """The time of one more, to the next fetch; whether it may have been fetched ahead, for all that is known.

        ``is_first``: of its iterator; a program may have more to do before it begins.
        """
        self._loader = _loader_of(iterator)
        is_first = is_first and iterator != self._evaluating
        gap_ns = sum(ns for label, ns in times if label != "data")
        self._held.append((gap_ns, times))
        if len(self._held) == 1 and is_first:
            return True
        fits = len(self._held) <= (_MOST if self.has_trained else _MOST_NEW)
        if iterator == self._evaluating or not fits or not self._are_short():
            self._evaluating = iterator
            return False
        return True

    @property
    def has_trained(self) -> bool:
        """Whether the loader of those held has trained before."""
        return self._loader in self._trained

    @property
    def may_train_later(self) -> bool:
        """Whether they may train although their iterator has ended, or another is fetched from."""
        return self.has_trained and self._are_short()

    def note_training(self, iterator: int) -> None:
        """A batch of this iterator has trained for sure."""
        self._trained[_loader_of(iterator)] = None
        if len(self._trained) > _LOADERS:
            del self._trained[next(iter(self._trained))]

    def are_trained_on(self, forward_ns: int) -> bool:
        """A backward follows, after this much time since the last fetch: whether those held train, too."""
        known, one = self._forward_ns, len(self._held) == 1
        self._forward_ns = min(forward_ns, 2 * known) if known and forward_ns else forward_ns or known
        return bool(known) or one or self._are_short()

    def take(self) -> Iterator[Times]:
        """The time of each, which are held no more."""
        held, self._held = self._held, []
        return (times for _, times in held)

    def forget(self) -> None:
        """They have trained, or are of no step."""
        self._held.clear()
        self._evaluating = 0

    def _are_short(self) -> bool:
        gaps_ns = [gap_ns for gap_ns, _ in self._held]
        if not self._forward_ns:
            return sum(gaps_ns) < _LONGEST_NS
        return max(gaps_ns, default=0) < _FORWARD_PART * self._forward_ns


def _loader_of(iterator: int) -> int:
    """What its iterators have in common; an unknown loader's have nothing."""
    return iterator >> layout.LOADER_SHIFT or -iterator
