"""The wall time of a run, on literal sessions."""

import pytest
from msgspec.structs import replace

from tests.session.records import frames, header, process, session_of, stacks, steps
from tuimon.records import Compiler, CompilerEvents, Exit
from tuimon.session.goodput import Goodput, goodput
from tuimon.views.goodput_text import goodput_json, goodput_text

PHASES = {"forward": 40, "backward": 40, "other": 20}
LINES = frames(
    ("train.py", 12, "main", "loss.backward()", True),
    ("/opt/tuimon/agent/hooks.py", 7, "tuimon_backward"),
    ("train.py", 20, "main", "torch.save(model.state_dict(), path)", True),
    ("/lib/site-packages/torch/serialization.py", 943, "save"),
    ("train.py", 21, "main", "log(loss)", True),
)


def run(*more, mode="run", ended_s=None, samples=()):
    """Nothing until 4 s, ten steps a second until 24 s; then whatever follows."""
    session = session_of(replace(header(), mode=mode), process(), LINES)
    for t in range(5, 25):
        session.add(steps(t, PHASES, first_index=10 * (t - 5), first_step_s=4.0 if t == 5 else None))
        session.add(stacks(t, *samples))
    for record in more:
        session.add(record)
    if ended_s is not None:
        session.add(Exit(t=ended_s, pid=100, exit_code=0))
    return goodput(session, 100), session


def idle(t, **more):
    """A second without a step."""
    return steps(t, {}, count=0, first_index=200, **more)


def test_each_second_is_in_one_part():
    found, _ = run(ended_s=24.0)
    assert found == Goodput(training=20.0, start=4.0, compiling=0, evaluation=0, checkpoints=0, outside=0, after=0)
    assert found.wall_s == 24.0


def test_what_follows_the_last_step_of_a_run_that_has_ended_is_after_it():
    found, _ = run(ended_s=40.0)
    assert (found.training, found.after) == (20.0, 16.0)


def test_a_step_under_way_is_training():
    found, _ = run(idle(25), idle(26))
    assert (found.training, found.after) == (22.0, 0.0)


def test_evaluation_and_the_time_outside_the_loop_are_not_training_nor_after_it():
    evaluated = [replace(idle(t), phases=steps(t, {"eval": 1000}, count=1).phases, eval_count=9) for t in (25, 26)]
    found, _ = run(*evaluated, idle(27, outside_s=1.0), ended_s=30.0)
    assert (found.evaluation, found.outside, found.after, found.training) == (2.0, 1.0, 3.0, 20.0)


def test_torch_compile_and_checkpoints_are_told_from_steps():
    compiled = Compiler(t=24.0, pid=100, window_s=1.0, events=[CompilerEvents("compiled", 2, 3_000_000_000)])
    after = [stacks(t, ([4], 30)) for t in (26, 27)]  # what is done after the last step says nothing of the steps
    found, _ = run(compiled, *after, ended_s=24.0, samples=(([0, 1], 8), ([2, 3], 3), ([4], 1)))
    assert found.compiling == 3.0
    assert found.checkpoints == pytest.approx(0.75 * 0.2 * 20)
    assert found.wall_s == 24.0


def test_parts_never_exceed_the_wall_time():
    compiled = Compiler(t=24.0, pid=100, window_s=1.0, events=[CompilerEvents("compiled", 2, 90_000_000_000)])
    found, _ = run(compiled, ended_s=24.0)
    assert (found.compiling, found.training, found.wall_s) == (20.0, 0.0, 24.0)


def test_after_attaching_the_run_begins_with_its_first_step():
    found, _ = run(mode="attach", ended_s=24.0)
    assert (found.start, found.training) == (0.0, 20.0)


def test_without_a_step_there_is_none():
    session = session_of(header(), process())
    assert goodput(session, 100) is None and goodput_text(session) == "" and goodput_json(session) == {}


def test_in_words_the_largest_part_beside_training_comes_first():
    _, session = run(ended_s=40.0)
    assert goodput_text(session) == "50 % training, 40 % after the last step, 10 % start, of 40s"
    assert goodput_json(session)["seconds"]["after"] == 16.0
