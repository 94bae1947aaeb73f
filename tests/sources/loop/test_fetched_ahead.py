"""Batches fetched in a row: ahead of those that train, or evaluated."""

from __future__ import annotations

import pytest

from tests.sources.loop.loop_script import MS, Played, markers, ms, play
from tuimon.agent.ring.layout import LOADER_SHIFT

TRAIN = "wait:3 bwd:4 "
UPDATE = "opt:2 wait:1 "


def iterator(loader: int, number: int) -> int:
    return loader << LOADER_SHIFT | number


def in_groups(batches: int, of: int = 1) -> str:
    """A step that fetches all the batches it accumulates over before it trains on the first."""
    return f"fetch@{of}:5 wait:0.1 " * batches + TRAIN * batches + UPDATE


@pytest.mark.parametrize("batches", [2, 4, 40])
def test_batches_that_a_step_accumulates_over_are_fetched_before_it_trains(batches):
    played = Played(markers("made " + in_groups(batches) * 5))
    assert played.eval_count == (0 if batches == 2 else batches - 1)  # of the first step, which may be an evaluation
    assert len(played.steps) == 5
    step = ms(played.steps[2].phases)
    assert step["data"] == 5 * batches and step["backward"] == 4 * batches and "eval" not in step


def test_what_an_epoch_has_left_is_trained_on_after_its_end():
    """Each epoch has an iterator of its own, and ends with two batches where a step takes four."""
    groups = "".join(
        in_groups(4, at) * 2 + f"fetch@{at}:5 wait:0.1 fetch@{at}:5 wait:0.1 stop@{at}:1 " + TRAIN * 2 + UPDATE
        for at in (iterator(9, 1), iterator(9, 2), iterator(9, 3))
    )
    played = Played(markers(groups))
    assert (played.eval_count, len(played.steps)) == (3, 9)  # of the first step, as above
    assert [ms(step.phases)["data"] for step in played.steps][1:] == [20, 11, *[20, 20, 11] * 2]


@pytest.mark.parametrize("batches", [2, 3])
def test_a_step_that_takes_several_batches_for_one_backward(batches):
    """Such as support and query, or two views."""
    played = play(f"{'fetch:5 wait:0.1 ' * batches} {TRAIN} {UPDATE}", 6)
    assert played.eval_count == (0 if batches == 2 else 2)
    assert {ms(step.phases)["data"] for step in played.steps[1:]} == {5 * batches}


@pytest.mark.parametrize("forward_ms", [1.5, 3, 9])
@pytest.mark.parametrize("end", ["stop@{0}:1 ", ""])
def test_the_training_data_may_be_evaluated_too(forward_ms, end):
    """As for the accuracy on it: each batch goes through the model before the next is fetched."""
    at = iterator(9, 5)
    evaluation = f"fetch@{at}:5 wait:{forward_ms} " * 20 + end.format(at) + "wait:1 "
    played = play(
        f"fetch@{iterator(9, 1)}:5 {TRAIN} {UPDATE}" * 6 + evaluation + f"fetch@{iterator(9, 2)}:5 {TRAIN} {UPDATE}" * 6
    )
    assert played.eval_count == 20
    assert played.eval_ns == pytest.approx(played.eval_count * (5 + forward_ms) * MS + (MS if end else 0))


def test_an_evaluation_with_a_small_model_is_one_although_its_forward_passes_are_short():
    evaluation = "fetch@2:5 wait:0.5 " * 40
    played = Played(markers(f"fetch:5 {TRAIN} {UPDATE}" * 6 + evaluation), finish=False)
    assert (played.eval_count, played.machine.open_phase.name) == (39, "eval")
    few = play(f"fetch:5 {TRAIN} {UPDATE}" * 6 + "fetch@2:5 wait:0.5 " * 4 + f"stop@2:1 fetch:5 {TRAIN} {UPDATE}")
    assert few.eval_count == 4


@pytest.mark.parametrize("count", [2, 4])
def test_a_validation_between_such_steps_is_one(count):
    step = "fetch:5 wait:1 " * count + "wait:3 bwd:4 wait:1 " * count + "opt:2 wait:1 "
    held_out = "fetch@2:1 wait:2 " * 3 + "stop@2:1 wait:1 "
    played = play(step * 5 + held_out + step * 5)
    assert (played.eval_count, len(played.steps)) == (3 if count == 2 else 6, 10)  # three of the first step
    assert ms(played.steps[2].phases)["data"] == 5 * count


def test_more_batches_than_a_step_takes_are_evaluated():
    train = "fetch:5 wait:3 bwd:4 wait:1 fetch:5 wait:3 bwd:4 opt:2 wait:1 "
    played = play(train * 4 + "fetch:5 wait:2 " * 6 + train * 4)
    assert 5 <= played.eval_count <= 6
    assert len(played.steps) == 8
