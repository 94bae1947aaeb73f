"""Times that are of no usual step: a profiler of ours slows it, the loop is left, or its process is stopped."""

import pytest

from tests.sources.loop.loop_script import MS, markers
from tests.sources.markers.literal_ring import PLAIN, SECOND, FakeReader, LiveReader
from tuimon.agent.ring import layout
from tuimon.proc import procfs
from tuimon.records import Steps, length_bucket
from tuimon.sources.markers.follower import RingFollower

# -- steps that a profiler of ours slows count as steps, and in no time

SLOW = "fetch:25 wait:15 bwd:20 wait:5 opt:10 wait:5 "  # 80 ms
HELD = "fetch:205 wait:3 bwd:4 wait:1 opt:2 wait:1 "  # the file is written in its fetch
BARE = "bwd:4 wait:2 opt:2 wait:8 "  # 16 ms
BARE_SLOW = "bwd:20 wait:10 opt:10 wait:40 "


def with_profiler(before, slow, after):
    """Markers of three parts, one after the other; the profiler is on in the middle one."""
    sequence, at_ns = [], 10 * SECOND
    for script, kind in ((before, layout.PROFILER_ON), (slow, layout.PROFILER_OFF), (after, None)):
        part = markers(f"{script} wait:0", at_ns)
        length_ns = round(sum(float(token.partition(":")[2]) for token in script.split()) * MS)
        if sequence:  # the switch comes right after the boundary at which the part begins
            sequence += [part[0], sequence.pop(), *part[1:]]
        else:
            sequence += part
        at_ns += length_ns
        sequence.append((at_ns, kind, layout.FOR_TRACE if kind == layout.PROFILER_ON else 0, 0))
    return sequence[:-1]


def records_of(sequence):
    follower = RingFollower(FakeReader(sequence), 100.0, 10 * SECOND)
    return [record for record in follower.last(20 * SECOND) if isinstance(record, Steps)][-1]


@pytest.mark.parametrize(("plain", "slow", "after"), [(PLAIN, SLOW, HELD), (BARE, BARE_SLOW, BARE)])
def test_they_are_counted_and_their_times_are_left_out(plain, slow, after):
    count = 20 + 5 + 1 + 20
    end = plain.partition(" ")[0]  # of the next step, which ends the last
    rest = after + plain * 20 + end
    record = records_of(with_profiler(plain * 20, slow * 5, rest))
    unslowed = records_of(markers(plain * count + end, 10 * SECOND))
    assert len({(each.count, each.backwards, each.updates) for each in (record, unslowed)}) == 1
    assert record.slowed == unslowed.slowed + 6  # the five, and the one that was held up
    assert record.usual == unslowed.usual - 6
    assert record.slowed_ns >= 5 * 80 * MS
    assert record.total_ns == record.usual * 16 * MS
    assert record.slowest.total_ns == 16 * MS
    assert record.histogram == [(length_bucket(16 * MS), record.usual)]
    per_step = {phase.name: phase.total_ns / record.usual for phase in record.phases}
    assert per_step == {phase.name: phase.total_ns / unslowed.usual for phase in unslowed.phases}


def test_ranges_of_them_are_left_out():
    ranges = {layout.BACKWARD_BEGIN: (layout.RANGE_PUSH, 0, 1), layout.BACKWARD_END: (layout.RANGE_POP, 0, 0)}
    sequence = []
    for marker in with_profiler(PLAIN * 10, SLOW * 5, PLAIN * 10):
        sequence.append(marker)
        if marker[1] in ranges:
            sequence.append((marker[0], *ranges[marker[1]]))
    record = records_of(sequence)
    assert [(each.path, each.count, each.total_ns) for each in record.ranges] == [("batch", 19, 19 * 4 * MS)]


def test_markers_that_are_lost_do_not_slow_for_ever():
    sequence = with_profiler(PLAIN * 10, SLOW * 5, PLAIN * 30)
    lost = [marker for marker in sequence if marker[1] != layout.PROFILER_OFF]
    follower = RingFollower(FakeReader(lost[:60]), 100.0, 10 * SECOND)
    follower.reader.waiting, follower.reader.lost = FakeReader(lost[100:]).waiting, 40
    record = [each for each in follower.last(20 * SECOND) if isinstance(each, Steps)][-1]
    assert record.usual >= 30


