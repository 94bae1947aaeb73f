"""The sources of one run together: started, polled and stopped at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TYPE_CHECKING

from tuimon.monitor.poller import STOP_TIMEOUT_S, Poller, RecordQueue
from tuimon.sources.base import Source

if TYPE_CHECKING:
    from tuimon.sources.base import Backlog, Suspicion


class Pollers:
    """A poller for each source, all of which put their records on one queue."""

    def __init__(
        self, sources: Iterable[Source], records: RecordQueue, clock: Callable[[], float], *, lossless: bool
    ) -> None:
        """``sources``: an iterator makes each, and loads what it is made of, when reading begins."""
        self._records = records
        self._clock = clock
        self._lossless = lossless
        self.pollers: list[Poller] = []
        self._later: Iterator[Source] | None = sources if isinstance(sources, Iterator) else None
        if self._later is None:
            self._add(sources)

    @property
    def are_done(self) -> bool:
        """True if all sources have ended; not before all are made."""
        return self._later is None and all(poller.done.is_set() for poller in self.pollers)

    @property
    def unfinished(self) -> list[str]:
        """The names of the sources that have not ended."""
        return [poller.source.name for poller in self.pollers if not poller.done.is_set()]

    @property
    def dropped(self) -> int:
        """Records that were lost because the queue was full."""
        return sum(poller.dropped for poller in self.pollers)

    @property
    def backlog(self) -> Backlog | None:
        """How far a source has read of what was written before; None where none has more to read."""
        each = (poller.source.backlog for poller in self.pollers)
        return next((backlog for backlog in each if backlog is not None), None)

    def start(self) -> None:
        """Begin reading."""
        if self._later is not None:
            self._add(self._later)
            self._later = None
        for poller in self.pollers:
            poller.start()

    def _add(self, sources: Iterable[Source]) -> None:
        for source in sources:
            self.pollers.append(Poller(source, self._records, self._clock, lossless=self._lossless))

    def request_stop(self) -> None:
        """Let the sources read one last time and close; does not wait for them."""
        for poller in self.pollers:
            poller.request_stop()

    def stop(self) -> None:
        """Stop after one last read, or without those that take longer than ``STOP_TIMEOUT_S``."""
        self.request_stop()
        until_s = time.monotonic() + STOP_TIMEOUT_S
        for poller in self.pollers:
            poller.stop(max(until_s - time.monotonic(), 0.0))

    def limit_sampling(self, max_cpu_ratio: float) -> None:
        """Let sampling stacks use at most this much of a core from now on."""
        for poller in self.pollers:
            poller.source.limit_cpu(max_cpu_ratio)

    def sample_first(self, pid: int | None) -> None:
        """See ``Source``."""
        for poller in self.pollers:
            poller.source.sample_first(pid)

    def focus_on(self, pids: Collection[int]) -> None:
        """See ``Source``."""
        for poller in self.pollers:
            poller.source.focus_on(pids)

    def record_memory(self) -> bool:
        """Record the allocator's history of the next steps; False where no source can give it."""
        return any(poller.source.record_memory() for poller in self.pollers)

    def inspect(self, suspicion: Callable[[], Suspicion | None]) -> None:
        """See ``Source``."""
        for poller in self.pollers:
            poller.source.inspect(suspicion)
