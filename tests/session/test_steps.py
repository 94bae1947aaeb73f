"""Steps and phases: what the fold makes of Steps records."""

import pytest
from msgspec import structs

from tests.session.records import (
    frames,
    header,
    hot_lines,
    loop,
    one_process,
    process,
    session_of,
    stacks,
    steps,
    total_of,
)
from tuimon.records import Loader, RangeTime, RankStep
from tuimon.session.series import WHOLE_RUN, Span

PHASES = {"data": 40, "forward": 20, "backward": 25, "optimizer": 10, "other": 5}


def shares(table):
    return {row.name: round(row.share, 3) for row in table.rows}


def test_phases_are_shares_of_the_step_and_add_up():
    session = session_of(loop(5, PHASES))
    table = session.over("recent").of(100).phases
    assert shares(table) == {"data": 0.4, "forward": 0.2, "backward": 0.25, "optimizer": 0.1, "other": 0.05}
    assert table.rows[0].ms_per_step == pytest.approx(40)
    assert not any(row.estimated for row in table.rows)
    assert table.steps == 50


def test_nothing_before_the_first_step():
    session = session_of(header(), steps(1.0, {}, count=0))
    assert not session.over("recent").of(100).phases
    assert session.over("recent").of(100).steps.per_second is None
    assert session.over("recent").of(100).steps.median_ms is None
    assert [row.mean_ms for row in session.step_stats[100].windows()] == [None]


def test_quantiles_merge_over_windows():
    made = (10, 60), (20, 30), (80, 10)
    session = session_of(steps(t, {"forward": ms}, count=count) for t, (ms, count) in enumerate(made, 1))
    summary = session.over("recent").of(100).steps
    assert summary.median_ms == pytest.approx(10, rel=0.01)
    assert summary.p95_ms == pytest.approx(80, rel=0.01)
    assert summary.per_second == pytest.approx(100 / 3)


def test_the_window_forgets():
    old = [steps(t, {"data": 90, "forward": 10}) for t in range(1, 20)]
    new = [steps(t, {"data": 10, "forward": 90}) for t in range(60, 80)]
    session = session_of(*old, *new)
    assert shares(session.over("recent").of(100).phases)["data"] == 0.1
    assert shares(session.over("whole").of(100).phases)["data"] == pytest.approx(0.49, abs=0.02)


def test_evaluation_stands_beside_the_steps():
    evaluates = steps(2, {**PHASES, "eval": 20}, count=5, eval_count=4)
    session = session_of(steps(1, PHASES, eval_count=4), evaluates, steps(3, PHASES))
    table = session.over("recent").of(100).phases
    rows = {row.name: row for row in table.rows}
    assert rows["eval"].ms_per_step == pytest.approx(100 / 8)
    assert sum(row.share for row in table.rows if row.name != "eval") == pytest.approx(1)


def test_warmup_is_kept_out_of_the_figures():
    usual = [steps(t, {"data": 1, "forward": 9}, first_index=t) for t in (2, 3)]
    session = session_of(steps(1, {"data": 900, "forward": 10}, count=1), usual)
    assert shares(session.over("whole").of(100).phases)["data"] == 0.1
    assert shares(session.over("recent").of(100).phases)["data"] == 0.1


def test_ranges_nest_and_are_per_step():
    ranges = [RangeTime("batch", 10, 500_000_000, "forward"), RangeTime("batch/loss", 20, 100_000_000, "forward")]
    session = session_of(*(steps(t, PHASES, ranges=ranges) for t in (1, 2)))
    batch, loss = session.over("recent").of(100).phases.ranges
    assert (batch.name, batch.depth, batch.per_step, batch.ms_per_step) == ("batch", 0, 1.0, pytest.approx(50))
    assert (loss.name, loss.depth, loss.per_step, loss.share) == ("loss", 1, 2.0, pytest.approx(0.1))


