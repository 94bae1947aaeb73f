"""Which blocks of code are in few steps only, by their visits."""

import pytest

from tests.session.records import steps as record
from tuimon.session.loop_tree.evaluation import OccasionalBlocks

BLOCK = ("train.py", 40, "evaluate")


def followed(*windows, steps=100, training=25, cycles=None):
    """After windows of 2 s, each with so many samples and visits of the block."""
    blocks = OccasionalBlocks()
    for n, window in enumerate([*windows, None]):
        seen = [(BLOCK, *window)] if window else []
        blocks.add_window(2.0 * n, 2.0 * n + 2, seen, training, cycles)
        if steps is not None:
            blocks.add_steps(record(2.0 * n + 2, {"backward": 1}, count=steps))
    return blocks


def test_of_an_evaluation_many_samples_are_one_visit():
    assert BLOCK in followed(*[(10, 1)] * 4)
    assert followed(*[(10, 1)] * 4)


@pytest.mark.parametrize("number", [3, 30, 300])
def test_what_is_in_every_step_has_as_many_visits_as_chance_gives_it(number):
    """Of 35 samples of the block, of backward and of updates 10 are the block's: 7 visits."""
    assert BLOCK not in followed(*[(10, 7)] * number)
    assert BLOCK not in followed(*[(10, 5), (10, 8)] * number)


@pytest.mark.parametrize("number", [3, 300])
def test_a_block_that_fills_much_of_each_long_step_is_in_every_one(number):
    """A teacher, ten times as long as its student: 4 steps of half a second each, 13 samples of it in each."""
    assert BLOCK not in followed(*[(52, 4)] * number, steps=4, training=4)


def test_before_enough_is_expected_nobody_knows():
    assert BLOCK not in followed((10, 1))
    assert not followed((10, 1))
    assert BLOCK not in followed((3, 1), (1, 1), (2, 1))


def test_while_no_step_ends_nothing_is_expected():
    """A step of minutes that accumulates gradients over many batches."""
    assert BLOCK not in followed(*[(30, 1)] * 50, steps=0)


@pytest.mark.parametrize(("cycles", "is_known"), [(None, True), (40, True), (3, False), (0, False)])
def test_without_markers_samples_count_the_steps(cycles, is_known):
    assert (BLOCK in followed((20, 2), (20, 1), (20, 1), steps=None, cycles=cycles)) == is_known


def test_steps_count_where_they_were():
    """All of an evaluation of 10 s but for the ends of it are in windows without a step."""
    blocks = OccasionalBlocks()
    for n in range(5):
        blocks.add_window(2.0 * n, 2.0 * n + 2, [(BLOCK, 60, 1)], 0, None)
        blocks.add_steps(record(2.0 * n + 2, {"backward": 1}, count=0))
    blocks.add_steps(record(12.0, {"backward": 1}, count=400))
    blocks.add_window(10.0, 12.0, [(BLOCK, 3, 1)], 25, None)
    assert BLOCK not in blocks


def test_many_blocks_are_bounded():
    blocks = OccasionalBlocks()
    for n in range(1000):
        blocks.add_window(n, n + 1, [(("a.py", n, "f"), 20, 1)], 20, None)
        blocks.add_steps(record(n + 1, {"backward": 1}, count=50))
    assert len(blocks._followed) <= 64 and len(blocks._steps) <= 16
