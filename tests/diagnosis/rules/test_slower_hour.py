"""A run that is slower than its own best hour."""

import random

from tests.diagnosis.cpu import NO_GPU
from tests.session.records import one_process, steps, thread
from tuimon.diagnosis import diagnose

USUAL = {"data": 12, "forward": 30, "backward": 50, "optimizer": 8}


def course(*hours):
    """Phases of windows of a minute: so many times as long in each hour."""
    rng = random.Random(7)
    return lambda n: {
        name: ms * hours[min(n // 60, len(hours) - 1)] * rng.uniform(0.97, 1.03) for name, ms in USUAL.items()
    }


def hours(phases):
    made = [steps(60.0 * (n + 1), phases(n), first_index=10 * n, window_s=60.0) for n in range(60 * 3)]
    made = [(thread(each.t, 1.0, 0.0, window_s=60.0), each) for each in made]
    return [each for each in diagnose(one_process(NO_GPU, made)) if each.rule == "step_time_drift"]


def test_an_hour_that_is_slower_than_the_best_is_told_with_the_phase():
    (slow,) = hours(lambda n: course(1.0)(n) | {"data": 12 if n // 60 == 1 else 30})
    assert slow.cause == "slower_hour" and slow.severity == "warning"
    assert slow.headline.startswith("steps take 18 % longer than in the best hour, which ended 1 h 0 min ago: ")
    assert slow.headline.endswith(", mostly in data")


def test_hours_that_are_alike_or_become_faster_or_do_more_work_are_in_order():
    assert not hours(course(1.0, 1.05, 1.0)) and not hours(course(1.3, 1.1, 1.0))
    (more,) = hours(lambda n: USUAL | ({"forward": 36, "backward": 60} if n // 60 != 1 else {}) | {"other": n % 3})
    assert (more.severity, more.cause) == ("info", "more_work")
