"""Shares of the step as gains."""

import pytest

from tuimon.diagnosis.finding import Finding, Fix
from tuimon.diagnosis.severity import graded
from tuimon.diagnosis.speedup import speedup


def test_what_leaves_half_of_the_step_makes_it_twice_as_fast():
    assert speedup(0.5) == pytest.approx(2.0)
    assert speedup(1.0) is speedup(0.0) is None


def test_no_finding_promises_more_than_twice_what_is_certain():
    far = Finding(
        rule="step_time_drift",
        severity="warning",
        headline="",
        action="detach",
        estimated_speedup=10.0,
        speedup_at_least=4.0,
    )
    assert graded(far).fixes == (Fix("detach", 8.0, 4.0, 8.0),)
    assert graded(far).severity == "critical"
