"""What fixes gain: a parameter changed, and the length of the step with it."""

import math

import pytest
from msgspec.structs import replace

from tests.diagnosis.test_step_length import step
from tuimon.diagnosis.finding import Change, Fix
from tuimon.diagnosis.step_model import StepModel
from tuimon.interval import NONE, WHOLE, Interval

ALONE = step(workers=0, own_ms=50.0, batch_ms=50.0)


def model(likely, certain=None):
    return StepModel(likely, certain or likely, 100.0)


@pytest.mark.parametrize(
    ("share", "error", "gains"),
    [
        (0.5, 0.0, (2.0, 4 / 3, 2.0)),
        (0.4, 0.08, (1 / 0.6, 1.25, 1 / 0.52)),  # half of what is likely: as with no error
        (0.5, 0.3, (2.0, 1.25, 2.5)),  # all of what is certain is less
        (0.75, 0.0, (4.0, 2.0, 4.0)),  # half of it gone, 1.6 times, is too far from 4
        (0.6, 0.6, (2.0, 1.0, 2.0)),  # may be nothing: not promised 2.5 times
        (0.9, 0.0, (10.0, 5.0, math.inf)),
        (0.9, 0.1, (10.0, 5.0, math.inf)),
        (0.98, 0.06, (25.0, 12.5, math.inf)),  # 50 is four times what is certain
    ],
)
def test_work_that_goes_is_all_of_it_at_best_and_half_of_it_or_what_is_certain_at_least(share, error, gains):
    busy = model(step(workers=0, own_ms=100.0, batch_ms=0.0))
    free = busy.fix("leave it out", Change("side_work", 0.0), busy.own_part(Interval.around(share, error)))
    assert (free.estimated_speedup, *free.gain) == pytest.approx(gains)
    assert free.gain.low <= free.estimated_speedup <= min(free.gain.high, 2.0001 * free.gain.low)
    assert free.gain.high <= 2.0001 * free.gain.low or (math.isinf(free.gain.high) and share >= 0.85)


def test_work_that_waited_for_cores_is_as_large_a_part_without_those_waits():
    """Of 100 ms the thread works for 80, in a crowd that leaves it 50 of them; half of its work is of no use."""
    crowded = model(step(workers=2, own_ms=50.0, batch_ms=0.1))._replace(own_ms=80.0)
    assert crowded.own_part(Interval(0.32, 0.48)) == pytest.approx((0.4, 0.6))
    assert crowded._replace(own_ms=0.0).own_part(Interval.around(0.25)) == pytest.approx(
        (0.5, 0.5)
    )  # nothing else is known


def test_nothing_that_goes_gains_nothing_known():
    unknown = Fix("leave it out", change=Change("side_work", 0.0))
    assert model(ALONE).fix("leave it out", Change("side_work", 0.0), NONE) == unknown
    assert model(ALONE).fix("look at it", None) == Fix("look at it")


SHORT = step(workers=2, own_ms=3.0, batch_ms=0.5, hand_over_ms=2.0, starts_ms=5.0)
DRAWN = step(workers=2, own_ms=1.0, batch_ms=0.5, hand_over_ms=1.0, drawing_ms=2.0)
DRAWN_ALONE = step(workers=0, own_ms=4.0, batch_ms=2.0, drawing_ms=2.0, hand_over_ms=0.0)
EVALUATES = step(workers=1, own_ms=1.0, batch_ms=10.0, evaluation_ms=10.0)
HALF = Interval.around(0.5)


@pytest.mark.parametrize(
    ("made", "change", "part", "gained"),
    [
        (ALONE, Change("items", 0.0), WHOLE, 2.0),
        (ALONE, Change("items", 0.5), HALF, 1 / 0.875),
        (ALONE, Change("fetch", 0.0), HALF, 1 / 0.75),
        (ALONE, Change("workers", 1), WHOLE, 2.0),
        (ALONE, Change("gil", 0.0), Interval.around(0.2), 1 / 0.8),
        (ALONE, Change("optimizer", 0.5), Interval.around(0.4), 1 / 0.9),
        # side work costs nothing while the data is late anyway
        (step(workers=1, own_ms=40.0, batch_ms=100.0), Change("side_work", 0.0), HALF, None),
        (step(workers=4, own_ms=40.0, batch_ms=100.0), Change("side_work", 0.0), HALF, 1.6),
        # batches that cost more to hand over than to make are made where they are needed; then no workers are started
        (step(workers=4, own_ms=1.0, batch_ms=0.5, hand_over_ms=2.0), Change("workers", 0), WHOLE, 2.0),
        (SHORT, Change("workers", 0), WHOLE, 10 / 3.5),
        (SHORT, Change("workers", 1), WHOLE, None),
        # indices are drawn in the training thread whoever makes the batches
        (DRAWN, Change("workers", 0), WHOLE, 4 / 3.5),
        (DRAWN, Change("fetch", 0.0), Interval.around(2 / 3), 2.0),
        (DRAWN_ALONE, Change("workers", 2), WHOLE, 8 / 6),
        (DRAWN_ALONE, Change("items", 0.0), HALF, 8 / 6),
        # workers make nothing for a step while the training evaluates, here as long as a starved step of 10 ms takes
        (EVALUATES, Change("workers", 2), WHOLE, 20 / 15),
        (EVALUATES, Change("items", 0.0), WHOLE, 20 / 11),
        (EVALUATES, Change("evaluation", 0.5), WHOLE, 20 / 15),
        (EVALUATES, Change("gil", 0.5), WHOLE, 20 / 15),
    ],
)
def test_each_change_has_a_gain_of_its_own(made, change, part, gained):
    found = model(made).fix("do it", change, part).estimated_speedup
    assert found is gained is None or found == pytest.approx(gained, rel=0.01)


def test_no_more_workers_than_gain_something():
    slow = step(workers=1, own_ms=10.0, batch_ms=28.0)
    assert model(slow).best_number((2, 3, 4, 8)) == 3
    assert model(replace(slow, cores=1.0)).best_number((2, 3, 4, 8)) is None  # they would only share it
    assert model(replace(slow, cores=1.0, batch_running=0.0)).best_number((2, 3, 4, 8)) == 3  # they only wait


def test_half_of_a_change_never_gains_more_for_sure_than_all_of_it():
    """A shorter step leaves its pool's threads less time beside the worker that makes the batch."""
    certain = step(workers=1, own_ms=4.3, batch_ms=16.5, own_threads=2.0, own_running=0.3, batch_running=0.08)
    beside = model(replace(certain, own_ms=1.2), certain)
    assert beside.gain(Change("items", 0.0)).low >= beside.gain(Change("items", 0.5)).low


def test_the_claimed_share_bounds_what_contention_adds():
    """Workers that make nothing leave their core to the training thread, whose own work the share does not hold."""
    crowded = model(step(workers=2, own_ms=50.0, batch_ms=100.0, cores=2.0))
    free, wait = Change("items", 0.0), 0.25
    assert crowded.gain(free).low > 1.0 / (1.0 - wait)
    told = crowded._replace(claimed=Interval(wait, wait)).fix("cheaper", free)
    assert told.estimated_speedup == pytest.approx(1.0 / (1.0 - wait))
    assert told.gain.high == pytest.approx(1.0 / (1.0 - wait))


def test_too_many_workers_may_be_worth_less_than_their_cores():
    """Measured on 2 cores, of which 23 % of the step was the training thread's: 1.3 times as fast with 2 workers."""
    alone = model(step(workers=0, own_ms=23.0, batch_ms=77.0, hand_over_ms=2.0, cores=2.0))
    assert alone.gain(Change("workers", 2)).contains(1.3)