def test_between_is_forward_until_samples_divide_it():
    session = session_of(steps(1, {"between": 60, "backward": 40}), steps(2, {"between": 60, "backward": 40}))
    table = session.over("recent").of(100).phases
    assert shares(table)["forward"] == 0.6
    assert {row.name for row in table.rows if row.estimated} == {"forward"}


# The user's loop:            line
#   x = get_batch()             10   calls get_batch, line 3
#   loss = model(x)             11
#   loss.backward()             12
#   opt.step()                  13
#   log(loss)                   14   calls log, line 5
LOOP_FRAMES = frames(
    ("train.py", 10, "main", "x = get_batch()", True),
    ("train.py", 3, "get_batch", "return torch.randn(8)", True),
    ("train.py", 11, "main", "loss = model(x)", True),
    ("/lib/site-packages/torch/nn/modules/module.py", 99, "_call_impl"),
    ("train.py", 12, "main", "loss.backward()", True),
    ("/opt/tuimon/agent/hooks.py", 7, "tuimon_backward"),
    ("train.py", 13, "main", "opt.step()", True),
    ("/lib/site-packages/torch/optim/sgd.py", 9, "step"),
    ("train.py", 14, "main", "log(loss)", True),
    ("log.py", 5, "log", "time.sleep(1)", True),
)
LOOP_SAMPLES = (([0, 1], 30), ([2, 3], 20), ([4, 5], 25), ([6, 7], 15), ([8, 9], 10))


def divided(*more):
    """The table of a step whose time between two backwards samples divide."""
    return session_of(LOOP_FRAMES, steps(1, {"between": 60, "backward": 40}), *more).over("recent").of(100).phases


def test_samples_divide_what_markers_cannot():
    table = divided(stacks(1, *LOOP_SAMPLES))
    assert shares(table) == {"data": 0.3, "forward": 0.2, "backward": 0.4, "optimizer": 0.0, "other": 0.1}
    assert all(row.error > 0 for row in table.rows if row.estimated)


def test_a_phase_that_no_sample_was_in_takes_little_not_nothing():
    samples = LOOP_SAMPLES[:-1]  # none in log()
    table = divided(stacks(1, *samples))
    rows = {row.name: row for row in table.rows}
    assert (rows["data"].share, rows["other"].share) == (pytest.approx(0.36), 0.0)
    assert rows["other"].estimated
    assert rows["other"].error == pytest.approx(0.6 / 50)
    assert not rows["backward"].estimated
    assert not rows["optimizer"].estimated


def test_a_loader_that_has_only_begun_to_evaluate_does_not_make_the_batches_of_training():
    """The first fetch of the first evaluation is at the end of a window: what its batch is for is not yet known."""
    begun = Loader(t=1, pid=100, number=0, window_s=1.0, fetches=1)
    later = structs.replace(begun, t=2, role="eval")
    division = (steps(2, {"between": 60, "backward": 40}), stacks(2, *LOOP_SAMPLES, ([10, 3], 3)))
    line = frames(("train.py", 9, "main", "x = next(made)", True), first=10)
    found = session_of(LOOP_FRAMES, line, begun, later, *division)
    without = session_of(LOOP_FRAMES, line, *division)
    assert [sample.excluded for sample in found.over("recent").of(100).samples.rows] == [
        sample.excluded for sample in without.over("recent").of(100).samples.rows
    ]
    assert shares(found.over("recent").of(100).phases) == shares(without.over("recent").of(100).phases)


def test_samples_of_the_set_up_divide_nothing():
    set_up = stacks(5, ([0, 1], 400))
    session = session_of(LOOP_FRAMES, set_up, steps(7, {"between": 60, "backward": 40}), stacks(7, *LOOP_SAMPLES))
    assert shares(session.over("recent").of(100).phases)["data"] == 0.3
    assert total_of(hot_lines(session.over("recent"), 100, "data")[0]) == 30


