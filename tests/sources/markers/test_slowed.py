"""Steps that a profiler of ours slows count as steps, and in no time."""

import pytest

from tests.sources.loop.loop_script import MS, markers
from tests.sources.markers.literal_ring import PLAIN, SECOND, FakeReader
from tuimon.agent.ring import layout
from tuimon.records import Steps, length_bucket
from tuimon.sources.markers.follower import RingFollower

SLOW = "fetch:25 wait:15 bwd:20 wait:5 opt:10 wait:5"  # 80 ms
HELD = "fetch:205 wait:3 bwd:4 wait:1 opt:2 wait:1"  # the file is written in its fetch
BARE = "bwd:4 wait:2 opt:2 wait:8"  # 16 ms
BARE_SLOW = "bwd:20 wait:10 opt:10 wait:40"


def with_profiler(before, slow, after, traces=layout.TRACED_STEPS):
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
        sequence.append((at_ns, kind, traces if kind == layout.PROFILER_ON else 0, 0))
    return sequence[:-1]


def records_of(sequence):
    follower = RingFollower(FakeReader(sequence), 100.0, 10 * SECOND)
    return [record for record in follower.last(20 * SECOND) if isinstance(record, Steps)][-1]


@pytest.mark.parametrize(("plain", "slow", "after"), [(PLAIN, SLOW, HELD), (BARE, BARE_SLOW, BARE)])
def test_they_are_counted_and_their_times_are_left_out(plain, slow, after):
    count = 20 + 5 + 1 + 20
    end = plain.partition(" ")[0]  # of the next step, which ends the last
    rest = " ".join([after] + [plain] * 20 + [end])
    record = records_of(with_profiler(" ".join([plain] * 20), " ".join([slow] * 5), rest))
    unslowed = records_of(markers(" ".join([plain] * count + [end]), 10 * SECOND))
    assert (record.count, record.backwards, record.updates) == (
        unslowed.count,
        unslowed.backwards,
        unslowed.updates,
    )
    assert record.slowed == unslowed.slowed + 6  # the five, and the one that was held up
    assert record.usual == unslowed.usual - 6
    assert record.slowed_ns >= 5 * 80 * MS
    assert record.total_ns == record.usual * 16 * MS
    assert record.slowest.total_ns == 16 * MS
    assert record.histogram == [(length_bucket(16 * MS), record.usual)]
    per_step = {phase.name: phase.total_ns / record.usual for phase in record.phases}
    assert per_step == {phase.name: phase.total_ns / unslowed.usual for phase in unslowed.phases}


def test_ranges_of_them_are_left_out():
    push, pop = (0, layout.RANGE_PUSH, 0, 1), (0, layout.RANGE_POP, 0, 0)
    sequence = []
    for marker in with_profiler(" ".join([PLAIN] * 10), " ".join([SLOW] * 5), " ".join([PLAIN] * 10)):
        sequence.append(marker)
        if marker[1] in (layout.BACKWARD_BEGIN, layout.BACKWARD_END):
            switch = push if marker[1] == layout.BACKWARD_BEGIN else pop
            sequence.append((marker[0], *switch[1:]))
    record = records_of(sequence)
    assert [(each.path, each.count, each.total_ns) for each in record.ranges] == [("batch", 19, 19 * 4 * MS)]


def test_markers_that_are_lost_do_not_slow_for_ever():
    sequence = with_profiler(" ".join([PLAIN] * 10), " ".join([SLOW] * 5), " ".join([PLAIN] * 30))
    lost = [marker for marker in sequence if marker[1] != layout.PROFILER_OFF]
    follower = RingFollower(FakeReader(lost[:60]), 100.0, 10 * SECOND)
    follower.reader.waiting = [layout.Marker(at, kind, flag, 7, value) for at, kind, flag, value in lost[100:]]
    follower.reader.read = overrun(follower.reader)
    record = [each for each in follower.last(20 * SECOND) if isinstance(each, Steps)][-1]
    assert record.usual >= 30


def overrun(reader):
    read = reader.read

    def counted():
        reader.dropped += 40
        return read()

    return counted
