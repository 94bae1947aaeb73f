"""Snapshots in the formats that Prometheus reads, by its own client library."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from typing import TypeAlias

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from tuimon.views.metrics.metric import Distribution, Metric, Sample
from tuimon.views.metrics.snapshot import Snapshot
from tuimon.views.metrics.table import STEP_BOUNDS

_BOUNDS = (*map(str, STEP_BOUNDS), "+Inf")

#: Names and values.
Labels: TypeAlias = tuple[tuple[str, str], ...]
Family: TypeAlias = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily


class Collector:
    """The collector that the library reads at each scrape."""

    def __init__(self, snapshot: Callable[[], Snapshot | None], more: Labels) -> None:
        self._snapshot = snapshot
        self._more = more

    def collect(self) -> Iterator[Family]:
        """The families of one snapshot; none before the first."""
        snapshot = self._snapshot()
        for metric, samples in snapshot.families if snapshot is not None else ():
            yield family_of(metric, samples, self._more)


def registry_of(snapshot: Callable[[], Snapshot | None], more: Labels = ()) -> CollectorRegistry:
    """A registry with nothing but these metrics: none of the process that tuimon runs in."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Collector(snapshot, more))
    return registry


def text_of(snapshot: Snapshot, more: Labels = ()) -> bytes:
    """The snapshot in node_exporter's text format; with ``more`` labels and their values on every series."""
    return bytes(generate_latest(registry_of(lambda: snapshot, more)))


def family_of(metric: Metric, samples: Iterable[Sample], more: Labels = ()) -> Family:
    """One metric with its samples."""
    constants = tuple(value for _, value in (*metric.constants, *more))
    make = {"counter": CounterMetricFamily, "histogram": HistogramMetricFamily}.get(metric.kind, GaugeMetricFamily)
    name = metric.prometheus_name.removesuffix("_total")
    labels_of = (*metric.prometheus_labels, *(label for label, _ in more))
    family: Family = make(name, metric.help, labels=labels_of, unit=metric.unit_word)
    for sample in samples:
        labels = (*sample.labels, *constants)
        if isinstance(sample.value, Distribution):
            buckets = list(zip(_BOUNDS, accumulate(sample.value.counts), strict=True))
            family.add_metric(labels, buckets, sample.value.total)
        else:
            family.add_metric(labels, sample.value)
    return family