def test_a_long_window_that_spans_set_up_and_steps_is_cut_at_the_first_step():
    first = steps(10, {"between": 60, "backward": 40}, window_s=10.0, first_step_s=8.0, first_backward_s=8.06)
    set_up, spanning = stacks(7.5, ([0, 1], 400)), stacks(8.5, ([0, 1], 400), ([4, 5], 1))
    session = session_of(LOOP_FRAMES, set_up, spanning, stacks(9.5, *LOOP_SAMPLES), first)
    assert shares(session.over("recent").of(100).phases)["data"] == 0.3
    assert total_of(hot_lines(session.over("recent"), 100)[0]) == 100
    assert session.over("recent").of(100).phases.window_s == 2.0
    assert session.over("recent").of(100).steps.per_second == 5.0  # ten steps in the two seconds since the first began


def test_without_the_first_step_in_the_log_it_began_at_most_so_many_step_lengths_ago():
    first = steps(10, {"between": 60, "backward": 40}, window_s=10.0)  # ten steps of 100 ms
    session = session_of(process(), LOOP_FRAMES, stacks(8.5, ([0, 1], 400)), stacks(10, *LOOP_SAMPLES), first)
    assert total_of(hot_lines(session.over("recent"), 100)[0]) == 100


def test_what_the_first_backward_shows_is_of_the_loop_though_no_whole_step_holds_it():
    begin = steps(10, {}, count=0, backwards=1, first_backward_s=9.5)
    session = session_of(LOOP_FRAMES, begin, stacks(10.6, *LOOP_SAMPLES))
    session.add(steps(11, {"between": 60, "backward": 40}, count=1, first_step_s=10.1))
    assert total_of(hot_lines(session.over("recent"), 100)[0]) == 100


def test_nothing_is_inferred_while_markers_may_yet_come():
    waiting = process(markers=False, markers_reason="no torch imported yet")
    session = session_of(header(), waiting, LOOP_FRAMES, stacks(2, *LOOP_SAMPLES), stacks(4, *LOOP_SAMPLES))
    assert not session.over("recent").of(100).phases
    session.add(stacks(6, *LOOP_SAMPLES))  # longer than two intervals: these hooks do not work
    assert session.over("recent").of(100).phases.inferred


def test_nothing_is_inferred_before_a_whole_step_was_seen():
    set_up = one_process(LOOP_FRAMES, markers=False)
    set_up.add(structs.replace(stacks(1, ([4, 5], 40)), cycles=1))  # one backward may be a trial, or a long step
    assert not set_up.over("recent").of(100).phases
    set_up.add(structs.replace(stacks(2, *LOOP_SAMPLES), cycles=1))
    assert set_up.over("recent").of(100).phases.inferred


def test_the_history_is_divided_like_the_table():
    session = session_of(LOOP_FRAMES, steps(1, {"between": 60, "backward": 40}), stacks(1, *LOOP_SAMPLES))
    session.add(steps(2, {}, count=0))
    row, none = session.step_stats[100].windows(last=5)
    between = session.over("recent").of(100).split.parts
    assert row.stacked_ms(between) == pytest.approx((30, 20, 40, 0, 10))
    assert none.stacked_ms(between) is None
    assert session.step_stats[100].windows(last=1) == [none]


def test_without_markers_the_table_covers_as_much_as_was_sampled():
    session = one_process(LOOP_FRAMES, markers=False)
    covered = []
    for t in range(1, 41):
        session.add(stacks(t, *LOOP_SAMPLES))
        covered.append(session.over("recent").of(100).phases.window_s)
    assert covered[:3] == [1, 2, 3]
    assert covered[-1] == pytest.approx(30, abs=1.5)


IMPORTING = frames(
    ("train.py", 10, "main", "import pandas", True),
    ("<frozen importlib._bootstrap>", 9, "_find_and_load"),
    ("run.py", 1, "<module>", "import train", True),
    first=20,
)


