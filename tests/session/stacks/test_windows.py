"""Samples since the last step belong to none that has ended: once the one under way is long, they explain none."""

from itertools import pairwise

import pytest

from tests.session.records import extend, frames, header, loop, one_process, process, session_of, stacks, steps
from tuimon.session.series import WHOLE_RUN, Span
from tuimon.session.stacks.process import RECENT, Windows
from tuimon.session.stacks.trie import Trie, Window
from tuimon.session.state import run_state

FRAMES = frames(
    ("/home/me/train.py", 2, "<module>", "loss.backward()", True),
    ("/v/site-packages/torch/_tensor.py", 1, "backward", "", False),
    ("/home/me/train.py", 9, "evaluate", "scores.append(rank(model))", True),
    ("/home/me/train.py", 8, "evaluate", "for batch in held_out:", True),
    ("/v/site-packages/torch/utils/data/dataloader.py", 1, "__next__", "", False),
)
STEP = {"data": 10, "forward": 50, "backward": 40}
TRAINING, EVALUATION, FETCHING = ([0, 1], 30), ([2], 30), ([3, 4], 30)


def lines(session, over="recent"):
    """Samples by line over a span; ``now``: with those of the step under way."""
    samples = session.stacks[100].over(now=True) if over == "now" else session.over(over).of(100).samples
    return {row.place.line: row.samples for row in samples.lines()}


def test_a_long_evaluation_at_the_end_explains_no_step():
    session = one_process(FRAMES, loop(3, STEP, TRAINING))
    extend(session, loop(range(4, 44), {}, EVALUATION, count=0, first_index=30))
    assert lines(session) == {2: 90}
    assert lines(session, "now") == {9: 900}


def unmarked(*sampled):
    """A process without markers, with these samples, a second each."""
    return one_process(FRAMES, [stacks(t, samples) for t, samples in enumerate(sampled, 1)], markers=False)


def test_what_follows_the_last_update_for_long_is_no_part_of_a_step_without_markers():
    session = unmarked(*[TRAINING] * 3, *[EVALUATION] * 20)
    assert lines(session) == {2: 90}
    assert lines(session, "now") == {2: 90, 9: 600}
    assert lines(session, "whole") == {2: 90}
    assert {row.name: row.share for row in session.over("recent").of(100).phases.rows}["backward"] == 1.0


@pytest.mark.parametrize(
    ("sampled", "found"),
    [
        ([TRAINING] * 2 + [EVALUATION] * 2, {2: 60, 9: 60}),
        ([TRAINING] * 3 + [EVALUATION] * 20 + [TRAINING], {2: 120, 9: 600}),  # the loop goes on
        # rollouts as long as those before count before the next update; so does an evaluation that fetches
        (([TRAINING] + [EVALUATION] * 8) * 2, {2: 60, 9: 480}),
        ([TRAINING] * 3 + [FETCHING] * 5, {2: 90, 8: 150}),
    ],
)
def test_without_markers_all_samples_count_that_may_be_of_a_step(sampled, found):
    session = unmarked(*sampled)
    assert lines(session) == lines(session, "whole") == found


@pytest.mark.parametrize(("pause_s", "state"), [(8, "training"), (9, "between_steps")])
def test_a_loop_that_few_samples_show_has_paused_once_some_would_have_shown_it(pause_s, state):
    """One of 90 samples is in backward: among 30 a second, three are within 9 s."""
    seconds = range(1, 5 + pause_s)
    few = [stacks(float(t), *([([0, 1], 1), ([2], 89)] if t < 5 else [EVALUATION])) for t in seconds]
    session = one_process(FRAMES, few, markers=False)
    assert run_state(session).name == state


@pytest.mark.parametrize("is_asked", [True, False])
def test_a_backward_seen_long_ago_tells_the_lines_above_it_whether_anybody_asked_meanwhile(is_asked):
    above = frames(("/home/me/train.py", 1, "<module>", "total = total + x[i]", True), first=10)
    session = one_process(FRAMES, above)
    for t in range(1, 50):
        session.add(steps(t, {"between": 90, "backward": 10}, first_index=10 * t))
        session.add(stacks(t, TRAINING if t == 5 else ([10], 5)))
        if is_asked:
            _ = session.over("recent").of(100).phases
    (row,) = session.over("recent").of(100).samples.rows
    assert (row.phase, row.unsure) == ("data", False)


