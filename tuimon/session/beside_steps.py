"""What a process does beside its steps: it compiles, writes checkpoints, and reads its data from disks."""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from typing import NamedTuple

from msgspec.structs import replace

from tuimon.records import Compiler, CompilerEvents, CompilerWork, DiskReads
from tuimon.session.series import EVER, Keys, Series, Span, Stretch

#: Most different events of a process that are held.
_EVENTS = 256
#: Windows of each length that a series holds: those of the last 30 s as they were recorded.
_ROWS = 32


class CompilerStats:
    """The events of one process."""

    def __init__(self) -> None:
        self._series = Series(Stretch, _ROWS)
        self._events = Keys[CompilerEvents](2, _EVENTS)  # how often each came, and its ns; but for these

    def add_record(self, record: Compiler) -> None:
        """Fold a window."""
        events = ((replace(each, count=1, total_ns=0), each.count, each.total_ns) for each in record.events)
        self._series.fold(record, self._events.counts(events))

    def events(self, *whats: CompilerWork, span: Span = EVER) -> list[CompilerEvents]:
        """Those of a span, what took longest, or came most often, first."""
        figures = self._events.figures(self._series.counts(span)).items()
        found = [replace(event, count=n, total_ns=ns) for event, (n, ns) in figures if event.what in whats]
        return sorted(found, key=lambda event: (-event.total_ns, -event.count))


class Checkpoints(NamedTuple):
    """The checkpoints since the first steps: bursts of writing, and the time in which samples show the saving of one.

    Worked example: ten bursts of 1 GB, and 4 s in which checkpoints are saved. So each takes 400 ms, in which 2.5 GB
    are written a second.
    """

    number: int | None  # None: too close to be told apart
    size_bytes: int
    seconds: float
    file_system: str

    @property
    def each_bytes(self) -> float | None:
        """Bytes of one of them."""
        return self.size_bytes / self.number if self.number else None

    @property
    def each_ms(self) -> float | None:
        """How long one of them holds the training up."""
        return 1e3 * self.seconds / self.number if self.number else None

    @property
    def bytes_per_s(self) -> float:
        """Bytes written in a second of these."""
        return self.size_bytes / self.seconds


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
