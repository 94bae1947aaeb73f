"""What fixes gain, by the share of the step that they remove."""

import pytest

from tuimon.diagnosis.finding import Finding, Fix
from tuimon.diagnosis.severity import graded
from tuimon.diagnosis.speedup import halving, removing


@pytest.mark.parametrize(
    ("share", "certain", "gains"),
    [
        (0.5, None, (2.0, 4 / 3, 2.0)),
        (0.9, None, (10.0, 5.0, 10.0)),  # half of it gone, 1.8 times, is too far from 10
        (0.5, 0.2, (2.0, 1 / 0.9, 2.0)),
        (0.6, 0.0, (2.0, 1.0, 2.0)),  # may be nothing: not promised 2.5 times
    ],
)
def test_work_that_goes_is_all_of_it_at_best_and_half_of_what_is_certain_at_least(share, certain, gains):
    fix = removing("leave it out", share, certain)
    assert fix[1:] == pytest.approx(gains)
    assert fix.low <= fix.estimated_speedup == fix.high <= 2.0 * fix.low
    (half,) = halving("do half of it", share, certain)
    assert 1.0 <= half.low <= half.high <= 2.0 * half.low


def test_nothing_that_goes_gains_nothing_known():
    assert removing("leave it out", 0.0) == Fix("leave it out")
    assert halving("do half of it", 0.0) == ()


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
