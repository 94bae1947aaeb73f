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
    assert played.eval_count == (0 if batches <= 16 else batches - 1)  # in the first step, who knows?
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
    assert (played.eval_count, len(played.steps)) == (0, 9)
    assert [ms(step.phases)["data"] for step in played.steps] == [20, 20, 11] * 3


def test_a_queue_of_batches_is_filled_before_the_first_trains():
    ahead = "fetch:5 wait:0.1 " * 6
    played = play(ahead + f"{TRAIN} {UPDATE} fetch:5 wait:0.1 " * 20)
    assert played.eval_count == 0
    assert ms(played.steps[5].phases) == {"data": 5, "forward": 3.1, "backward": 4, "optimizer": 2, "other": 1}


@pytest.mark.parametrize("forward_ms", [1.5, 3, 9])
@pytest.mark.parametrize("end", ["stop@{0}:1 ", ""])
def test_the_training_data_may_be_evaluated_too(forward_ms, end):
    """As for the accuracy on it: each batch goes through the model before the next is fetched."""
    at = iterator(9, 5)
    evaluation = f"fetch@{at}:5 wait:{forward_ms} " * 20 + end.format(at) + "wait:1 "
    played = play(
        f"fetch@{iterator(9, 1)}:5 {TRAIN} {UPDATE}" * 6 + evaluation + f"fetch@{iterator(9, 2)}:5 {TRAIN} {UPDATE}" * 6
    )
    assert played.eval_count == 20 if end else played.eval_count == 19
    assert played.eval_ns == pytest.approx(played.eval_count * (5 + forward_ms) * MS + (MS if end else 0))


def test_an_evaluation_with_a_small_model_is_one_although_its_forward_passes_are_short():
    evaluation = "fetch@2:5 wait:0.5 " * 40
    played = Played(markers(f"fetch:5 {TRAIN} {UPDATE}" * 6 + evaluation), finish=False)
    assert (played.eval_count, played.machine.open_phase.name) == (39, "eval")
    few = play(f"fetch:5 {TRAIN} {UPDATE}" * 6 + "fetch@2:5 wait:0.5 " * 4 + f"stop@2:1 fetch:5 {TRAIN} {UPDATE}")
    assert few.eval_count == 4


def test_a_slow_first_evaluation_is_one_before_anything_has_trained():
    played = Played(markers("fetch@2:5 wait:400 " * 5), finish=False)
    assert played.eval_count == 4
