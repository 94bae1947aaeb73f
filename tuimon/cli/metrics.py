"""Options for metrics: to be scraped by Prometheus, read by node_exporter, or sent by OpenTelemetry."""

from __future__ import annotations

import argparse
import os

from tuimon.errors import UsageError
from tuimon.monitor.observers import Observer

#: Those that take a value.
METRICS_OPTIONS = ("--prometheus", "--prometheus-textfile", "--otlp")


def add_metrics(parser: argparse.ArgumentParser) -> None:
    """Add the options for metrics, of all commands that follow a session."""
    group = parser.add_argument_group("metrics for other systems")
    group.add_argument(
        "--prometheus", metavar="[ADDR:]PORT", help="serve metrics for Prometheus; without ADDR only on 127.0.0.1"
    )
    group.add_argument(
        "--prometheus-textfile",
        metavar="FILE",
        help="write metrics every 5 s to a *.prom file that everybody may read, for node_exporter's textfile collector",
    )
    group.add_argument("--otlp", metavar="URL", help="send metrics to an OpenTelemetry collector, over HTTP")


def metrics_of(parsed: argparse.Namespace) -> tuple[Observer, ...]:
    """The view that was requested, not yet begun; none otherwise, and then nothing is imported.

    Raises UsageError before anything is started: a wrong word, or an extra that is not installed.
    """
    if parsed.prometheus is None and parsed.prometheus_textfile is None and parsed.otlp is None:
        return ()
    from tuimon.views.metrics.metrics_view import open_metrics
    from tuimon.views.metrics.outlet import parse_address

    if parsed.prometheus_textfile is not None:
        _check_textfile(parsed.prometheus_textfile)
    if parsed.otlp is not None:
        _check_url(parsed.otlp)
    try:
        address = parse_address(parsed.prometheus) if parsed.prometheus is not None else None
        return (open_metrics(address, parsed.prometheus_textfile, parsed.otlp),)
    except ValueError as error:
        raise UsageError(f"--prometheus: {error}") from None
    except ImportError as error:
        extra = "otlp" if "opentelemetry" in (error.name or "") else "prometheus"
        raise UsageError(f"--{extra} needs a package: {error}", f'pip install "tuimon[{extra}]"') from None


def _check_textfile(path: str) -> None:
    if os.path.isdir(path) or not os.path.isdir(os.path.dirname(os.path.abspath(path))):
        raise UsageError(f"--prometheus-textfile: {path} is not a file in an existing folder")


def _check_url(url: str) -> None:
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url)
        whole = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        whole = False
    if not whole:
        raise UsageError(
            f"--otlp: {url!r} is not an address", "For example: --otlp http://127.0.0.1:4318 (OTLP over HTTP)"
        )
