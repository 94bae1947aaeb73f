"""What a process does beside its steps: it compiles, writes checkpoints, and reads its data from disks."""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from tuimon.records import Compiler, CompilerEvents, CompilerWork
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
