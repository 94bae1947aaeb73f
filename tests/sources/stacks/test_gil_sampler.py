"""When windows that look who holds the GIL begin, with py-spy replaced by one that ends at once."""

from __future__ import annotations

import pytest

from tuimon.sources.stacks.gil_sampler import GilSampler
from tuimon.sources.stacks.pyspy import recorder

#: Of a core; at 0.025 CPU seconds a window, the time between two is 10 s.
SHARE = 0.0025


class Recording:
    """A window that is over, and has cost what is expected."""

    def poll(self, now_s):
        return recorder.Ended(1, 0.6, now_s, 0.025, None)


@pytest.fixture
def sampler(monkeypatch):
    monkeypatch.setattr(recorder.Recording, "start", lambda *args, **options: Recording())
    return GilSampler()


def begun_s(sampler, begin_s, end_s):
    """The seconds at which a window has begun."""
    begun = []
    for now_s in range(begin_s, end_s):
        sampler.poll(now_s)
        sampler.begin_window("py-spy", [1], SHARE, now_s)
        if sampler._running:
            begun.append(now_s)
    return begun


def test_the_first_windows_are_close_to_each_other_and_later_ones_within_the_budget(sampler):
    assert begun_s(sampler, 0, 40) == [2, 4, 6, 8, 18, 28, 38]


def test_a_training_that_begins_is_looked_at_closely_again(sampler):
    begun_s(sampler, 0, 20)
    sampler.begin_training(20)
    assert begun_s(sampler, 20, 40) == [22, 24, 26, 28, 38]
