"""The bytes that a training reads from disks in each epoch."""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from typing import NamedTuple

from tuimon.records import DiskReads

#: Stretches of whole epochs that are remembered, and ends of epochs that wait for the next reading.
_STRETCHES, _WAITING = 8, 64
#: Seconds that a stretch lasts at least: a reading every 5 s dates its ends.
_LEAST_S = 20.0


class EpochReads(NamedTuple):
    """Bytes of an epoch, in each of the latest stretches of whole ones, and where they are from; None where unknown."""

    bytes_each: tuple[float, ...]
    mount: str | None
    kind: str | None


class _End(NamedTuple):
    t: float
    epochs: int  # that had ended
    total_bytes: float


class DiskReadStats:
    """Folds the readings of one process, and the ends of its epochs."""

    def __init__(self) -> None:
        self._latest: DiskReads | None = None
        self._epochs = 0
        self._waiting: deque[tuple[float, int]] = deque(maxlen=_WAITING)
        self._ends: deque[_End] = deque(maxlen=_STRETCHES + 1)

    def end_epochs(self, t: float, number: int) -> None:
        """So many epochs have ended."""
        self._epochs += number
        self._waiting.append((t, self._epochs))

    def add_reads(self, record: DiskReads) -> None:
        """Fold a reading: what had been read at the ends of epochs since the last one is interpolated."""
        before, self._latest = self._latest, record
        while self._waiting and self._waiting[0][0] <= record.t:
            ended_s, epochs = self._waiting.popleft()
            if before is None or (self._ends and ended_s - self._ends[-1].t < _LEAST_S):
                continue
            part = max(0.0, ended_s - before.t) / max(record.t - before.t, 1e-9)  # the end may be told after a reading
            read = before.total_bytes + part * (record.total_bytes - before.total_bytes)
            self._ends.append(_End(ended_s, epochs, read))

    def epochs(self) -> EpochReads | None:
        """The latest whole epochs; None before anything was read from a disk."""
        if self._latest is None:
            return None
        ends = pairwise(self._ends)
        each = ((end.total_bytes - begin.total_bytes) / (end.epochs - begin.epochs) for begin, end in ends)
        return EpochReads(tuple(each), self._latest.mount, self._latest.kind)
