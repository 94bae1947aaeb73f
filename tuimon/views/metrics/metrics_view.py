"""The metrics as a view of the session: feeds the server that a command line requests, and reports how it does."""

from __future__ import annotations

from collections.abc import Sequence

from tuimon.diagnosis.finding import Finding
from tuimon.records import Notice
from tuimon.session.session import Session
from tuimon.views.metrics.prometheus import MetricsServer
from tuimon.views.metrics.serving import Condition
from tuimon.views.metrics.snapshot import Snapshots

#: Seconds that the end of tuimon waits for the server.
CLOSE_S = 2.0


class MetricsView:
    """Is called by the monitor at every tick; only ``close`` waits."""

    name = "metrics"

    def __init__(self, snapshots: Snapshots, server: MetricsServer) -> None:
        self._snapshots = snapshots
        self._server = server
        self._reported: Condition | None = None

    def start(self) -> None:
        """Begin."""
        self._server.start()

    def show(self, session: Session, findings: Sequence[Finding]) -> list[Notice]:
        """Take a snapshot if one is wanted; what has changed with the server."""
        self._snapshots.offer(session, findings)
        condition = self._server.condition
        if condition is None or condition == self._reported:
            return []
        self._reported = condition
        return [
            Notice(
                t=session.now_s,
                pid=0,
                source="prometheus",
                level="info" if condition.works else "warning",
                message=condition.message,
                hint=condition.hint,
            )
        ]

    def close(self, session: Session, findings: Sequence[Finding]) -> None:
        """Show the end, and end."""
        self._snapshots.offer(session, findings, last=True)
        self._server.close(CLOSE_S)
