"""Markers of torch.compile's work become one record a window."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

from tuimon.agent.ring.reader import RingReader
from tuimon.agent.torch_compat.compilations import BACKWARD, COMPILED, RECOMPILED, unpacked
from tuimon.records import Compiler, CompilerEvents, CompilerWork
from tuimon.text import plain

_TIMED = (BACKWARD, COMPILED, RECOMPILED)
_KNOWN: dict[str, CompilerWork] = {what: what for what in get_args(CompilerWork)}
#: Beyond is damage.
_LIMIT = 1 << 60


class CompilerTracker:
    """Adds up what comes in a window."""

    def __init__(self, reader: RingReader) -> None:
        self._reader = reader
        self._sums: dict[str, tuple[int, int]] = {}  # by the marker's name: count, ns

    def add_marker(self, flag: int, value: int) -> None:
        """``flag``: id of a name that says what it was, ``value``: how long that took, or how often it happened."""
        name = self._reader.name(flag)
        if not 0 <= value < _LIMIT or not name:
            return
        count, total_ns = self._sums.get(name, (0, 0))
        is_timed = name.startswith(_TIMED)
        self._sums[name] = (count + 1, total_ns + value) if is_timed else (count + value, 0)

    def skip_past(self) -> None:
        """Drop what was compiled before; what holds on stays."""
        self._sums = {name: sums for name, sums in self._sums.items() if not name.startswith(_TIMED)}

    def records(self, t: float, pid: int, window_s: float) -> Iterator[Compiler]:
        """The record of a window in which something came."""
        events = [found for name, sums in self._sums.items() if (found := _events(name, *sums)) is not None]
        self._sums = {}
        if events:
            yield Compiler(t=t, pid=pid, window_s=window_s, events=events)


def _events(name: str, count: int, total_ns: int) -> CompilerEvents | None:
    event = unpacked(name)
    what = _KNOWN.get(event.what) if event is not None else None
    if event is None or what is None or count < 1:
        return None
    file, line, function = event.code
    return CompilerEvents(
        what, count, total_ns, plain(file), line, plain(function), plain(event.reason), plain(event.guarded)
    )
