"""A run that is slower than earlier ones of its command, or than its own best hour."""

import random

import pytest

from tests.diagnosis.cpu import NO_GPU
from tests.session.records import header, process, session_of, steps
from tuimon.diagnosis import diagnose
from tuimon.diagnosis.comparison.speed import since_earlier
from tuimon.monitor.history import run_of
from tuimon.records import EarlierRun, EarlierRuns, Loader, LoaderFacts, ThreadCpu, Threads

USUAL = {"data": 12, "forward": 30, "backward": 50, "optimizer": 8}
FACTS = LoaderFacts(dataset="Rows", kind="map", workers=0, batch_size=32)


def earlier(*factors, **more):
    """Earlier runs whose steps take so many times 100 ms."""
    setting = {"cpu_count": 2, "batch_size": 32, **more}
    runs = [EarlierRun(1e9, 500, 100 * f, [f * 12, f * 30, f * 50, f * 8, 0.0], **setting) for f in factors]
    return EarlierRuns(t=0.1, pid=100, runs=runs)


def records(phases, *more, windows=40, batch=True, delay=0.0, window_s=1.0):
    yield from (header(), process(), NO_GPU, *more)
    for n in range(windows):
        t = window_s * (n + 1)
        if batch:
            yield Loader(t=t, pid=100, number=0, window_s=window_s, role="train", fetches=10, facts=FACTS)
        row = ThreadCpu(100, "python", 1.0 - delay, "running", delay)
        yield Threads(t=t, pid=100, window_s=window_s, cpu_ratio=1.0 - delay, rss_bytes=None, threads=[row])
        yield steps(t, phases(n) if callable(phases) else phases, first_index=10 * n, window_s=window_s)


def found(rule, *args, **more):
    return [each for each in diagnose(session_of(*records(*args, **more))) if each.rule == rule]


def test_the_phase_that_grew_is_told_with_both_times():
    (slow,) = found("slower_run", USUAL | {"data": 31}, earlier(1.0, 1.01, 0.99, 1.0, 1.005))
    assert slow.headline == "19 % slower than the last 5 runs of this command: data 12.0 ms -> 31.0 ms"
    (twice,) = found("slower_run", USUAL | {"data": 132}, earlier(1.0, 1.01, 0.99, 1.0, 1.005))
    assert twice.headline.startswith("2.2x slower than the last 5 runs of this command: data 12.0 ms -> 132 ms")
    assert slow.severity == "warning" and 1.05 < slow.best.low < 1.19 < slow.best.high


@pytest.mark.parametrize(
    "other",
    [
        {"batch_size": 64},
        {"cpu_count": 8},
        {"ranks": 2},
        {"gpus": ["NVIDIA H100"]},
    ],
    ids=str,
)
def test_runs_in_another_setting_are_not_compared(other):
    assert not found("slower_run", USUAL | {"data": 31}, earlier(1.0, 1.0, 1.0, 1.0, 1.0, **other))


def test_one_run_or_those_that_differ_as_much_prove_nothing():
    assert not found("slower_run", USUAL | {"data": 31}, earlier(1.0))
    assert not found("slower_run", USUAL | {"data": 31}, earlier(1.0, 1.04))
    assert found("slower_run", USUAL | {"data": 31}, earlier(1.0, 1.0))
    assert not found("slower_run", USUAL | {"data": 31}, earlier(0.9, 1.2, 1.0, 0.85, 1.1))
    assert not found("slower_run", USUAL, earlier(1.0, 1.01, 0.99, 1.0, 1.005))
    assert not found("slower_run", USUAL | {"data": 2}, earlier(1.0, 1.01, 0.99, 1.0, 1.005))
    assert not found("slower_run", USUAL | {"data": 31})


def test_a_short_run_and_one_that_others_hold_up_are_not_compared():
    slow = USUAL | {"data": 31}
    runs = earlier(1.0, 1.01, 0.99, 1.0, 1.005)
    assert not found("slower_run", slow, runs, windows=12)
    assert not found("slower_run", slow, runs, delay=0.15)


def test_larger_batches_of_an_unknown_size_are_more_work_not_a_fault():
    more = {"data": 12, "forward": 60, "backward": 100, "optimizer": 8}
    (grown,) = found("slower_run", more, earlier(1.0, 1.0, 1.0, batch_size=None), batch=False)
    assert grown.severity == "info" and grown.best.estimated_speedup is None


def test_equal_programs_seldom_count_as_slower():
    rng = random.Random(3)
    runs = [[EarlierRun(0, 1, 100 * rng.lognormvariate(0, 0.04), [1.0] * 5) for _ in range(5)] for _ in range(300)]
    nows = [100 * rng.lognormvariate(0, 0.04) for _ in runs]
    slower = [since_earlier(some, now, on_cores=True).longer.low > 1.0 for some, now in zip(runs, nows, strict=True)]
    assert sum(slower) <= 0.05 * len(runs)


def test_a_run_is_kept_as_the_next_one_needs_it():
    kept = run_of(session_of(*records(USUAL)))
    assert (kept.steps, kept.step_ms, kept.phases_ms) == (380, 100.0, [12.0, 30.0, 50.0, 8.0, 0.0])
    assert (kept.cpu_count, kept.gpus, kept.ranks, kept.batch_size) == (2, [], 1, 32)
    assert run_of(session_of(*records(USUAL, windows=12))) is None
    assert run_of(session_of(*records(USUAL, delay=0.15))) is None


def course(*hours):
    """Phases of windows of a minute: so many times as long in each hour."""
    rng = random.Random(7)
    return lambda n: {
        name: ms * hours[min(n // 60, len(hours) - 1)] * rng.uniform(0.97, 1.03) for name, ms in USUAL.items()
    }


def hours(phases):
    return found("step_time_drift", phases, windows=60 * 3, window_s=60.0)


def test_an_hour_that_is_slower_than_the_best_is_told_with_the_phase():
    (slow,) = hours(lambda n: course(1.0)(n) | {"data": 12 if n // 60 == 1 else 30})
    assert slow.cause == "slower_hour" and slow.severity == "warning"
    assert slow.headline.startswith(
        "steps take 18 % longer than in the best hour, which ended 1 h 0 min ago: data 12.0 ms"
    )


def test_hours_that_are_alike_or_become_faster_or_do_more_work_are_in_order():
    assert not hours(course(1.0, 1.05, 1.0)) and not hours(course(1.3, 1.1, 1.0))
    (more,) = hours(lambda n: USUAL | ({"forward": 36, "backward": 60} if n // 60 != 1 else {}) | {"other": n % 3})
    assert more.severity == "info"
