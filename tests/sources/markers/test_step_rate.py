"""The rate of steps that a ring shows, for a list of processes."""

import os

import pytest

from tests.sources.loop.loop_script import markers
from tests.sources.markers.literal_ring import PLAIN, SECOND, FakeReader
from tuimon.sources.markers.follower import StepRate, steps_in, steps_of


def test_of_a_loop_that_runs():
    sequence = markers(" ".join([PLAIN] * 2000), start_ns=10 * SECOND)  # 16 ms each, for 32 s
    assert 60 < steps_in(FakeReader(sequence), 40 * SECOND).per_s < 65


def test_none_without_a_step_or_a_ring():
    assert steps_in(FakeReader([]), 40 * SECOND) == StepRate(None, has_stepped=False)
    assert steps_of(os.getpid()) is None


@pytest.mark.parametrize("script", [f"{PLAIN} {PLAIN}", "fetch:5 bwd:10"])
def test_a_loop_that_stands_for_long_has_stepped(script):
    sequence = markers(script, start_ns=10 * SECOND)
    assert steps_in(FakeReader(sequence), 400 * SECOND) == StepRate(None, has_stepped=True)
