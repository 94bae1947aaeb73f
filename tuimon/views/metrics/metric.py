"""A metric: its name, labels and help, and its value at one moment."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

#: Longest label value, in characters: names of GPUs take about 40, UUIDs of MIG instances 100.
_LONGEST_VALUE = 128


class Metric(NamedTuple):
    """One metric, by the names that Prometheus reads; ``constants`` are labels whose value never differs."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ()
    constants: tuple[tuple[str, str], ...] = ()

    @property
    def all_labels(self) -> tuple[str, ...]:
        """Names of all labels, those of the constants last."""
        return (*self.labels, *(name for name, _ in self.constants))


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
