"""Findings in words."""

import math

import pytest
from msgspec.structs import replace

from tests.views import streams
from tuimon.diagnosis.finding import Finding, Fix
from tuimon.diagnosis.interval import Interval
from tuimon.records import Place
from tuimon.session.session import Session
from tuimon.views.finding_text import (
    NO_FINDING,
    NO_TRAINING,
    TOO_FEW_STEPS,
    finding_gain,
    fix_text,
    headline_text,
    none_found,
    speedup,
)
from tuimon.views.headless import summary_lines
from tuimon.views.report.page import as_html
from tuimon.views.report.summary import Page, report_of
from tuimon.views.report.text import text_report


@pytest.mark.parametrize(
    ("estimated", "low", "high", "text"),
    [
        (1.9, 1.2, 2.5, "1.2x to 2.5x faster"),
        (1.2, 1.2, 1.21, "up to 1.2x faster"),
        (4.0, 2.8, None, "at least 2.8x faster"),
        (None, None, 2.5, "not certain, up to 2.5x faster"),
        (None, None, None, ""),
        (1.5, 1.0, 1.5, "up to 1.5x faster"),
    ],
)
def test_the_gain_of_a_finding_is_the_range_of_its_best_fix(estimated, low, high, text):
    best = {"action": "do", "estimated_speedup": estimated, "low": low, "high": high}
    assert finding_gain([best, {**best, "high": 9.0}]) == text
    assert finding_gain([]) == ""


@pytest.mark.parametrize(
    ("gains", "text"),
    [
        ((4.5, 2.25, 4.5), "cache it (2.2x to 4.5x faster)"),
        ((1.3, 1.3, 1.3), "cache it (up to 1.3x faster)"),
        ((1.3, 1.3, None), "cache it (at least 1.3x faster)"),
        ((None, None, None), "cache it"),
    ],
)
def test_a_fix_comes_with_its_gain_where_that_is_known(gains, text):
    assert fix_text("cache it", *gains) == text


def test_a_headline_has_the_first_place_once():
    places = (Place("/a/net.py", 16, "forward"), Place("/a/net.py", 20, "backward"))
    assert headline_text("GPU idle 84 %", places) == "GPU idle 84 %, at forward() net.py:16"
    assert headline_text("it waits at net.py:16", places) == "it waits at net.py:16"
    in_json = [{"file": "/a/net\x07.py", "line": 16, "function": "<module>"}]
    assert headline_text("GPU idle 84 %", in_json) == "GPU idle 84 %, at net.py:16"
    assert headline_text("steps take\nlonger", ()) == "steps take longer"


def test_a_speedup_is_the_range_that_reports_name():
    def shown(*gain):
        fix = Fix("do", gain[0], Interval(*gain[1:])) if gain else Fix("do")
        return speedup(Finding(rule="input_bound", severity="critical", headline="h", fixes=(fix,)))

    assert shown(2.13, 2.13, 2.13) == "up to 2.1x"
    assert shown(2.13, 1.21, 2.83) == "1.2–2.8x"
    assert shown(2.13, 1.0, 2.13) == "up to 2.1x"
    assert shown(2.13, 2.13, math.inf) == "≥2.1x"
    assert shown(1.05, 1.05, 1.05) == "up to 1.05x"
    assert shown() == shown(None, 1.0, 1.0) == ""


@pytest.mark.parametrize(
    ("count", "phases", "verdict"),
    [
        (0, [], TOO_FEW_STEPS),
        (2, [{"name": "forward", "share": 1.0}], TOO_FEW_STEPS),
        (3, [{"name": "forward", "share": 1.0}], NO_FINDING),
        (0, [{"name": "forward", "share": 1.0}], NO_FINDING),  # inferred from samples
        (3, [{"name": "other", "share": 1.0}], NO_TRAINING),
    ],
)
def test_no_finding_is_a_verdict_on_more_than_the_first_steps(count, phases, verdict):
    assert none_found({"steps": {"count": count}, "phases": phases}) == verdict


# -- a fix in each view


FINDING = replace(
    streams.INPUT_BOUND,
    fixes=(
        *streams.INPUT_BOUND.fixes,
        Fix("halve [b]the image", 1.5, Interval(1.0, 1.5)),
        Fix("buy a disk"),
        Fix("wait longer"),
    ),
)
HALVE = "halve [b]the image (up to 1.5x faster)"


def test_reports():
    session = Session()
    report = report_of(session, [FINDING], "run.jsonl")
    assert [fix["low"] for fix in report["findings"][0]["fixes"]] == [2.13, 1.0, None, None]
    text = text_report(report)
    assert f"  Or: {HALVE}\n  Or: buy a disk\n" in text and "wait longer" not in text
    page = as_html([Page(report, session)])
    assert f"<b>Or:</b> {HALVE}" in page and "<b>Or:</b> buy a disk" in page and "<b>Or:</b> wait longer" in page


def test_the_summary_of_a_headless_run():
    best, gain, *others = (text.strip() for text in summary_lines(Session(), [FINDING])[-4:])
    assert (best, gain) == (f"fix: {FINDING.action}", "gain: up to 2.1x faster")
    assert others == [f"or: {HALVE}", "or: buy a disk"]
