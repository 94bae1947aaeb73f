"""The machine's memory, and which processes of the run take more and more of it."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from tuimon.records import MachineMemory, Threads

#: Over so long a process's growth is measured, from at least so many looks at it.
SPAN_S = 120.0
_EVERY_S = 4.0
_LOOKS = 4


class Growth(NamedTuple):
    """A process whose resident memory grows."""

    pid: int
    rss_bytes: int
    bytes_per_s: float


class MachineTable:
    """Folds MachineMemory records, and the resident memory of the run's processes."""

    def __init__(self) -> None:
        self.latest: MachineMemory | None = None
        self._rss: dict[int, deque[tuple[float, int]]] = {}

    def add_memory(self, record: MachineMemory) -> None:
        """The machine at one moment."""
        self.latest = record

    def add_threads(self, record: Threads) -> None:
        """A process's resident memory; one look in a few seconds is kept."""
        if record.rss_bytes is None:
            return
        looks = self._rss.setdefault(record.pid, deque(maxlen=int(SPAN_S / _EVERY_S) + 1))
        if not looks or record.t - looks[-1][0] >= _EVERY_S:
            looks.append((record.t, record.rss_bytes))
        while looks[0][0] < record.t - SPAN_S:
            looks.popleft()

    def forget(self, pid: int) -> None:
        """A process has ended."""
        self._rss.pop(pid, None)

    def growing(self) -> list[Growth]:
        """Processes that have grown from the first half of their looks to the second, the fastest first."""
        found = (self._growth(pid, list(looks)) for pid, looks in self._rss.items() if len(looks) >= _LOOKS)
        return sorted((growth for growth in found if growth is not None), key=lambda growth: -growth.bytes_per_s)

    def _growth(self, pid: int, looks: list[tuple[float, int]]) -> Growth | None:
        half = len(looks) // 2
        early, late = looks[:half], looks[half:]
        if max(rss for _, rss in early) >= min(rss for _, rss in late):
            return None  # it goes up and down: a cache, or a loader at work
        (from_s, from_bytes), (to_s, to_bytes) = looks[0], looks[-1]
        return Growth(pid, to_bytes, (to_bytes - from_bytes) / (to_s - from_s))
