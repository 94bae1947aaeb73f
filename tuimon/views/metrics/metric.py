"""A metric: its name, unit, labels and help, the value at one moment, and how Prometheus spells it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

Kind = Literal["counter", "gauge", "updown", "histogram"]

#: Units as OpenTelemetry writes them (UCUM), and the words that Prometheus's names end in. ``{...}`` counts things.
_UNITS = {
    "s": "seconds",
    "{sample}/s": "per_second",
    "{token}/s": "per_second",
    "{operation}/s": "per_second",
    "By": "bytes",
    "By/s": "bytes_per_second",
    "Cel": "celsius",
    "Hz": "hertz",
    "J": "joules",
    "W": "watts",
}
#: Longest label value, in characters: names of GPUs take about 40, UUIDs of MIG instances 100.
_LONGEST_VALUE = 128


class Label(NamedTuple):
    """A label of Prometheus, and the attributes of OpenTelemetry that hold the same value."""

    name: str
    attributes: tuple[str, ...] = ()

    @property
    def otel_names(self) -> tuple[str, ...]:
        """Its names in OpenTelemetry."""
        return self.attributes or (self.name,)


class Metric(NamedTuple):
    """One metric; ``name`` is OpenTelemetry's, from which that of Prometheus follows by its published rules.

    ``updown`` is OpenTelemetry's sum that may also fall; for Prometheus it is a gauge. ``constants`` are attributes
    that never differ, as conventions require them.
    """

    name: str
    kind: Kind
    unit: str
    help: str
    labels: tuple[Label, ...] = ()
    constants: tuple[tuple[str, str], ...] = ()

    @property
    def unit_word(self) -> str:
        """The unit in Prometheus's words; empty for what is counted."""
        if self.unit == "1":
            return "ratio" if self.kind == "gauge" else ""
        return _UNITS.get(self.unit, "")

    @property
    def prometheus_name(self) -> str:
        """``tuimon.phase`` in seconds, a counter: ``tuimon_phase_seconds_total``."""
        words = [self.name.replace(".", "_")]
        if self.unit_word and not words[0].endswith(f"_{self.unit_word}"):
            words.append(self.unit_word)
        if self.kind == "counter":
            words.append("total")
        return "_".join(words)

    @property
    def prometheus_labels(self) -> tuple[str, ...]:
        """Names of all labels, those of the constants last."""
        constants = tuple(name.replace(".", "_") for name, _ in self.constants)
        return tuple(label.name for label in self.labels) + constants


class Distribution(NamedTuple):
    """The value of a histogram: how many of all that was counted lie up to each bound, and beyond the last."""

    counts: tuple[int, ...]  # one more than there are bounds, not added up
    total: float  # sum of all values


class Sample(NamedTuple):
    """A metric's value for one set of label values."""

    metric: Metric
    labels: tuple[str, ...]
    value: float | Distribution


def known(metric: Metric, labels: tuple[str, ...], value: float | None, unit: float = 1.0) -> Iterator[Sample]:
    """The sample of a value in ``unit`` of the metric's own; nothing where it was not measured."""
    if value is not None:
        yield Sample(metric, labels, value * unit)


def label_value(text: str) -> str:
    """A text from outside as a label value."""
    return text[:_LONGEST_VALUE]
