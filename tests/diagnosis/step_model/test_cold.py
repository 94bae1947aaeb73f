"""What the rest of a step gains where the work goes that left it cold caches."""

import pytest

from tests.diagnosis.step_model.test_model import model
from tests.diagnosis.step_model.test_simulation import step
from tuimon.diagnosis.finding import Change
from tuimon.diagnosis.step_model.cold import COLD_MS, warmed_ms
from tuimon.diagnosis.step_model.model import Part

GONE, HALVED = Change("items", 0.0), Change("items", 0.5)


def test_the_longer_the_work_that_goes_the_more_of_the_rest_goes_with_it_up_to_half():
    assert warmed_ms(20.0, 0.0) == 0.0
    assert 0.0 < warmed_ms(20.0, 1.0) < warmed_ms(20.0, 10.0) < warmed_ms(20.0, 1000.0) == pytest.approx(COLD_MS)
    assert warmed_ms(0.5, 1000.0) == 0.25


def test_work_that_stays_leaves_the_rest_cold_and_work_that_comes_seldom_only_few_steps():
    assert warmed_ms(20.0, 10.0, staying_ms=100.0) < 0.01 * warmed_ms(20.0, 10.0)
    assert warmed_ms(20.0, 10.0, every=20) == pytest.approx(COLD_MS / 20, rel=0.01)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_gain_holds_it_where_the_lengths_are_known(workers):
    loading = step(workers=workers, own_ms=4.0, batch_ms=40.0, hand_over_ms=0.0)
    unknown, known = model(loading), model(loading)._replace(in_ms=True)
    assert known.fix("", GONE).estimated_speedup > 1.2 * unknown.fix("", GONE).estimated_speedup
    assert known.fix("", HALVED) == unknown.fix("", HALVED)
    assert known.surely(GONE) == unknown.surely(GONE)


def test_of_side_work_now_and_then_the_steps_between_know_nothing():
    side = step(workers=0, own_ms=24.0, batch_ms=0.0)
    always, seldom = (
        model(loop)._replace(in_ms=True).fix("", Change("side_work", 0.0), Part(20 / 24))
        for loop in (side, step(workers=0, own_ms=24.0, batch_ms=0.0, burst_ms=20.0, burst_every=20))
    )
    assert always.estimated_speedup > 1.2 * seldom.estimated_speedup > 1.2 * 24 / 4
