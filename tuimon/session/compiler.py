"""Events of torch.compile in each process, folded from Compiler records."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from tuimon.records import Compiler, CompilerEvents, CompilerWork
from tuimon.session.windows import Window

#: Most different events of a process that are held.
_EVENTS = 256

_Key = tuple[str, str, int, str, str, str]


class CompilerStats:
    """The events of one process."""

    def __init__(self) -> None:
        self._window: Window[Compiler] = Window()
        self._run: dict[_Key, CompilerEvents] = {}

    def add_record(self, record: Compiler) -> None:
        """Fold a window."""
        self._window.append(record)
        _add(self._run, record.events)

    def events(self, *whats: CompilerWork) -> list[CompilerEvents]:
        """Those of the whole run, what took longest, or came most often, first."""
        return _of(self._run.values(), whats)

    def recent(self, now_s: float, *whats: CompilerWork) -> list[CompilerEvents]:
        """Those of the last 30 s."""
        self._window.expire(now_s)
        sums: dict[_Key, CompilerEvents] = {}
        for record in self._window.records:
            _add(sums, record.events)
        return _of(sums.values(), whats)


def _of(events: Iterable[CompilerEvents], whats: tuple[CompilerWork, ...]) -> list[CompilerEvents]:
    return sorted((event for event in events if event.what in whats), key=lambda event: (-event.total_ns, -event.count))


def _add(sums: dict[_Key, CompilerEvents], events: Iterable[CompilerEvents]) -> None:
    for event in events:
        key = (event.what, event.file, event.line, event.function, event.reason, event.guarded)
        before = sums.get(key)
        if before is not None:
            sums[key] = replace(before, count=before.count + event.count, total_ns=before.total_ns + event.total_ns)
        elif len(sums) < _EVENTS:
            sums[key] = event
