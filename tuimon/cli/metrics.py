"""The option for metrics, to be scraped by Prometheus."""

from __future__ import annotations

import argparse

from tuimon.errors import UsageError
from tuimon.monitor.observers import Observer


def add_metrics(parser: argparse.ArgumentParser) -> None:
    """Add the option for metrics, of all commands that follow a session."""
    group = parser.add_argument_group("metrics for other systems")
    group.add_argument(
        "--prometheus", metavar="[ADDR:]PORT", help="serve metrics for Prometheus; without ADDR only on 127.0.0.1"
    )


def metrics_of(parsed: argparse.Namespace) -> tuple[Observer, ...]:
    """The view that was requested, not yet begun; none otherwise, and then nothing is imported.

    Raises UsageError before anything is started: a wrong word, or an extra that is not installed.
    """
    if parsed.prometheus is None:
        return ()
    from tuimon.views.metrics.serving import parse_address

    try:
        address = parse_address(parsed.prometheus)
        from tuimon.views.metrics.metrics_view import MetricsView
        from tuimon.views.metrics.prometheus import MetricsServer
        from tuimon.views.metrics.snapshot import Snapshots
    except ValueError as error:
        raise UsageError(f"--prometheus: {error}") from None
    except ImportError as error:
        from tuimon.installation import install_command

        raise UsageError(f"--prometheus needs a package: {error}", install_command("prometheus-client")) from None
    snapshots = Snapshots()
    return (MetricsView(snapshots, MetricsServer(snapshots, address)),)
