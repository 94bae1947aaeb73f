"""The rate of steps that a ring shows, for a list of processes."""

import os

from tests.sources.loop.loop_script import markers
from tests.sources.markers.literal_ring import PLAIN, SECOND, FakeReader
from tuimon.sources.markers.step_rate import rate_of, steps_per_s


def test_of_a_loop_that_runs():
    sequence = markers(" ".join([PLAIN] * 2000), start_ns=10 * SECOND)  # 16 ms each, for 32 s
    assert 60 < rate_of(FakeReader(sequence), 40 * SECOND) < 65


def test_of_a_slow_loop_over_the_last_minute():
    sequence = markers(" ".join(["fetch:5 wait:14980 bwd:10 opt:5"] * 4), start_ns=10 * SECOND)  # 15 s each
    assert 0 < rate_of(FakeReader(sequence), 68 * SECOND) < 0.1


def test_none_without_a_step_or_a_ring():
    assert rate_of(FakeReader([]), 40 * SECOND) is None
    assert steps_per_s(os.getpid()) is None
