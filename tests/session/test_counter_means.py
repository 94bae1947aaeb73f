"""Counters over the time in which the training steps: not over its set-up, its evaluation, or what follows it."""

import pytest
from msgspec import structs

from tests.session.records import header, process, session_of, steps
from tuimon.records import Gpu
from tuimon.session.gpus import Device
from tuimon.session.rows import SteppingSpan
from tuimon.session.step_sums import StepStretch, stepping_spans

S = 1e9


def gpu(t, util=None, **more):
    return Gpu(t=float(t), pid=0, index=0, uuid="GPU-0", name="X", util_ratio=util, **more)


def history(*records):
    found = Device()
    for record in records:
        found.add_record(record)
    return found


def stretch(begin_s, end_s, steps, total_s, eval_s=0.0, slowed_s=0.0):
    phases = [0.0] * 6
    return StepStretch(
        begin_s, end_s, 0, steps, end_s - begin_s - slowed_s, total_s * S, *phases, eval_s * S, waited_ns=0.0
    )


def run(interval_s, *, set_up_s=15.0, steps_s=10.0, idle_s=0.0, util=0.8, samples=False):
    """Set-up without steps, then ten steps a second on a busy GPU, then nothing; a record each ``interval_s``.

    The GPU's records come 0.4 s after those of the steps.
    """
    begin_s, end_s = set_up_s, set_up_s + steps_s
    session = session_of(structs.replace(header(), interval_s=interval_s), process(100, gpu_uuids=["GPU-0"]))
    t, made = 0.0, 0
    while t < end_s + idle_s:
        t += interval_s
        count = round(10 * max(0.0, min(t, end_s) - max(t - interval_s, begin_s)))
        first = {"first_step_s": begin_s, "first_backward_s": begin_s} if count and not made else {}
        phases = {"forward": 50.0, "backward": 50.0} if count else {}
        session.add(steps(t, phases, count=count, first_index=made, window_s=interval_s, **first))
        made += count
        busy = [util if begin_s <= t + 0.4 - interval_s * (1 - (n + 0.5) / 10) < end_s else 0.0 for n in range(10)]
        buffered = {"util_samples": busy} if samples else {}
        session.add(gpu(t + 0.4, sum(busy) / 10, sm_ratio=sum(busy) / 20, energy_j=100.0 * t, **buffered))
    return session


def means(session, span="recent"):
    (row,) = session.over(span).gpus()
    return row.means


@pytest.mark.parametrize("interval_s", [1.0, 10.0])
@pytest.mark.parametrize("span", ["recent", "whole"])
def test_set_up_before_the_first_step_and_an_idle_tail_count_for_nothing(interval_s, span):
    session = run(interval_s, set_up_s=60.0, steps_s=30.0, idle_s=20.0, samples=True)
    found = means(session, span)
    assert found.util_ratio == pytest.approx(0.8, abs=0.02)
    assert found.util_at_least == pytest.approx(0.8, abs=0.03)
    assert found.util_at_most == pytest.approx(0.8, abs=0.03)


@pytest.mark.parametrize("samples", [False, True])
def test_a_short_run_is_judged_by_its_steps(samples):
    found = means(run(1.0, samples=samples), "whole")
    assert found.util_ratio == pytest.approx(0.8, abs=0.03)
    assert found.sm_ratio == pytest.approx(0.4, abs=0.03)


def test_what_people_read_is_the_mean_and_without_one_the_latest():
    (row,) = run(1.0, idle_s=5.0).over("recent").gpus()
    assert row.latest.util_ratio == 0.0
    assert (row.figures.util_ratio, row.figures.tensor_ratio) == (row.means.util_ratio, None)
    (short,) = run(1.0, steps_s=1.0).over("recent").gpus()
    assert short.means.util_ratio is None and short.figures.util_ratio == short.latest.util_ratio


def test_means_follow_new_records_and_other_stretches():
    readings, spans = history(gpu(0), *(gpu(t, 0.5) for t in range(1, 11))), [SteppingSpan(0.0, 12.0)]
    assert readings.means(spans).util_ratio == pytest.approx(0.5)
    readings.add_record(gpu(11, 1.0))
    assert readings.means(spans).util_ratio == pytest.approx(6.0 / 11)
    assert readings.means([SteppingSpan(0.0, 10.0)]).util_ratio == pytest.approx(0.5)


def test_before_the_first_step_the_last_half_minute_counts():
    session = run(1.0, set_up_s=60.0, steps_s=0.0)
    assert means(session).util_ratio == 0.0
    assert session.over("recent").stepping_spans() == []


def test_too_short_a_time_is_no_mean():
    assert means(run(1.0, steps_s=0.5)).util_ratio is None


def test_figures_count_for_the_part_that_lies_in_the_stretch():
    readings = history(gpu(0), *(gpu(t, 0.5 if t < 6 else 0.9) for t in range(1, 11)))
    assert readings.means([SteppingSpan(4.0, 6.0)]).util_ratio == pytest.approx(0.7)
    assert readings.means([SteppingSpan(4.4, 6.0)]).util_ratio == pytest.approx((0.6 * 0.5 + 0.9) / 1.6)
    mostly_outside = readings.means([SteppingSpan(4.9, 7.0)])
    assert mostly_outside.util_ratio == pytest.approx(0.9)


def test_evaluation_within_a_figure_leaves_bounds():
    """Kernels for 0.7 of each second, of which steps take 0.9: for 0.6 to 0.7 of these 0.9."""
    readings = history(gpu(0), *(gpu(t, 0.7) for t in range(1, 11)))
    found = readings.means([SteppingSpan(0.0, 10.0, 0.9)])
    assert (found.util_at_least, found.util_at_most) == (pytest.approx(0.6 / 0.9), pytest.approx(0.7 / 0.9))
    assert found.steps_ratio == pytest.approx(0.9)


def test_what_was_not_measured_has_no_mean():
    found = history(gpu(0), *(gpu(t, 0.5) for t in range(1, 11))).means([SteppingSpan(0.0, 10.0)])
    assert (found.sm_ratio, found.watts) == (None, None)
    assert history(gpu(1, 0.5)).means([SteppingSpan(0.0, 1.0)]) is None


def test_windows_of_steps_that_follow_each_other_are_one_stretch():
    windows = [stretch(t, t + 1.0, 10, 1.0) for t in range(10, 20)]
    assert stepping_spans(windows, 10.5) == [SteppingSpan(10.5, 20.0)]


def test_a_long_step_reaches_back_to_where_it_began():
    assert stepping_spans([stretch(12.0, 13.0, 1, 1.8)], 0.0) == [SteppingSpan(pytest.approx(11.2), 13.0)]


def test_what_follows_the_last_step_is_no_step():
    found = stepping_spans([stretch(0, 1, 10, 1.0), stretch(1, 2, 3, 0.3)], 0.0)
    assert found[-1].end_s == pytest.approx(1.3)


def test_evaluation_and_what_a_trace_held_up_take_their_share():
    (found,) = stepping_spans([stretch(0, 1, 5, 0.5, eval_s=0.25, slowed_s=0.25)], 0.0)
    assert found.steps_ratio == pytest.approx(0.5)
