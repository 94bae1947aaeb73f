"""Steps of a loop without backward: its batches, or the calls of ``tuimon.step()``."""

import pytest

from tests.sources.loop.loop_script import MS, Played, markers, ms, play

BATCH = "fetch:5 wait:20 "
TRAIN = "fetch:5 wait:3 bwd:4 opt:2 wait:1 "


def test_each_batch_is_a_step_if_nothing_trains():
    played = play(BATCH, 40)
    assert [ms(step.phases) for step in played.steps] == [{"data": 5, "between": 20}] * 39
    assert played.eval_count == 0


@pytest.mark.parametrize(("fetch_ms", "batches"), [(50, 40), (2500, 10)])
def test_batches_that_take_longer_to_fetch_than_to_use_are_steps(fetch_ms, batches):
    played = play(f"fetch:{fetch_ms} wait:1 ", batches + 20, finish=False)
    assert len(played.steps) >= batches
    assert {step.total_ns for step in played.steps} == {(fetch_ms + 1) * MS}


@pytest.mark.parametrize("batches", [4, 200])
def test_an_evaluation_before_the_training_leaves_no_step(batches):
    before = "fetch@2:5 wait:20 " * batches + "stop@2:1 "
    played = Played(markers(before + TRAIN * 10))
    assert (len(played.steps), played.eval_count) == (10, batches)
    assert all(step.backwards == 1 for step in played.steps)


def test_steps_that_were_told_before_the_training_are_taken_back():
    played = Played(markers("fetch@2:5 wait:20 " * 100 + "stop@2:1 "), finish=False)
    assert len(played.steps) == 100
    for marker in markers(TRAIN * 10, start_ns=100_000 * MS):
        played.machine.feed(*marker)
    played.machine.steps.finish()
    assert played.machine.steps.begins_anew
    assert len(played.machine.steps.take_ended()) == 10


def test_the_program_may_say_how_many_batches_make_a_step():
    played = play(BATCH * 3 + "step ", 5)
    assert [ms(step.phases) for step in played.steps] == [{"data": 15, "between": 60}] * 5


def test_steps_that_the_program_marks_are_left_to_samples_if_nothing_else_is_marked():
    played = play("wait:7 step ", 4)
    assert [ms(step.phases) for step in played.steps[1:]] == [{"between": 7}] * 3


def test_the_first_call_counts_though_it_is_unknown_how_long_its_step_took():
    played = play("wait:7 step ", 50)
    assert len(played.steps) == 50
    assert [step.usual for step in played.steps[:2]] == [False, True]


def test_a_program_with_an_optimizer_only_evaluates_before_it_trains():
    played = Played(markers("made " + BATCH * 100), finish=False)
    assert (len(played.steps), played.eval_count) == (0, 99)