# -- a loop that is left and begun again

PAUSE_NS = 30 * SECOND


def left_after(part):
    """A part in a cell of its own, from 10 s on; when that is left."""
    sequence = markers(part, 10 * SECOND)
    left_ns = sequence[-1][0] + 3 * MS  # the rest of the cell
    return [*sequence, (left_ns, layout.LOOP_LEFT, 0, 0)], left_ns


def test_a_cell_that_is_interrupted_within_a_fetch():
    interrupted, left_ns = left_after(PLAIN * 10 + "fetch:5")
    del interrupted[-2]  # its end was never marked
    sequence = interrupted + markers(PLAIN * 10, left_ns + PAUSE_NS)
    records = RingFollower(FakeReader(sequence), 1000.0, 10 * SECOND).last(sequence[-1][0] + MS)
    record = [record for record in records if isinstance(record, Steps)][-1]
    assert record.count == 20 and record.backwards == 20
    assert record.slowest.total_ns < 30 * MS
    assert {phase.name for phase in record.phases if phase.total_ns > 21 * 5 * MS} == set()


def test_outside_no_phase_is_open_and_a_window_says_how_long():
    sequence, left_ns = left_after(PLAIN * 20)
    follower = RingFollower(FakeReader(sequence), 1.0, 10 * SECOND)
    records = [record for record in follower.windows(13 * SECOND) if isinstance(record, Steps)]
    assert [record.open_phase for record in records] == [None] * 3
    assert [record.open_for_s for record in records] == [None] * 3
    assert [record.outside_s for record in records] == pytest.approx([(11 * SECOND - left_ns) / 1e9, 1.0, 1.0])
    assert [record.count for record in records] == [20, 0, 0]


# -- a training that is stopped by a signal for a while, alone or together with tuimon: a stop is a pause

STOP_S = 30
#: 20 steps, an evaluation, 20 steps; each step has six markers, each batch of the evaluation two.
SCRIPT = PLAIN * 20 + "fetch:5 wait:3 " * 5 + PLAIN * 20


def stopped_after(at, *, together):
    """The records of a loop that is stopped 1 ms after its marker of this number; ``together``: so is tuimon."""
    sequence = markers(SCRIPT, start_ns=10 * SECOND)
    begin_ns = sequence[at][0] + MS
    end_ns = begin_ns + STOP_S * SECOND
    later = [(time_ns + STOP_S * SECOND, *rest) for time_ns, *rest in sequence[at + 1 :]]
    reader = LiveReader([*sequence[: at + 1], *later])
    follower, records, read_ns = RingFollower(reader, 1.0, 10 * SECOND), [], 10 * SECOND
    for now_ns in range(10 * SECOND + 250 * MS, (15 + STOP_S) * SECOND, 250 * MS):
        is_stopped = begin_ns <= now_ns < end_ns
        if is_stopped and together:
            continue
        state = "T" if is_stopped else "S"
        if now_ns - read_ns > 5 * SECOND:
            follower.note_pause(read_ns, now_ns)
        follower.note_process(procfs.Stat("", state, 1, 0, 0, 1, 0, 0), read_ns, now_ns)
        reader.now_ns = read_ns = now_ns
        records += [record for record in follower.windows(now_ns) if isinstance(record, Steps)]
    return records


@pytest.mark.trust
@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("at", [60, 61, 62, 65, 123, 126])
def test_a_stop_is_outside_the_loop_and_in_no_time_of_a_step(at, together):
    records = stopped_after(at, together=together)
    assert [sum(record.count for record in records), sum(record.eval_count for record in records)] == [39, 5]
    assert STOP_S - 3 < sum(record.outside_s or 0.0 for record in records) < STOP_S + 0.5
    assert all((record.outside_s or 0.0) <= record.window_s for record in records)
    assert max(phase.total_ns for record in records for phase in record.phases) < 3 * SECOND
    assert max(record.slowest.total_ns for record in records if record.slowest) == 16 * MS


@pytest.mark.trust
@pytest.mark.parametrize("together", [False, True])
def test_after_a_stop_the_open_phase_begins_anew(together):
    """A training that has just gone on does not hang."""
    records = stopped_after(-1, together=together)
    assert max(record.open_for_s for record in records) < 5
