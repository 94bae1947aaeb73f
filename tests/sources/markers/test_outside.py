"""A loop that is left and begun again: the time between belongs to no step."""

import pytest

from tests.sources.loop.loop_script import MS, markers
from tests.sources.markers.literal_ring import PLAIN, SECOND, FakeReader
from tuimon.agent.ring import layout
from tuimon.records import Steps
from tuimon.sources.markers.follower import RingFollower

PAUSE_NS = 30 * SECOND


def left_after(*parts, pause_ns=PAUSE_NS):
    """Each part in a cell of its own; the first begins at 10 s."""
    sequence, at_ns = [], 10 * SECOND
    for part in parts:
        sequence += markers(part, at_ns)
        left_ns = sequence[-1][0] + 3 * MS  # the rest of the cell
        sequence.append((left_ns, layout.LOOP_LEFT, 0, 0))
        at_ns = left_ns + pause_ns
    return sequence, left_ns


def test_a_cell_that_is_interrupted_within_a_fetch():
    interrupted, left_ns = left_after(" ".join([PLAIN] * 10 + ["fetch:5"]))
    del interrupted[-2]  # its end was never marked
    sequence = interrupted + markers(" ".join([PLAIN] * 10), left_ns + PAUSE_NS)
    records = RingFollower(FakeReader(sequence), 1000.0, 10 * SECOND).last(sequence[-1][0] + MS)
    record = [record for record in records if isinstance(record, Steps)][-1]
    assert record.count == 20 and record.backwards == 20
    assert record.slowest.total_ns < 30 * MS
    assert {phase.name for phase in record.phases if phase.total_ns > 21 * 5 * MS} == set()


def test_outside_no_phase_is_open_and_a_window_says_how_long():
    sequence, left_ns = left_after(" ".join([PLAIN] * 20))
    follower = RingFollower(FakeReader(sequence), 1.0, 10 * SECOND)
    records = [record for record in follower.windows(13 * SECOND) if isinstance(record, Steps)]
    assert [record.open_phase for record in records] == [None] * 3
    assert [record.open_for_s for record in records] == [None] * 3
    assert [record.outside_s for record in records] == pytest.approx([(11 * SECOND - left_ns) / 1e9, 1.0, 1.0])
    assert [record.count for record in records] == [20, 0, 0]
