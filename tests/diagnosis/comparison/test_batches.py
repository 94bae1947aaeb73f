"""Batches of a run, its warm-up, and steps whose time drifts."""

from __future__ import annotations

import pytest

from tests.diagnosis.comparison.series import correlated
from tuimon.diagnosis.comparison.runs import equal_stretches, has_trend, line_through, warmup_length
from tuimon.session.steps import StepStretch


def stretch(begin_s: float, seconds: float, steps: int, ms: float) -> StepStretch:
    return StepStretch(begin_s, begin_s + seconds, 0.0, steps, seconds, steps * ms * 1e6, *[0.0] * 8)


def test_windows_of_ten_seconds_make_batches_of_ten_seconds() -> None:
    fine = [stretch(at, 1.0, 20, 50.0) for at in range(30)]
    coarse = [stretch(30 + 10 * at, 10.0, 200, 50.0) for at in range(5)]
    found = equal_stretches([*fine, *coarse], 240)
    assert [row.span_s for row in found] == [10.0] * 8
    assert sum(row.steps for row in found) == 30 * 20 + 5 * 200


def test_each_batch_has_a_step() -> None:
    rows = [stretch(at, 1.0, int(at % 3 == 2), 3000.0) for at in range(30)]
    found = equal_stretches(rows, 240)
    assert all(row.steps for row in found)
    assert sum(row.steps for row in found) == 10
    assert sum(row.span_s for row in found) == 30.0


def test_a_long_run_has_240_batches_at_most() -> None:
    assert 200 <= len(equal_stretches([stretch(at, 1.0, 20, 50.0) for at in range(470)], 240)) <= 240


GROWING = [value * (1 + at / 100) for at, value in enumerate(correlated(60, 0.3, 5))]


@pytest.mark.parametrize(
    ("batches_ms", "length"),
    [
        ([90.0, 70.0, 60.0, *correlated(60, 0.3, 4)], 3),
        ([30.0, *correlated(60, 0.3, 4)], 1),
        ([50.0, 50.0], 0),
        ([90.0] * 30 + [50.0] * 30, 0),  # what is slow half of the time
        # a quarter of a machine's that slows down: the run would seem to be slower than another all of the time
        ([*correlated(15, 0.3, 1), *correlated(45, 0.3, 2, middle=60.0)], 0),
        ([90.0, 80.0, *GROWING], 2),
    ],
)
def test_slow_first_batches_are_warm_up(batches_ms: list[float], length: int) -> None:
    assert warmup_length(batches_ms) == length


def test_without_warm_up_little_is_left_out() -> None:
    assert sum(warmup_length(correlated(60, 0.5, seed)) for seed in range(50)) <= 10
    assert warmup_length(GROWING) <= 1


def test_steps_that_grow_have_a_trend_and_no_others() -> None:
    line = line_through(GROWING)
    assert line[-1] / line[0] == pytest.approx(1.59, rel=0.05)
    assert has_trend(GROWING)
    assert has_trend(GROWING[::-1])
    assert sum(has_trend(correlated(60, 0.5, seed)) for seed in range(50)) <= 2


def test_a_line_goes_on_before_its_beginning() -> None:
    assert line_through([5.0, 6.0, 7.0], -2) == [3.0, 4.0, 5.0, 6.0, 7.0]
