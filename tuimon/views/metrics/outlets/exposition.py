"""Snapshots in the formats that Prometheus reads, by its own client library; and ``--prometheus-textfile``."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from typing import TypeAlias

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from tuimon.views.metrics.metric import Distribution, Metric, Sample, label_value
from tuimon.views.metrics.outlets.outlet import Condition, Periodic
from tuimon.views.metrics.snapshot import Snapshot, Snapshots
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


#: Seconds between two files: node_exporter is usually scraped every 15 to 60 s.
PERIOD_S = 5.0
#: node_exporter runs as a user of its own. The metrics hold figures, the name of the host and that of the run.
_MODE = 0o644


class Textfile(Periodic):
    """Replaces the file as a whole, so that a reader finds the one before or this one. The end of the run removes it.

    A file that stayed would have node_exporter report a run that is over as if it went on.
    """

    def __init__(self, snapshots: Snapshots, path: str) -> None:
        super().__init__(snapshots, "textfile", PERIOD_S)
        self._path = os.path.abspath(path)
        # node_exporter joins all files of its folder, and drops what two of them have alike
        self._name = label_value(os.path.basename(path).removesuffix(".prom"))
        self._written = False

    def send(self, snapshot: Snapshot) -> Condition:
        """Write the file anew."""
        try:
            replace_file(self._path, text_of(snapshot, (("textfile", self._name),)))
        except OSError as error:
            return Condition(f"{self._path} cannot be written: {error.strerror}", works=False)
        self._written = True
        return Condition(f"written to {self._path}")

    def end(self) -> None:
        """Remove the file, if it is ours."""
        if self._written:
            with contextlib.suppress(OSError):
                os.unlink(self._path)


def replace_file(path: str, content: bytes) -> None:
    """Write ``content`` to ``path`` in one go, readable for all. Raises OSError, and then leaves nothing behind."""
    handle, beside = tempfile.mkstemp(prefix=".tuimon-", suffix=".tmp", dir=os.path.dirname(path))
    try:
        with open(handle, "wb") as file:
            os.fchmod(handle, _MODE)
            file.write(content)
        os.replace(beside, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise
