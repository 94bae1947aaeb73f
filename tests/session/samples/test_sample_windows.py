"""Samples since the last step belong to none that has ended: once the one under way is long, they explain none."""

from __future__ import annotations

import pytest
from msgspec import structs

from tests.session.records import frames, header, process, session_of, stacks, steps
from tuimon.session.samples.sample_windows import RunSamples
from tuimon.session.state import run_state
from tuimon.session.windows import Span

FRAMES = frames(
    ("/home/me/train.py", 2, "<module>", "loss.backward()", True),
    ("/v/site-packages/torch/_tensor.py", 1, "backward", "", False),
    ("/home/me/train.py", 9, "evaluate", "scores.append(rank(model))", True),
    ("/home/me/train.py", 8, "evaluate", "for batch in held_out:", True),
    ("/v/site-packages/torch/utils/data/dataloader.py", 1, "__next__", "", False),
)
STEP = {"data": 10, "forward": 50, "backward": 40}
TRAINING, EVALUATION, FETCHING = ([0, 1], 30), ([2], 30), ([3, 4], 30)


def lines(sampled):
    return {row.place.line: row.samples for row in sampled.hot_lines()}


def trained(seconds):
    found = [header(), process(), FRAMES]
    for t in range(1, seconds + 1):
        found += [steps(t, STEP, first_index=10 * t), stacks(t, TRAINING)]
    return session_of(*found)


def test_a_long_evaluation_at_the_end_explains_no_step():
    session = trained(3)
    for t in range(4, 44):
        session.add(steps(t, {}, count=0, first_index=40))
        session.add(stacks(t, EVALUATION))
    sampled = session.over("recent").process_samples(100)
    assert lines(sampled) == {2: 90}
    assert lines(sampled.now()) == {9: 930}  # 31 windows, as anywhere


def test_once_its_step_has_ended_it_counts():
    session = trained(3)
    for t in range(4, 9):
        session.add(steps(t, {}, count=0, first_index=40))
        session.add(stacks(t, EVALUATION))
    session.add(steps(9, STEP, count=1, first_index=40))
    sampled = session.over("recent").process_samples(100)
    assert lines(sampled) == lines(sampled.now()) == {2: 90, 9: 150}


@pytest.mark.parametrize("lag", [1, 2])
def test_samples_that_come_before_their_steps_count(lag):
    session = trained(3)
    for t in range(4, 4 + lag):
        session.add(stacks(t, TRAINING))
    assert lines(session.over("recent").process_samples(100)) == {2: 90 + 30 * lag}


def test_without_steps_all_samples_count():
    session = session_of(header(), process(markers=False), FRAMES)
    for t in range(1, 5):
        session.add(stacks(t, TRAINING if t < 3 else EVALUATION))
    assert lines(session.over("recent").process_samples(100)) == {2: 60, 9: 60}


def unmarked(*windows):
    """A process without markers, with these samples, a second each."""
    session = session_of(header(), process(markers=False), FRAMES)
    for t, samples in enumerate(windows, 1):
        session.add(stacks(t, samples))
    return session


def test_what_follows_the_last_update_for_long_is_no_part_of_a_step_without_markers():
    session = unmarked(*[TRAINING] * 3, *[EVALUATION] * 20)
    assert lines(session.over("recent").process_samples(100)) == {2: 90}
    assert lines(session.over("recent").process_samples(100).now()) == {2: 90, 9: 600}
    assert lines(session.over("whole").process_samples(100)) == {2: 90}
    assert {row.name: row.share for row in session.over("recent").phases(100).rows}["backward"] == 1.0


def test_once_the_loop_goes_on_without_markers_it_counts():
    session = unmarked(*[TRAINING] * 3, *[EVALUATION] * 20, TRAINING)
    assert (
        lines(session.over("recent").process_samples(100))
        == lines(session.over("whole").process_samples(100))
        == {2: 120, 9: 600}
    )


def test_rollouts_as_long_as_those_before_count_without_markers_before_the_next_update():
    session = unmarked(TRAINING, *[EVALUATION] * 8, TRAINING, *[EVALUATION] * 8)
    assert (
        lines(session.over("recent").process_samples(100))
        == lines(session.over("whole").process_samples(100))
        == {2: 60, 9: 480}
    )


