"""Events of torch.compile in each process, folded from Compiler records."""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from tuimon.records import Compiler, CompilerEvents, CompilerWork
from tuimon.session.series import EVER, Series
from tuimon.session.windows import Span

#: Most different events of a process that are held.
_EVENTS = 256
#: Windows of each length that a series holds: those of the last 30 s as they were recorded.
_ROWS = 32


class _Stretch(NamedTuple):
    """Windows that follow one another; a row of a ``Series``. Counts: ``2 n`` how often event n came, then its ns."""

    begin_s: float
    end_s: float


class CompilerStats:
    """The events of one process."""

    def __init__(self) -> None:
        self._series = Series(_Stretch, _ROWS)
        self._events: dict[tuple[str, str, int, str, str, str], tuple[int, CompilerEvents]] = {}  # with their numbers

    def add_record(self, record: Compiler) -> None:
        """Fold a window."""
        counts: dict[int, int] = {}
        for event in record.events:
            key = (event.what, event.file, event.line, event.function, event.reason, event.guarded)
            if key not in self._events and len(self._events) >= _EVENTS:
                continue
            number, _ = self._events.setdefault(key, (len(self._events), event))
            counts[2 * number] = counts.get(2 * number, 0) + event.count
            counts[2 * number + 1] = counts.get(2 * number + 1, 0) + event.total_ns
        self._series.append(_Stretch(record.t - record.window_s, record.t), counts)

    def events(self, *whats: CompilerWork, span: Span = EVER) -> list[CompilerEvents]:
        """Those of a span, what took longest, or came most often, first."""
        counts = self._series.counts(span)
        found = [
            replace(event, count=counts[2 * number], total_ns=counts[2 * number + 1])
            for number, event in self._events.values()
            if 2 * number in counts and event.what in whats
        ]
        return sorted(found, key=lambda event: (-event.total_ns, -event.count))