def test_of_many_ranks_sixteen_at_a_time_show_their_newest_samples():
    ranks = range(100, 148)
    session = session_of(header(), FRAMES, *(process(pid, rank=pid - 100, world_size=48) for pid in ranks))
    totals = []
    for t in range(1, 9):
        extend(session, [steps(t, STEP, pid=pid, first_index=10 * t) for pid in ranks])
        extend(session, [stacks(t, TRAINING, pid=pid) for pid in ranks])
        totals.append([session.over("recent").of(pid).samples.total for pid in ranks])
        assert totals[-1][0] == 30 * t  # the rank in focus
    for before, after in pairwise(totals[1:]):
        assert sum(one != other for one, other in zip(before[1:], after[1:], strict=True)) in (15, 16)
    assert min(totals[-1]) >= 30 * 6


TRIE = Trie()


def window(t, *counted, window_s=1.0):
    return Window(t - window_s, t, {100: {TRIE.node([number]): count for number, count in counted}})


def counts_of(windows, span=WHOLE_RUN):
    return {node.ids: count for node, count in windows.of(100).counts(span).items()}


def covered_s(windows, span=WHOLE_RUN):
    row = windows.of(100).over(span)
    return row.end_s - row.begin_s


def run_of(seconds):
    """Every eighth second saves a checkpoint (stack 1), the others train."""
    windows = Windows()
    for t in range(1, seconds + 1):
        windows.add(window(float(t), (1 if t % 8 == 1 else 2, 20)))
    return windows


@pytest.mark.parametrize("seconds", [64, 100, 1600, 7200])
def test_every_sample_counts_however_regular_the_run_and_however_long(seconds):
    checkpoints = len(range(1, seconds + 1, 8))
    assert counts_of(run_of(seconds)) == {(1,): 20 * checkpoints, (2,): 20 * (seconds - checkpoints)}


def test_what_was_before_a_span_or_after_it_is_no_part_of_it():
    windows = run_of(1600)
    inside = Span(400.0, 1200.0)
    assert 700.0 <= covered_s(windows, inside) <= 800.0
    assert sum(counts_of(windows, inside).values()) == 20 * covered_s(windows, inside)
    windows.leave_out_before(1500.0)
    assert covered_s(windows) <= 100.0
    assert covered_s(windows, RECENT) == 30.0


def test_rare_stacks_of_long_ago_count_for_their_callers():
    windows = Windows()
    for t in range(1, 200):
        rare = {TRIE.node([0, 1000 * t + n]): 1 for n in range(100)}
        windows.add(Window(t - 1.0, float(t), {100: {TRIE.node([0, 1]): 30, **rare}}))
    older = counts_of(windows, Span(end_s=100.0))
    assert sum(older.values()) == 130 * covered_s(windows, Span(end_s=100.0))
    assert older[0,] > 80 * 100
    assert len(older) < 2000  # of 10,000


# -- samples of a program that was outside its loop show nothing of its steps


@pytest.mark.parametrize("samples_first", [False, True])
def test_windows_outside_the_loop_are_left_out(samples_first):
    session = one_process(FRAMES, loop(4, STEP), stacks(4, TRAINING))
    for t in range(5, 9):
        pair = [steps(t, {}, count=0, first_index=40, outside_s=1.0), stacks(t, EVALUATION)]
        extend(session, reversed(pair) if samples_first else pair)
    assert lines(session) == {2: 30}
    extend(session, steps(9, STEP, first_index=40), stacks(9, TRAINING))
    assert lines(session) == {2: 60}


def test_a_window_that_was_mostly_inside_stays():
    session = one_process(FRAMES, loop(4, STEP), steps(5, STEP, first_index=40, outside_s=0.3))
    session.add(stacks(5, ([0, 1], 21), ([2], 9)))
    assert lines(session) == {2: 21, 9: 9}
