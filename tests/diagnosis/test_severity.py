"""Severity follows from the gain."""

import pytest

from tuimon.diagnosis.finding import Finding, Fix
from tuimon.diagnosis.severity import graded


def severity(proposed="warning", **figures):
    return graded(Finding(rule="side_work", severity=proposed, headline="", action="", **figures)).severity


@pytest.mark.parametrize(
    ("gain", "expected"), [(1.02, "info"), (1.05, "warning"), (1.19, "warning"), (1.2, "critical"), (9.0, "critical")]
)
def test_the_lower_end_of_an_estimated_gain_decides_alone(gain, expected):
    assert severity(estimated_speedup=gain, share_of_step=0.5) == expected
    assert severity(estimated_speedup=10.0, speedup_at_least=gain) == expected
    assert severity("critical", estimated_speedup=gain) == expected


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
    assert severity(proposed, share_of_step=share) == expected


@pytest.mark.parametrize("proposed", ["info", "benign"])
def test_what_is_no_fault_stays_none(proposed):
    assert severity(proposed, estimated_speedup=3.0) == proposed


def test_further_fixes_are_listed_where_they_may_be_worth_a_change():
    little, worth, unknown = Fix("a", 1.04, 1.04, 1.04), Fix("b", 1.06, 1.02, 1.06), Fix("c")
    found = graded(
        Finding(rule="side_work", severity="warning", headline="", action="", other_fixes=(little, worth, unknown))
    )
    assert found.fixes == (worth, unknown)
