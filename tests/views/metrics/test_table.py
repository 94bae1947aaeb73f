"""The table of metrics: names as the conventions ask, each once."""

from __future__ import annotations

import re

import pytest

from tuimon.views.metrics import table
from tuimon.views.metrics.metric import Metric


@pytest.mark.parametrize("metric", table.METRICS, ids=lambda metric: metric.name)
def test_conventions(metric: Metric) -> None:
    assert re.fullmatch(r"(tuimon|hw)(\.[a-z][a-z_]*)+", metric.name)
    assert metric.help.endswith(".") and metric.help[0].isupper() | metric.help[0].isdigit()
    assert metric.unit_word or metric.unit.startswith("{") or metric.kind == "counter"
    labels = metric.prometheus_labels
    assert len(set(labels)) == len(labels)
    assert all(re.fullmatch(r"[a-z_]+|UUID", label) for label in labels)
    assert not {"file", "line", "function", "pid", "path", "quantile", "le"} & set(labels)


def test_conventions_of_opentelemetry_for_gpus() -> None:
    hw = pytest.importorskip("opentelemetry.semconv._incubating.metrics.hw_metrics")
    known = {value for name, value in vars(hw).items() if name.startswith("HW_") and isinstance(value, str)}
    ours = {metric.name for metric in table.METRICS if metric.name.startswith("hw.")}
    assert len(ours) >= 7
    assert ours <= known
