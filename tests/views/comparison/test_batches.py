"""Batches of a run, and its warm-up."""

import pytest

from tests.views.comparison.series import correlated
from tuimon.session.steps import StepStretch
from tuimon.views.comparison.runs import equal_stretches, warmup_length


def stretch(begin_s: float, seconds: float, steps: int, ms: float) -> StepStretch:
    return StepStretch(begin_s, begin_s + seconds, 0.0, steps, seconds, steps * ms * 1e6, *[0.0] * 8)


def test_each_batch_has_a_step() -> None:
    rows = [stretch(at, 1.0, int(at % 3 == 2), 3000.0) for at in range(30)]
    found = equal_stretches(rows, 240)
    assert all(row.steps for row in found)
    assert sum(row.steps for row in found) == 10
    assert sum(row.span_s for row in found) == 30.0


def test_a_long_run_has_240_batches_at_most() -> None:
    assert 200 <= len(equal_stretches([stretch(at, 1.0, 20, 50.0) for at in range(470)], 240)) <= 240


@pytest.mark.parametrize(
    ("batches_ms", "length"),
    [
        ([90.0, 70.0, 60.0, *correlated(60, 0.3, 4)], 3),
        ([30.0, *correlated(60, 0.3, 4)], 1),
        ([50.0, 50.0], 0),
        ([90.0] * 30 + [50.0] * 30, 0),  # what is slow half of the time
        # a quarter of a machine's that slows down: the run would seem to be slower than another all of the time
        ([*correlated(15, 0.3, 1), *correlated(45, 0.3, 2, middle=60.0)], 0),
    ],
)
def test_slow_first_batches_are_warm_up(batches_ms: list[float], length: int) -> None:
    assert warmup_length(batches_ms) == length


def test_without_warm_up_little_is_left_out() -> None:
    assert sum(warmup_length(correlated(60, 0.5, seed)) for seed in range(50)) <= 10