def test_a_loop_that_runs_while_its_module_is_imported_has_its_lines():
    session = session_of(LOOP_FRAMES, IMPORTING, steps(1, {"between": 60, "backward": 40}))
    session.add(stacks(1, *(([22, 21, *ids], n) for ids, n in LOOP_SAMPLES)))
    assert total_of(hot_lines(session.over("recent"), 100)[0]) == 100


def test_before_a_forward_pass_was_seen_the_lines_of_the_loop_divide_nothing():
    few, many = (divided(stacks(1, ([0, 1], 60 * n), ([4, 5], 40 * n))) for n in (1, 10))
    assert shares(few)["forward"] == 0.6
    assert next(row.error for row in few.rows if row.name == "forward") == pytest.approx(0.6)
    assert next(row.error for row in many.rows if row.name == "forward") < 0.01


def test_what_an_optimizer_does_between_its_closures_is_its_own():
    """LBFGS: from one backward to the next lie its own work and a forward pass."""
    lines = frames(
        ("train.py", 20, "main", "optimizer.step(closure)", True),
        ("/lib/site-packages/torch/optim/lbfgs.py", 400, "step"),
        ("train.py", 10, "closure", "loss = model(x)", True),
        ("/lib/site-packages/torch/nn/modules/module.py", 99, "_call_impl"),
        ("train.py", 11, "closure", "loss.backward()", True),
        ("/opt/tuimon/agent/hooks.py", 9, "tuimon_backward"),
    )
    windows = loop(4, {"between": 50, "backward": 45, "optimizer": 5})
    samples = stacks(4, ([0, 1], 25), ([0, 1, 2, 3], 30), ([0, 1, 4, 5], 45))
    found = shares(session_of(lines, *windows, samples).over("recent").of(100).phases)
    assert (found["optimizer"], found["forward"], found["backward"]) == (0.25, 0.3, 0.45)


def test_steps_that_a_profiler_slowed_are_counted_but_not_timed():
    usual = loop(5, PHASES)
    # of these ten, five took 4 s in all
    slowed = steps(6, PHASES, count=5, first_index=50, window_s=4.5)
    slowed = structs.replace(slowed, count=10, slowed=5, slowed_ns=4_000_000_000)
    only = steps(7, {}, count=0, first_index=60, window_s=2.0)
    only = structs.replace(only, count=2, slowed=2, slowed_ns=2_000_000_000)
    session = session_of(*usual, slowed, only, steps(8, PHASES, first_index=62))
    plain = session_of(*usual, steps(6, PHASES, count=5, first_index=50, window_s=0.5))
    summary, expected = session.over("recent").of(100).steps, plain.over("recent").of(100).steps
    assert summary.total == 72
    assert summary.per_second == pytest.approx(expected.per_second, rel=0.05)
    assert (summary.median_ms, summary.p95_ms, summary.timed_ratio) == (expected.median_ms, expected.p95_ms, None)
    assert (
        shares(session.over("recent").of(100).phases)
        == shares(session.over("whole").of(100).phases)
        == shares(plain.over("recent").of(100).phases)
    )
    assert session.over("recent").of(100).phases.rows[0].ms_per_step == pytest.approx(40)
    means_ms = [row.mean_ms for row in session.step_stats[100].windows()]
    assert means_ms == [pytest.approx(100)] * 6 + [None, pytest.approx(100)]


def test_steps_of_a_rank_come_back_as_they_were() -> None:
    rows = [RankStep(2**40, 1_500_000, 1, 2, 3, 4, 5, 6), RankStep(2**40 + 1, 0, 0, 0, 4 * 10**9, 0, 0, 0)]
    shared = session_of(steps(50.0, {"data": 1}, rank_steps=rows)).step_stats[100].shared
    assert shared.over(WHOLE_RUN) == [(2**40, 48.5, 1, 2, 3, 4, 5, 6), (2**40 + 1, 50.0, 0, 0, 4 * 10**9, 0, 0, 0)]
    assert shared.over(WHOLE_RUN)[1].parts_us[2] == 4 * 10**9
    assert [step.number for step in shared.over(Span(49.0))] == [2**40 + 1]
