"""``--otlp``: metrics to a collector of OpenTelemetry, by its SDK, over HTTP.

The SDK's own instruments would count by themselves; here everything is counted already, in the session. So its data
model is filled with what a snapshot holds, and its exporter sends that.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from importlib.metadata import version
from urllib.parse import urlsplit

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import export as otel
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from tuimon.views.metrics.metric import Distribution, Metric, Sample
from tuimon.views.metrics.outlet import Condition, Periodic
from tuimon.views.metrics.snapshot import Snapshot, Snapshots
from tuimon.views.metrics.table import STEP_BOUNDS

#: Seconds between two sends, unless OTEL_METRIC_EXPORT_INTERVAL (in ms) says otherwise: as often as most scrape.
_PERIOD_S = 15.0
_LEAST_PERIOD_S = 1.0
#: Seconds until a collector that does not answer is given up; the next period sends newer figures.
_TIMEOUT_S = 5.0
_PATH = "/v1/metrics"
_CUMULATIVE = otel.AggregationTemporality.CUMULATIVE


class OtlpSender(Periodic):
    """Sends the latest snapshot. Nothing is kept for later: sums are of the whole run, so none is lost by a gap."""

    def __init__(self, snapshots: Snapshots, url: str) -> None:
        super().__init__(snapshots, "otlp", _period_s())
        self._where = endpoint(url)
        self._exporter: OTLPMetricExporter | None = None
        quiet = logging.getLogger("opentelemetry")  # it would write on the screen
        quiet.addHandler(logging.NullHandler())
        quiet.propagate = False

    def close(self, timeout_s: float) -> None:
        """Close as usual, but end retries at once."""
        self._closing.set()
        self._thread.join(timeout_s)
        if self._thread.is_alive() and self._exporter is not None:
            self._exporter.shutdown()

    def send(self, snapshot: Snapshot) -> Condition:
        """Send one snapshot."""
        if self._exporter is None:  # connections are made on this thread: they never hold up the monitor
            self._exporter = OTLPMetricExporter(endpoint=self._where, timeout=_TIMEOUT_S)
        result = self._exporter.export(data_of(snapshot), timeout_millis=_TIMEOUT_S * 1e3)
        if result is otel.MetricExportResult.SUCCESS:
            return Condition(f"sent to {shown(self._where)}")
        return Condition(f"{shown(self._where)} does not accept the metrics; trying again", works=False)


def endpoint(url: str) -> str:
    """A collector's address with the path for metrics, unless it has a path of its own."""
    parts = urlsplit(url)
    return parts._replace(path=_PATH).geturl() if parts.path in ("", "/") else url


def shown(url: str) -> str:
    """An address without what may be secret in it: user, password, query."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def data_of(snapshot: Snapshot) -> otel.MetricsData:
    """A snapshot in the SDK's data model."""
    instance = f"{snapshot.host}:{os.getpid()}"  # several tuimons of a host are several sources
    about = {
        "service.name": "tuimon",
        "service.instance.id": instance,
        "host.name": snapshot.host,
        "tuimon.run": snapshot.run,
    }
    resource = Resource.create({name: text for name, text in about.items() if text})
    metrics = [_metric(metric, samples, snapshot) for metric, samples in snapshot.families]
    scope = otel.ScopeMetrics(InstrumentationScope("tuimon", version("tuimon")), metrics, "")
    return otel.MetricsData([otel.ResourceMetrics(resource, [scope], "")])


def _metric(metric: Metric, samples: tuple[Sample, ...], snapshot: Snapshot) -> otel.Metric:
    data: otel.Sum | otel.Gauge | otel.Histogram
    if metric.kind == "histogram":
        data = otel.Histogram(list(_histogram_points(samples, snapshot)), _CUMULATIVE)
    elif metric.kind == "gauge":
        data = otel.Gauge(list(_number_points(samples, snapshot)))
    else:
        points = list(_number_points(samples, snapshot))
        data = otel.Sum(points, _CUMULATIVE, is_monotonic=metric.kind == "counter")
    return otel.Metric(metric.name, metric.help, metric.unit, data)


def _number_points(samples: tuple[Sample, ...], snapshot: Snapshot) -> Iterator[otel.NumberDataPoint]:
    for sample in samples:
        if not isinstance(sample.value, Distribution):
            times = {"start_time_unix_nano": snapshot.start_unix_ns, "time_unix_nano": snapshot.unix_ns}
            yield otel.NumberDataPoint(attributes=_attributes(sample), value=sample.value, **times)


def _histogram_points(samples: tuple[Sample, ...], snapshot: Snapshot) -> Iterator[otel.HistogramDataPoint]:
    for sample in samples:
        if isinstance(sample.value, Distribution):
            yield otel.HistogramDataPoint(
                attributes=_attributes(sample),
                start_time_unix_nano=snapshot.start_unix_ns,
                time_unix_nano=snapshot.unix_ns,
                count=sum(sample.value.counts),
                sum=sample.value.total,
                bucket_counts=sample.value.counts,
                explicit_bounds=STEP_BOUNDS,
                min=None,  # type: ignore[arg-type,unused-ignore]  # (not known of a whole run: optional on the wire)
                max=None,  # type: ignore[arg-type,unused-ignore]
            )


def _attributes(sample: Sample) -> dict[str, str]:
    attributes = dict(sample.metric.constants)
    for label, value in zip(sample.metric.labels, sample.labels, strict=True):
        attributes |= dict.fromkeys(label.otel_names, value)
    return attributes


def _period_s() -> float:
    try:
        return max(float(os.environ["OTEL_METRIC_EXPORT_INTERVAL"]) / 1e3, _LEAST_PERIOD_S)
    except (KeyError, ValueError):
        return _PERIOD_S
