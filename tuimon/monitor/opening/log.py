"""A log, or the logs of a run on several nodes."""

from __future__ import annotations

from collections.abc import Sequence

from tuimon.monitor.monitor import Monitor
from tuimon.monitor.observers import Observer
from tuimon.sources.base import Source
from tuimon.sources.log.joined.opening import open_logs
from tuimon.sources.notices import NoticeSource


def open_log(
    path: str, speed: float | None = None, run: str | None = None, observers: Sequence[Observer] = ()
) -> Monitor:
    """Replay a log, or the logs of a run in a folder, and follow while they are written. Raises NotALog, UsageError."""
    opened = open_logs(path, run, speed)
    sources: list[Source] = [opened.source]
    if opened.notices:
        sources.append(NoticeSource(opened.notices))
    return Monitor(sources, replay=True, observers=observers)
