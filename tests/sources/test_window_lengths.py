"""When windows end, by how many ranks there are."""

import pytest

from tuimon.sources.window_lengths import LONGEST_S, WindowEnds, longest_intervals

SECOND = 1_000_000_000


@pytest.mark.parametrize("interval_s", [0.25, 0.5, 2.0, 3.0, 5.0, 10.0])
def test_they_are_no_longer_than_the_longest_whatever_the_interval(interval_s):
    assert longest_intervals(64, interval_s) * interval_s <= max(interval_s, LONGEST_S)


def ends_of(ends, begin_s, windows, is_calm=True):
    at_s = begin_s
    for _ in range(windows):
        at_s = ends.of(at_s * SECOND) // SECOND
        ends.note_window(is_calm=is_calm)
        yield at_s


def test_the_open_window_is_cut_short_when_it_may_no_longer_be_long():
    ends = WindowEnds(SECOND)
    ends.longest = 4
    assert list(ends_of(ends, 10, 4))[-1] == 20
    ends.longest = 1
    assert list(ends_of(ends, 20, 3)) == [21, 22, 23]