@pytest.mark.parametrize(("pause_s", "state"), [(8, "training"), (9, "between_steps")])
def test_a_loop_that_few_samples_show_has_paused_once_some_would_have_shown_it(pause_s, state):
    """One of 90 samples is in backward: among 30 a second, three are within 9 s."""
    session = session_of(header(), process(markers=False), FRAMES)
    for t in range(1, 5 + pause_s):
        session.add(stacks(float(t), *([([0, 1], 1), ([2], 89)] if t < 5 else [EVALUATION])))
    assert run_state(session).name == state


def test_an_evaluation_that_fetches_counts_without_markers():
    session = unmarked(*[TRAINING] * 3, *[FETCHING] * 5)
    assert sum(lines(session.over("recent").process_samples(100)).values()) == 240


def test_what_a_hang_shows_in_the_window_of_the_last_step_divides_no_step():
    """The last step ended 0.3 s into its window, and samples come from half a second before that on."""
    session = session_of(header(), process(), FRAMES, steps(1, STEP))
    for t in range(2, 5):
        session.add(steps(t, STEP, first_index=10 * t, open_phase="between", open_for_s=0.01 if t < 4 else 0.7))
        session.add(stacks(t - 0.2, TRAINING if t < 4 else EVALUATION))
    for t in range(5, 10):
        session.add(stacks(t - 0.2, EVALUATION))
        session.add(steps(t, {}, count=0, first_index=50, open_phase="between", open_for_s=t - 3.3))
    sampled = session.over("recent").process_samples(100)
    assert lines(sampled) == lines(session.over("whole").process_samples(100)) == {2: 60}
    assert lines(sampled.now()) == {2: 60, 9: 180}
    session.add(steps(10, STEP, count=1, first_index=50))  # it goes on: that was a part of a step
    assert lines(sampled) == {2: 60, 9: 180}


def counts_of(windows):
    found = {}
    for stack in (stack for record in windows for stack in record.stacks):
        found[tuple(stack.frames)] = found.get(tuple(stack.frames), 0) + stack.count
    return found


def run_of(seconds, limit=32):
    """Every eighth second saves a checkpoint (stack 1), the others train."""
    samples = RunSamples(limit)
    for t in range(1, seconds + 1):
        samples.append(stacks(float(t), ([1 if t % 8 == 1 else 2], 20)))
    return samples


@pytest.mark.parametrize("seconds", [64, 100, 1600, 7200])
def test_every_sample_counts_however_regular_the_run_and_however_long(seconds):
    samples = run_of(seconds)
    checkpoints = len(range(1, seconds + 1, 8))
    assert counts_of(samples.between(Span())) == {(1,): 20 * checkpoints, (2,): 20 * (seconds - checkpoints)}
    assert len(samples.between(Span())) <= 64


def test_the_latest_windows_stay_and_older_ones_follow_each_other_without_a_gap():
    windows = run_of(13, limit=4).between(Span())
    assert [record.window_s for record in windows[-4:]] == [1.0] * 4
    assert [record.t - record.window_s for record in windows] == [0.0, *(record.t for record in windows[:-1])]
    assert len(windows) <= 8


def test_windows_of_ten_seconds_count_as_ten_of_one_second():
    fine, coarse = RunSamples(), RunSamples()
    for t in range(1, 601):
        fine.append(stacks(float(t), ([1 if t % 10 == 3 else 2], 20)))
        if t <= 300:
            coarse.append(stacks(float(t), ([1 if t % 10 == 3 else 2], 20)))
        elif t % 10 == 0:
            coarse.append(structs.replace(stacks(float(t), ([1], 20), ([2], 180)), window_s=10.0))
    assert counts_of(coarse.between(Span())) == counts_of(fine.between(Span()))


def test_what_was_before_a_span_or_after_it_is_no_part_of_it():
    samples = run_of(1600)
    inside = samples.between(Span(400.0, 1200.0))
    assert inside
    assert all(record.t - record.window_s >= 400.0 and record.t <= 1200.0 for record in inside)
    samples.keep(lambda record: record.t - record.window_s >= 1500.0)
    assert all(record.t - record.window_s >= 1500.0 for record in samples.between(Span()))
    assert len(samples.between(Span())) >= 32


def test_a_window_holds_its_most_frequent_stacks():
    samples = RunSamples(limit=1)
    for t in range(1, 20):
        samples.append(stacks(float(t), ([0], 30), *(([1000 * t + n], 1) for n in range(100))))
    older = samples.between(Span())[0]
    assert len(older.stacks) <= 128
    assert older.stacks[0].frames == [0]
