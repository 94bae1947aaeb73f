"""Which of a thread's time was evaluation: fetched batches that no backward has used."""

from __future__ import annotations

#: Stretches remembered since the last backward or update; of a longer evaluation the rest is not taken back.
_STRETCHES = 4096
#: Iterators remembered since then; a program that only evaluates makes one each time.
_ITERATORS = 64

#: Stretches of time: label and ns.
Times = list[tuple[str, int]]


class EvaluationFinder:
    """Remembers the time since the last backward or update, and finds out how much of it was evaluation.

    A second fetch of one iterator without a backward shows that all time since its first fetch was evaluation.
    """

    def __init__(self) -> None:
        self._times: Times = []
        self._fetched: dict[int, int] = {}  # iterator -> index into the times where its last fetch began
        self._iter_at: int | None = None  # index into the times where the open iter() began
        self._started: dict[int, int] = {}  # that of iterators without a fetch yet
        self._begun: int | None = None  # iterator whose first fetch is the latest of all
        self._latest: int | None = None  # iterator of the latest fetch, until one is exhausted
        self.evaluating: int | None = None  # iterator whose last iteration was evaluation

    def add_time(self, label: str, duration_ns: int) -> None:
        """The next stretch."""
        if len(self._times) < _STRETCHES:
            self._times.append((label, duration_ns))

    def begin_iter(self) -> None:
        """Workers are being started."""
        self._iter_at = len(self._times)

    def end_iter(self, iterator: int) -> None:
        """Starting its workers belongs to the iterator's first fetch, should that turn out to be evaluation."""
        at, self._iter_at = self._iter_at, None
        if at is not None and iterator:
            _keep(self._started, iterator, at)

    def turns_from_evaluation(self, iterator: int) -> bool:
        """True if the last iteration was evaluation, and this fetch is of another iterator."""
        return self.evaluating is not None and self.evaluating != iterator

    def is_second_fetch(self, iterator: int) -> bool:
        """True if the latest fetch of all was this iterator's first."""
        return self._begun == iterator

    def latest_batch(self, iterator: int) -> tuple[int, int]:
        """How long (ns) the iterator's latest batch was fetched, and how long it has been in use since."""
        times = self._times[self._fetched.get(iterator, len(self._times)) :]
        fetched_ns = sum(duration_ns for label, duration_ns in times if label == "data")
        return fetched_ns, sum(duration_ns for _, duration_ns in times) - fetched_ns

    def begin_fetch(self, iterator: int, *, may_train: bool = False) -> Times | None:
        """The time that turns out to be evaluation; None where this fetch proves nothing.

        ``may_train``: the batch before may have been fetched to train later.
        """
        self._begun, self._latest = (iterator if self._latest != iterator else None), iterator
        previous = self._fetched.pop(iterator, None)
        evaluated = None if previous is None else self._pop_times(previous)
        self.evaluating = None if previous is None or may_train else iterator
        _keep(self._fetched, iterator, self._started.pop(iterator, len(self._times)))
        return evaluated

    def turn_to(self, iterator: int) -> None:
        """The batches of this iterator that were taken to train later were evaluated."""
        self.evaluating = iterator

    def take_last(self) -> Times:
        """The time since the last fetch of the iterator that evaluates; nothing where that is exhausted."""
        at = None if self.evaluating is None else self._fetched.pop(self.evaluating, None)
        return [] if at is None else self._pop_times(at)

    def exhaust(self) -> Times:
        """An iterator is exhausted: if it evaluated, its last wait was evaluation too."""
        at = None if self.evaluating is None else self._fetched.get(self.evaluating)
        self._begun = self._latest = None
        self._fetched.clear()
        return [] if at is None else self._pop_times(at)

    def forget_times(self) -> None:
        """Time until now can no longer turn out to be evaluation."""
        self._times.clear()
        self._started.clear()
        self._iter_at = None

    def forget_all(self) -> None:
        """A backward or an update: what was fetched until now trained."""
        self.forget_times()
        self._fetched.clear()

    def _pop_times(self, at: int) -> Times:
        popped = self._times[at:]
        del self._times[at:]
        return popped


def _keep(held: dict[int, int], iterator: int, at: int) -> None:
    """Hold one more; without the oldest where there is no room."""
    if iterator not in held and len(held) >= _ITERATORS:
        del held[next(iter(held))]
    held[iterator] = at
