"""The metrics as a view of the session: feeds the outlets that a command line requests, and reports how they do."""

from __future__ import annotations

import time
from collections.abc import Sequence

from tuimon.diagnosis.finding import Finding
from tuimon.records import Notice
from tuimon.session.session import Session
from tuimon.views.metrics.outlet import Address, Condition, Outlet
from tuimon.views.metrics.snapshot import Snapshots

#: Seconds that the end of tuimon waits for all outlets together.
CLOSE_S = 2.0


class MetricsView:
    """Is called by the monitor at every tick; only ``close`` waits."""

    name = "metrics"

    def __init__(self, snapshots: Snapshots, outlets: Sequence[Outlet]) -> None:
        self._snapshots = snapshots
        self._outlets = outlets
        self._reported: dict[str, Condition] = {}

    def start(self) -> None:
        """Begin."""
        for outlet in self._outlets:
            outlet.start()

    def show(self, session: Session, findings: Sequence[Finding]) -> list[Notice]:
        """Take a snapshot if one is wanted; what has changed with the outlets."""
        self._snapshots.offer(session, findings)
        notices = []
        for outlet in self._outlets:
            condition = outlet.condition
            if condition is not None and condition != self._reported.get(outlet.name):
                self._reported[outlet.name] = condition
                notices.append(_notice(session.now_s, outlet.name, condition))
        return notices

    def close(self, session: Session, findings: Sequence[Finding]) -> None:
        """Show the end, and end."""
        self._snapshots.offer(session, findings, last=True)
        until_s = time.monotonic() + CLOSE_S
        for outlet in self._outlets:
            outlet.close(max(until_s - time.monotonic(), 0.0))


def _notice(t: float, source: str, condition: Condition) -> Notice:
    return Notice(
        t=t,
        pid=0,
        source=source,
        level="info" if condition.works else "warning",
        message=condition.message,
        hint=condition.hint,
    )


def open_metrics(address: Address | None, textfile: str | None, otlp: str | None) -> MetricsView:
    """The view; nothing is opened before it starts. Raises ImportError where an extra is not installed."""
    snapshots = Snapshots()
    outlets: list[Outlet] = []
    if textfile is not None or address is not None:
        from tuimon.views.metrics.prometheus import MetricsServer, Textfile  # noqa: PLC0415  (an extra)

        outlets += [Textfile(snapshots, textfile)] if textfile is not None else []
        outlets += [MetricsServer(snapshots, address)] if address is not None else []
    if otlp is not None:
        from tuimon.views.metrics.otlp import OtlpSender  # noqa: PLC0415  (an extra)

        outlets.append(OtlpSender(snapshots, otlp))
    return MetricsView(snapshots, outlets)
