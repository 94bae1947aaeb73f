"""Steps that take longer since one moment, and courses that only look so."""

import random

import pytest

from tests.diagnosis.rules.test_drift import (
    SEEDS,
    WINDOWS,
    drift_of,
    heavy_noise,
    noise,
    noise_with_memory,
    one_slow_step,
    regular_side_work,
    sawtooth_per_epoch,
)
from tuimon.diagnosis.evidence.course import jump_in


def slope(rng):
    return [100 * (1 + t / 100) * noise(rng, 0.05) for t in range(WINDOWS)]


def long_sawtooth(rng):
    epoch, growth = rng.randint(20, 120), rng.uniform(0.2, 1.5)
    return [100 * noise(rng, 0.05) * (1 + growth * (t % epoch) / epoch) for t in range(WINDOWS)]


def slow_epochs_in_turn(rng):
    epoch = rng.randint(10, 55)
    return [100 * noise(rng, 0.05) * (1.6 if t // epoch % 2 else 1) for t in range(WINDOWS)]


def faster_since(rng):
    jump = rng.randint(20, 200)
    return [100 * noise(rng, 0.1) * (0.5 if t > jump else 1) for t in range(WINDOWS)]


@pytest.mark.parametrize(
    "course",
    [
        heavy_noise,
        noise_with_memory,
        sawtooth_per_epoch,
        long_sawtooth,
        slope,
        one_slow_step,
        regular_side_work,
        slow_epochs_in_turn,
        faster_since,
    ],
)
def test_false_alarms_are_rare_however_often_it_is_judged(course):
    alarms = 0
    for seed in range(SEEDS // 2):
        windows = course(random.Random(seed))
        alarms += any(jump_in(windows[:t]) is not None for t in range(10, WINDOWS, 7))
    assert alarms <= SEEDS / 200


@pytest.mark.parametrize("seed", range(20))
def test_a_jump_is_found_where_it_is_and_as_long_as_it_lasts(seed):
    rng = random.Random(seed)
    begin, ratio = rng.randint(20, 200), rng.uniform(1.5, 4.0)
    windows = [100 * noise(rng, 0.1) * (ratio if t >= begin else 1) for t in range(WINDOWS)]
    assert abs(jump_in(windows) - begin) <= 1
    assert jump_in(windows[: begin + 50]) is None  # not lasting yet
    assert jump_in([*windows, *(100.0 for _ in range(10))]) is None  # over


def of_run(lengths_ms, delays=None):
    samples = [(([0, 1], 9), ([4, 2], round((ms - 90) / 10)), ([5, 3], 2)) for ms in lengths_ms]
    return drift_of([ms - 90 for ms in lengths_ms], delays, samples)


def test_its_moment_its_phase_and_its_line_are_told_and_it_is_no_fault():
    jump = of_run([120.0 + t % 3 if t < 150 else 240.0 + t % 3 for t in range(240)])
    assert (jump.severity, jump.cause, jump.estimated_speedup) == ("info", "jump", None)
    facts = ("99 % longer", "step 1,500 (2 min 30 s in)", "121 ms -> 241 ms", "in other")
    assert all(fact in jump.headline for fact in facts)
    assert jump.evidence["since_step"] == 1500
    assert jump.evidence["grown_phase"] == "other"
    assert (jump.where[0].function, jump.where[0].line) == ("log", 12)


def test_a_neighbour_that_comes_and_stays_is_no_jump_of_the_training():
    delays = [0.0 if t < 150 else 0.5 for t in range(240)]
    lengths = [120.0 / (1 - delay) for delay in delays]
    assert of_run(lengths, delays) is None
    assert of_run(lengths) is not None
