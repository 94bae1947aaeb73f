"""The outlets that a command line requests, as one view."""

from __future__ import annotations

from tuimon.views.metrics.metrics_view import MetricsView
from tuimon.views.metrics.outlets.address import Address
from tuimon.views.metrics.outlets.outlet import Outlet
from tuimon.views.metrics.snapshot import Snapshots


def open_metrics(address: Address | None, textfile: str | None, otlp: str | None) -> MetricsView:
    """The view; nothing is opened before it starts. Raises ImportError where an extra is not installed."""
    snapshots = Snapshots()
    outlets: list[Outlet] = []
    if textfile is not None:
        from tuimon.views.metrics.outlets.textfile import Textfile  # noqa: PLC0415  (an extra)

        outlets.append(Textfile(snapshots, textfile))
    if address is not None:
        from tuimon.views.metrics.outlets.http_server import MetricsServer  # noqa: PLC0415  (an extra)

        outlets.append(MetricsServer(snapshots, address))
    if otlp is not None:
        from tuimon.views.metrics.outlets.otlp import OtlpSender  # noqa: PLC0415  (an extra)

        outlets.append(OtlpSender(snapshots, otlp))
    return MetricsView(snapshots, outlets)
