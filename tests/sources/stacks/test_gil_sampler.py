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


class Looks:
    """A sampler of one process, and how many windows of it have begun."""

    def __init__(self):
        self.sampler = GilSampler()
        self.begun = 0

    def begun_s(self, begin_s, end_s, share=SHARE):
        """The seconds at which a window begins, where each has ended a second later."""
        seconds = []
        for now_s in range(begin_s, end_s):
            before = self.begun
            self.sampler.poll(now_s)
            self.sampler.begin_window("py-spy", [1], share, now_s)
            seconds += [now_s] * (self.begun - before)
        return seconds


@pytest.fixture
def looks(monkeypatch):
    found = Looks()

    def start(*args, **options):
        found.begun += 1
        return Recording()

    monkeypatch.setattr(recorder.Recording, "start", start)
    return found


def test_the_first_windows_are_close_to_each_other_and_later_ones_within_the_budget(looks):
    assert looks.begun_s(0, 40) == [2, 4, 6, 8, 18, 28, 38]


def test_a_training_that_begins_is_looked_at_closely_again(looks):
    looks.begun_s(0, 20)
    looks.sampler.begin_training(20)
    assert looks.begun_s(20, 40) == [22, 24, 26, 28, 38]


def test_a_small_budget_spaces_the_first_windows_too(looks):
    assert looks.begun_s(0, 200, SHARE / 10) == [2, 12, 22, 32, 132]
