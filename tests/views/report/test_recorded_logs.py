"""What has to be true of the report of any log, on recorded ones."""

from __future__ import annotations

import html
import math
import re
from typing import Any

import pytest

from tests.recorded_logs import LOGS
from tuimon.diagnosis.reading import fold
from tuimon.diagnosis.verdicts import Verdicts
from tuimon.diagnosis.words import percent
from tuimon.sources.log.reader import read_log
from tuimon.views.report.page import as_html
from tuimon.views.report.summary import Page, report_of

#: The phases that a rule's share is of.
PHASES = {
    "input_bound": ("data",),
    "side_work": ("other",),
    "optimizer_bound": ("optimizer",),
    "compute_bound_cpu": ("forward", "backward", "optimizer"),
}


@pytest.fixture(scope="module", params=LOGS, ids=lambda path: path.name.partition(".")[0])
def page(request: pytest.FixtureRequest) -> Page:
    verdicts = Verdicts()
    session, findings = fold(read_log(str(request.param)), verdicts)
    return Page(report_of(session, findings, "run.jsonl", verdicts.changes), session)


@pytest.fixture(scope="module")
def report(page: Page) -> dict[str, Any]:
    return page.report


def test_headline_share_and_evidence_are_those_of_the_phases_below(report: dict[str, Any]) -> None:
    shares = {phase["name"]: phase["share"] for phase in report["phases"]}
    step_ms = sum(phase["cpu_ms_per_step"] for phase in report["phases"] if phase["name"] != "eval")
    for finding in report["findings"]:
        if finding["rule"] not in PHASES:
            continue
        names = ("eval",) if finding["cause"] == "evaluation" else PHASES[finding["rule"]]
        named = sum(shares[name] for name in names)
        if "gpu_waits_at_most" in finding["evidence"]:  # of that phase, what the GPU idles
            assert finding["share_of_step"] <= named + 1e-9
        elif all(phase["gpu_ms_per_step"] is None for phase in report["phases"]):
            assert finding["share_of_step"] == pytest.approx(named)
        assert percent(finding["share_of_step"]) in finding["headline"]
        assert finding["evidence"].get("step_ms", step_ms) == pytest.approx(step_ms, rel=1e-3, abs=1e-3)


def test_severity_follows_the_gain_and_the_first_finding_gains_most(report: dict[str, Any]) -> None:
    gains = {"critical": [], "warning": []}  # type: dict[str, list[float]]
    for finding in report["findings"]:
        least = finding["speedup_at_least"]
        if least is None or finding["severity"] not in gains:
            continue
        gains[finding["severity"]].append(least)
        assert least >= (1.2 if finding["severity"] == "critical" else 1.05)
    assert all(each == sorted(each, reverse=True) for each in gains.values())
    if any(finding["severity"] in gains for finding in report["findings"]):
        assert report["findings"][0]["severity"] in gains


def test_the_best_fix_gains_no_more_than_the_share_of_the_step_is_worth(report: dict[str, Any]) -> None:
    for finding in report["findings"]:
        share = finding["share_of_step"]
        for gain in (finding["fixes"][0][end] for end in ("low", "estimated_speedup", "high") if share is not None):
            assert gain is None or gain * (1.0 - share) <= 1.0 + 1e-9


def test_fixes_are_ranges_whose_best_is_that_of_the_finding(report: dict[str, Any]) -> None:
    for finding in report["findings"]:
        assert finding["fixes"] or not finding["action"]
        if finding["fixes"]:
            best = finding["fixes"][0]
            assert best["action"] == finding["action"]
            assert best["estimated_speedup"] == finding["estimated_speedup"]
            assert best["low"] == (finding["speedup_at_least"] if best["estimated_speedup"] else None)
        for fix in finding["fixes"]:
            if fix["estimated_speedup"] is not None:
                assert 1.0 <= fix["low"] <= fix["estimated_speedup"] <= min(fix["high"] or math.inf, 2.0 * fix["low"])


def test_phases_are_of_the_span_that_the_report_names(report: dict[str, Any]) -> None:
    span = report["span"]
    assert 0 <= span["first_step"] <= span["last_step"] == report["steps"]["count"] - 1
    before_s = 2.0 if report["run"]["mode"] == "attach" else 0.0  # markers of steps before it was attached to
    assert 0 < span["seconds"] <= report["run"]["duration_s"] + before_s
    assert sum(p["share"] for p in report["phases"] if p["name"] != "eval") == pytest.approx(1)


def test_its_page_names_each_finding_and_worker(page: Page) -> None:
    text = html.unescape(re.sub(r"<[^>]+>", "\n", as_html([page])))
    lines = {line.strip() for line in text.splitlines()}
    for finding in page.report["findings"]:
        assert finding["headline"].lower() in text.lower()
    trainer = page.session.trainer()
    assert trainer is not None
    for loader in page.session.over("recent").loaders(trainer):
        assert {worker.name for worker in loader.worker_rows[:16]} <= lines
