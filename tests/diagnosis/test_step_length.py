"""The length of a step: who is the bottleneck sets the pace, and all share the cores."""

import itertools

import pytest

from tuimon.diagnosis.finding import Change
from tuimon.diagnosis.step_model import ModelStep, changed, step_ms


def step(**parameters):
    """One worker that needs 10 ms a batch, beside 4 ms of the training thread, on many cores."""
    usual = {
        "own_ms": 4.0, "own_running": 1.0, "own_threads": 1.0, "fetches": 1, "hand_over_ms": 0.0, "starts_ms": 0.0,
        "workers": 1, "batch_ms": 10.0, "batch_running": 1.0, "cores": 8.0,
    }  # fmt: skip
    return ModelStep(**{**usual, **parameters})


@pytest.mark.parametrize(
    ("parameters", "ms"),
    [
        ({}, 10.0),  # the worker sets the pace
        ({"workers": 2}, 5.0),
        ({"workers": 3}, 4.0),  # now the training thread does
        ({"workers": 0}, 14.0),  # which makes its batches itself, and has nothing handed over
        ({"workers": 0, "hand_over_ms": 3.0, "fetches": 2}, 24.0),
        ({"workers": 4, "hand_over_ms": 3.0}, 7.0),
        ({"workers": 2, "fetches": 4}, 20.0),
        ({"workers": 4, "starts_ms": 2.0}, 6.0),
        ({"starts_ms": 2.0}, 12.0),  # nobody makes batches while workers start
        ({"workers": 32, "batch_ms": 320.0, "cores": 64.0}, 10.0),
        ({"workers": 4, "batch_ms": 0.0}, 4.0),
        ({"own_ms": 0.0}, 10.0),
        ({"own_ms": 0.0, "batch_ms": 0.0}, 0.0),
        ({"own_ms": 2e-8, "batch_ms": 0.0}, 2e-8),
    ],
)
def test_the_bottleneck_sets_the_pace(parameters, ms):
    assert step_ms(step(**parameters)) == pytest.approx(ms, rel=0.01)


@pytest.mark.parametrize(
    ("parameters", "ms"),
    [
        ({"cores": 1.0}, 14.0),  # all that runs, one after the other
        ({"cores": 1.0, "batch_running": 0.0}, 10.0),  # what waits needs no core
        ({"cores": 2.0, "workers": 4}, 7.0),
        ({"cores": 2.0, "workers": 0, "own_threads": 4.0}, 18.0),
        ({"cores": 4.0, "workers": 64, "batch_ms": 60.0}, 16.0),
    ],
)
def test_what_runs_shares_the_cores(parameters, ms):
    assert step_ms(step(**parameters)) == pytest.approx(ms, rel=0.03)


@pytest.mark.parametrize(
    ("parameters", "ms"),
    [
        ({"cores": 8.0}, 6.0),  # no crowd: the worker sets the pace
        ({}, 9.0),  # 3 threads on 2 cores, each at 2/3: both threads of the pool at once 4/9 of the time
        ({"own_threads": 1.0}, 6.0),
    ],
)
def test_a_pool_waits_for_its_thread_without_a_core(parameters, ms):
    pool = {"own_threads": 2.0, "cores": 2.0, "batch_ms": 6.0}
    assert step_ms(step(**{**pool, **parameters})) == pytest.approx(ms, rel=0.01)


def test_the_same_step_takes_the_same_time_and_never_less_than_its_bottleneck():
    """At least about as long as each part alone, at most as long as all one after the other."""
    for workers, own, batch, cores, running in itertools.product((0, 1, 3, 9), (0.5, 20), (1, 30), (1, 3), (0.1, 1)):
        one = step(workers=workers, own_ms=own, batch_ms=batch, cores=cores, batch_running=running, hand_over_ms=0.2)
        taken = step_ms(one)
        step_ms.cache_clear()
        assert step_ms(one) == taken
        least = max(own, batch / max(1, workers), (own + batch * running) / cores)
        assert 0.9 * least <= taken <= 1.01 * (own + 0.2 + batch)


def test_late_batches_cost_their_time_until_they_are_taken_out_of_order():
    """A worker makes a batch every 10 ms; for one that is late, the thread waits 30 ms more a step."""
    late = step(held_ms=30.0)
    assert step_ms(late) == pytest.approx(40.0)
    assert step_ms(changed(late, Change("in_order", 1))) == pytest.approx(10.0)
    assert step_ms(changed(late, Change("items", 0.0))) == pytest.approx(4.0)
    assert step_ms(changed(late, Change("workers", 0))) == pytest.approx(14.0)
