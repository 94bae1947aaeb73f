"""The table of metrics, its dashboard and its page: names as the conventions ask, that exist and are all listed."""

from __future__ import annotations

import json
import re
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from tuimon.views.metrics import table
from tuimon.views.metrics.metric import Metric
from tuimon.views.metrics.table import METRICS


@pytest.mark.parametrize("metric", table.METRICS, ids=lambda metric: metric.name)
def test_conventions(metric: Metric) -> None:
    assert re.fullmatch(r"(tuimon|hw)(_[a-z]+[0-9]*)+", metric.name)
    assert metric.help.endswith(".") and metric.help[0].isupper() | metric.help[0].isdigit()
    assert metric.name.endswith("_total") == (metric.kind == "counter")
    labels = metric.all_labels
    assert len(set(labels)) == len(labels)
    assert all(re.fullmatch(r"[a-z_]+|UUID", label) for label in labels)
    assert not {"file", "line", "function", "pid", "path", "quantile", "le"} & set(labels)


# -- the dashboard and the page


DOCS = Path(__file__).resolve().parents[3] / "docs"
DASHBOARD: dict[str, Any] = json.loads((DOCS / "grafana-dashboard.json").read_text())
PANELS: list[dict[str, Any]] = DASHBOARD["panels"]
#: What Prometheus adds to each scraped series, and to the buckets of histograms.
ADDED = {"instance", "job", "le"}
_NAME = re.compile(r"\b(?:tuimon|hw)_\w+")
_SELECTOR = re.compile(r"\b((?:tuimon|hw)_\w+)\{([^}]*)\}")
_BY = re.compile(r"\b(?:by|on)\s*\(([^)]*)\)")


def exposed() -> dict[str, Metric]:
    """Every series by name."""
    names = {metric.name: metric for metric in METRICS}
    for metric in METRICS:
        if metric.kind == "histogram":
            names |= {f"{metric.name}_{part}": metric for part in ("bucket", "sum", "count")}
            del names[metric.name]
    return names


EXPOSED = exposed()
EXPRESSIONS = [target["expr"] for panel in PANELS for target in panel.get("targets", ())]
VARIABLES = [variable["definition"] for variable in DASHBOARD["templating"]["list"] if "definition" in variable]


@pytest.mark.parametrize("expression", EXPRESSIONS + VARIABLES)
def test_metrics_and_labels_exist(expression: str) -> None:
    names = _NAME.findall(expression)
    assert names and set(names) <= set(EXPOSED)
    for name, matchers in _SELECTOR.findall(expression):
        asked = {matcher.partition("=")[0].rstrip("!~") for matcher in matchers.split(",")}
        assert asked <= {*EXPOSED[name].all_labels, *ADDED}
    known = {label for name in names for label in EXPOSED[name].all_labels}
    for labels in _BY.findall(expression):
        assert set(re.split(r"\s*,\s*", labels)) <= known | ADDED


def test_the_dashboard_hangs_together() -> None:
    assert len({panel["id"] for panel in PANELS}) == len(PANELS) > 20
    for one, other in combinations([panel["gridPos"] for panel in PANELS], 2):
        apart = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        assert apart or one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in PANELS)
    variables = {variable["name"] for variable in DASHBOARD["templating"]["list"]} | {"__rate_interval"}
    assert set(re.findall(r"\$\{?(\w+)", json.dumps(PANELS))) <= variables


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_the_page_lists_every_metric(metric: Metric) -> None:
    labels = ", ".join(f"`{label}`" for label in metric.all_labels) or "–"
    row = f"| `{metric.name}` | {metric.kind} | {labels} | {metric.help} |"
    assert row in (DOCS / "metrics.md").read_text().splitlines(), row
