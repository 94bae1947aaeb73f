"""Findings in words."""

import pytest
from msgspec.structs import replace

from tuimon.diagnosis.finding import Finding
from tuimon.views.finding_text import finding_gain, fix_text, rule_title, rules_by_reason, sentence, speedup


@pytest.mark.parametrize(
    ("estimated", "low", "high", "text"),
    [
        (1.9, 1.2, 2.5, "Gain: training 1.2 to 2.5 times as fast"),
        (1.2, 1.2, 1.21, "Gain: training up to 1.2 times as fast"),
        (4.0, 2.8, None, "Gain: training at least 2.8 times as fast"),
        (None, None, 2.5, "Gain: not certain; training at most 2.5 times as fast"),
        (None, None, None, ""),
    ],
)
def test_the_gain_of_a_finding_is_the_range_of_its_best_fix(estimated, low, high, text):
    best = {"action": "do", "estimated_speedup": estimated, "low": low, "high": high}
    assert finding_gain([best, {**best, "high": 9.0}]) == text


def test_no_fix_has_no_gain():
    assert finding_gain([]) == ""


@pytest.mark.parametrize(
    ("gains", "text"),
    [
        ((4.5, 2.25, 4.5), "cache it: 2.2 to 4.5 times as fast"),
        ((1.3, 1.3, 1.3), "cache it: 1.3 times as fast"),
        ((1.3, 1.3, None), "cache it: at least 1.3 times as fast"),
        ((None, None, None), "cache it"),
    ],
)
def test_a_fix_comes_with_its_gain_where_that_is_known(gains, text):
    assert fix_text("cache it", *gains) == text


def test_rule_title():
    assert rule_title("input_bound") == "INPUT-BOUND"


def test_a_speedup_is_the_range_that_reports_name():
    found = Finding(rule="input_bound", severity="critical", headline="h", action="do", estimated_speedup=2.13)
    assert speedup(found) == "~2.1×"
    assert speedup(replace(found, speedup_at_least=1.21, evidence={"speedup_at_most": 2.83})) == "1.2–2.8×"
    assert speedup(replace(found, estimated_speedup=1.05)) == "~1.05×"
    assert speedup(replace(found, estimated_speedup=None)) == ""


def test_rules_by_reason():
    missing = [("hang", "no markers"), ("side_work", "no samples"), ("warmup", "no markers")]
    assert rules_by_reason(missing) == {"no markers": ["hang", "warmup"], "no samples": ["side_work"]}


def test_a_word_begins_with_a_capital_and_code_does_not() -> None:
    assert sentence("the training waits") == "The training waits"
    assert sentence("save() takes 3 %") == "save() takes 3 %"
    assert sentence("64 % of the time") == "64 % of the time"
