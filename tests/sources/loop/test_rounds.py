"""Optimizers that step in turn in a loop without a DataLoader: one round of them is one step."""

import doctest

import pytest

from tests.sources.loop.loop_script import MS, ms, play
from tuimon.sources.loop import pieces
from tuimon.sources.loop.pieces import Drive

FIRST, SECOND, THIRD = (f"wait:6 bwd:3 opt@{number}:1 " for number in (1, 2, 3))


def test_the_worked_example():
    assert doctest.testmod(pieces).failed == 0


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("begin", range(12, 16))
@pytest.mark.parametrize("count", [0, 1, 5, 30])
def test_updates_that_were_only_counted_keep_the_round(size, begin, count):
    each, passed = pieces.Rounds(), pieces.Rounds()
    updates = [frozenset({n % size}) for n in range(begin + count)]
    for update in updates:
        each.add_update(update)
    for update in updates[:begin]:
        passed.add_update(update)
    steps = passed.pass_updates(count)
    assert (passed.size, passed.open) == (each.size, each.open) == (size, (begin + count) % size)
    assert steps == (begin + count) // size - begin // size


@pytest.mark.parametrize("together", [FIRST + SECOND, FIRST + SECOND + THIRD])
@pytest.mark.parametrize("count", [2, 3, 40])
def test_two_or_three_models_in_turn_are_one_step(together, count):
    played = play(together, count)
    assert (played.drive, len(played.steps)) == (Drive.UPDATE, count)
    optimizers = together.count("opt")
    assert {step.total_ns for step in played.steps[1:]} == {10 * optimizers * MS}
    assert {step.updates for step in played.steps} == {optimizers}
    assert ms(played.steps[-1].phases) == {
        "backward": 3 * optimizers,
        "between": 6 * optimizers,
        "optimizer": optimizers,
    }


def test_a_round_that_is_not_whole_at_the_end_is_a_step():
    played = play((FIRST + SECOND) * 5 + FIRST)
    assert [step.updates for step in played.steps] == [2] * 5 + [1]


def test_one_model_first_and_then_two_in_turn():
    played = play(FIRST * 10 + (FIRST + SECOND) * 10)
    assert [step.updates for step in played.steps] == [1] * 14 + [2] * 8  # two rounds show what a step is


@pytest.mark.parametrize("loop", [FIRST + FIRST + SECOND, FIRST * 3 + SECOND * 3, FIRST * 5 + SECOND])
def test_optimizers_that_do_not_take_turns_make_a_step_with_each_update(loop):
    played = play(loop, 12)
    assert len(played.steps) == 12 * loop.count("opt")


@pytest.mark.parametrize("rounds_a_batch", [1, 3])
def test_optimizers_of_a_loop_with_a_loader_do_not_matter(rounds_a_batch):
    played = play("fetch:2 " + (FIRST + SECOND) * rounds_a_batch, 6)
    assert (played.drive, len(played.steps)) == (Drive.FETCH, 6)
