"""Severity follows from the gain."""

import math

import pytest

from tuimon.diagnosis.finding import Finding, Fix, graded
from tuimon.interval import Interval


def severity(proposed="warning", gain=None, low=None, share=None):
    fixes = (Fix("do less", gain, gain and Interval(low, gain)),)
    return graded(Finding(rule="side_work", severity=proposed, headline="", fixes=fixes, share_of_step=share)).severity


@pytest.mark.parametrize(
    ("gain", "expected"), [(1.02, "info"), (1.05, "warning"), (1.19, "warning"), (1.2, "critical"), (9.0, "critical")]
)
def test_the_lower_end_of_an_estimated_gain_decides_alone(gain, expected):
    assert severity(gain=gain, low=gain, share=0.5) == expected
    assert severity(gain=2 * gain, low=gain) == expected
    assert severity("critical", gain=gain, low=gain) == expected


@pytest.mark.parametrize(
    ("proposed", "share", "expected"),
    [
        ("critical", 0.5, "critical"),
        ("critical", 0.1, "warning"),  # at most 1.11 times as fast
        ("critical", 0.03, "info"),
        ("warning", 0.9, "warning"),  # a bound from above proves no gain
        ("critical", None, "critical"),
    ],
)
def test_without_an_estimate_the_share_bounds_it(proposed, share, expected):
    assert severity(proposed, share=share) == expected


@pytest.mark.parametrize(
    ("proposed", "low", "expected"), [("benign", 3.0, "benign"), ("info", None, "info"), ("info", 1.078, "warning")]
)
def test_what_is_no_fault_stays_none_unless_its_fix_surely_gains(proposed, low, expected):
    assert severity(proposed, gain=low, low=low, share=0.9) == expected


LARGER = Fix("a larger batch", 2.0, Interval(2.0, 2.0), changes_training=True)


@pytest.mark.parametrize(
    ("others", "place"),
    [
        ([Fix("compile", 1.8, Interval(1.5, 2.5))], 1),
        ([Fix("compile", 1.8, Interval(1.5, 1.9))], 0),
        ([Fix("little", 1.2, Interval(1.1, 1.3)), Fix("compile", 2.1, Interval(1.5, 2.5)), Fix("unknown")], 2),
        ([Fix("unknown"), Fix("unknown too")], 0),
        ([], 0),
    ],
)
def test_what_changes_the_training_is_behind_what_does_not_and_may_gain_as_much(others, place):
    fixes = graded(Finding(rule="launch_bound", headline="", fixes=(LARGER, *others))).fixes
    assert fixes.index(LARGER) == place
    assert [fix for fix in fixes if fix is not LARGER] == others


@pytest.mark.parametrize(("estimate", "first"), [(1.9, "sparse"), (3.9, "malloc")])
def test_of_two_gains_without_an_upper_end_the_estimates_decide(estimate, first):
    sparse = Fix("sparse", 3.7, Interval(1.8, math.inf), changes_training=True)
    malloc = Fix("malloc", estimate, Interval(1.8, math.inf))
    assert graded(Finding(rule="optimizer_bound", headline="", fixes=(sparse, malloc))).best.action == first


def test_further_fixes_are_listed_where_they_may_be_worth_a_change():
    little, worth, unknown = Fix("a", 1.04, Interval(1.04, 1.04)), Fix("b", 1.06, Interval(1.02, 1.06)), Fix("c")
    found = graded(Finding(rule="side_work", severity="warning", headline="", fixes=(little, little, worth, unknown)))
    assert found.fixes == (little, worth, unknown)
