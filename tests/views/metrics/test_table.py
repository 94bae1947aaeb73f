"""The table of metrics: names as the conventions ask, each once."""

from __future__ import annotations

import re

import pytest

from tuimon.views.metrics import table
from tuimon.views.metrics.metric import Metric


def test_names_are_unique_in_both_spellings() -> None:
    for names in ([m.name for m in table.METRICS], [m.prometheus_name for m in table.METRICS]):
        assert len(names) == len(set(names)) > 40


@pytest.mark.parametrize(
    ("metric", "name"),
    [
        (table.STEP, "tuimon_step_seconds"),
        (table.PHASE_TIME, "tuimon_phase_seconds_total"),
        (table.FINDING, "tuimon_finding"),
        (table.STEPS, "tuimon_steps_total"),
        (table.GPU_UTILIZATION, "hw_gpu_utilization_ratio"),
        (table.GPU_MEMORY, "hw_gpu_memory_usage_bytes"),
        (table.GPU_ENERGY, "hw_energy_joules_total"),
        (table.GPU_PCIE, "tuimon_gpu_pcie_bytes_per_second"),
        (Metric("x.seconds", "gauge", "s", "h"), "x_seconds"),
        (Metric("x", "updown", "1", "h"), "x"),
    ],
)
def test_prometheus_spelling(metric: Metric, name: str) -> None:
    assert metric.prometheus_name == name


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
