"""Batches fetched in a row: ahead of those that train, or evaluated."""

import pytest

from tests.sources.loop.loop_script import MS, ms, play
from tuimon.agent.ring.layout import LOADER_SHIFT

TRAIN = "wait:3 bwd:4 "
UPDATE = "opt:2 wait:1 "


def iterator(loader: int, number: int) -> int:
    return loader << LOADER_SHIFT | number


def in_groups(batches: int, of: int = 1) -> str:
    """A step that fetches all the batches it accumulates over before it trains on the first."""
    return f"fetch@{of}:5 wait:0.1 " * batches + TRAIN * batches + UPDATE


def test_on_a_busy_machine_all_of_the_first_step_lasts_longer():
    played = play("made " + "fetch:50 wait:15 " * 4 + TRAIN * 4 + UPDATE + in_groups(4) * 5)
    assert (played.eval_count, len(played.steps)) == (0, 6)


@pytest.mark.parametrize("batches", [2, 4, 40])
def test_batches_that_a_step_accumulates_over_are_fetched_before_it_trains(batches):
    played = play("made " + in_groups(batches) * 5)
    assert played.eval_count == (39 if batches == 40 else 0)  # so many, before the first update, may be an evaluation
    assert len(played.steps) == 5
    step = ms(played.steps[2].phases)
    assert step["data"] == 5 * batches and step["backward"] == 4 * batches and "eval" not in step


@pytest.mark.parametrize("batches", [1, 2, 4])
def test_a_loader_that_fetches_one_batch_ahead_begins_each_epoch_with_one_more(batches):
    """As Accelerate's under transformers' Trainer."""

    def epoch(at: int) -> str:
        fetch = f"fetch@{at}:5 wait:0.1 "
        rest = TRAIN * batches + UPDATE
        groups = (fetch * batches + rest) * 5
        return fetch + groups + fetch * (batches - 1) + f"stop@{at}:1 " + rest

    played = play("made " + "".join(epoch(iterator(9, number)) for number in (1, 2, 3)))
    assert (played.eval_count, len(played.steps)) == (0, 3 * 6)


def test_what_an_epoch_has_left_is_trained_on_after_its_end():
    """Each epoch has an iterator of its own, and ends with two batches where a step takes four."""
    groups = "".join(
        in_groups(4, at) * 2 + f"fetch@{at}:5 wait:0.1 fetch@{at}:5 wait:0.1 stop@{at}:1 " + TRAIN * 2 + UPDATE
        for at in (iterator(9, 1), iterator(9, 2), iterator(9, 3))
    )
    played = play(groups)
    assert (played.eval_count, len(played.steps)) == (0, 9)
    assert [ms(step.phases)["data"] for step in played.steps] == [20, 20, 11] * 3


@pytest.mark.parametrize("batches", [2, 3])
def test_a_step_that_takes_several_batches_for_one_backward(batches):
    """Such as support and query, or two views."""
    played = play(f"{'fetch:5 wait:0.1 ' * batches} {TRAIN} {UPDATE}", 6)
    assert played.eval_count == 0
    assert {ms(step.phases)["data"] for step in played.steps} == {5 * batches}


@pytest.mark.parametrize(("batches", "use_ms"), [(2, 0.5), (4, 0.5), (12, 20), (30, 0.5), (30, 20)])
@pytest.mark.parametrize("end", ["stop@{0}:1 ", ""])
def test_a_validation_before_the_first_update_is_one(batches, use_ms, end):
    """Such as Lightning's sanity check: the first to be trained on comes from another iterator."""
    held_out = f"fetch@{iterator(8, 1)}:5 wait:{use_ms} " * batches + end.format(iterator(8, 1))
    played = play("made " + held_out + f"fetch@{iterator(9, 1)}:5 {TRAIN} {UPDATE}" * 6)
    assert (played.eval_count, len(played.steps)) == (batches if end else batches - 1, 6)
    assert {ms(step.phases)["data"] for step in played.steps} == {5}


@pytest.mark.parametrize("forward_ms", [1.5, 3, 9])
@pytest.mark.parametrize("end", ["stop@{0}:1 ", ""])
@pytest.mark.parametrize("batches", [1, 4])
def test_the_training_data_may_be_evaluated_too(forward_ms, end, batches):
    """As for the accuracy on it: each batch goes through the model before the next is fetched."""
    at = iterator(9, 5)
    evaluation = f"fetch@{at}:5 wait:{forward_ms} " * 20 + end.format(at) + "wait:1 "
    before, after = (in_groups(batches, iterator(9, number)) * 6 for number in (1, 2))
    played = play("made " + before + evaluation + after)
    assert (played.eval_count, len(played.steps)) == (20, 12)
    assert played.eval_ns == pytest.approx(played.eval_count * (5 + forward_ms) * MS + (MS if end else 0))
