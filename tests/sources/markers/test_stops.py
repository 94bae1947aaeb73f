"""A training that is stopped by a signal for a while, alone or together with tuimon: a stop is a pause."""

import pytest

from tests.sources.loop.loop_script import MS, markers
from tests.sources.markers.literal_ring import PLAIN, SECOND, LiveReader
from tuimon.proc import procfs
from tuimon.records import Steps
from tuimon.sources.markers.follower import RingFollower

pytestmark = pytest.mark.trust

STOP_S = 30
#: 20 steps, an evaluation, 20 steps; each step has six markers, each batch of the evaluation two.
SCRIPT = " ".join([*[PLAIN] * 20, *["fetch:5 wait:3"] * 5, *[PLAIN] * 20])


def stopped_after(at, monkeypatch, *, together):
    """The records of a loop that is stopped 1 ms after its marker of this number; ``together``: so is tuimon."""
    sequence = markers(SCRIPT, start_ns=10 * SECOND)
    begin_ns = sequence[at][0] + MS
    end_ns = begin_ns + STOP_S * SECOND
    later = [(time_ns + STOP_S * SECOND, *rest) for time_ns, *rest in sequence[at + 1 :]]
    reader = LiveReader([*sequence[: at + 1], *later])
    follower, records, read_ns = RingFollower(reader, 1.0, 10 * SECOND), [], 10 * SECOND
    state = "S"
    monkeypatch.setattr(procfs, "read_process_stat", lambda _: procfs.Stat("", state, 1, 0, 0, 1, 0, 0))
    for now_ns in range(10 * SECOND + 250 * MS, (15 + STOP_S) * SECOND, 250 * MS):
        is_stopped = begin_ns <= now_ns < end_ns
        if is_stopped and together:
            continue
        state = "T" if is_stopped else "S"
        if now_ns - read_ns > 5 * SECOND:
            follower.note_pause(read_ns, now_ns)
        follower.note_process(read_ns, now_ns)
        reader.now_ns = read_ns = now_ns
        records += [record for record in follower.windows(now_ns) if isinstance(record, Steps)]
    return records


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("at", [60, 61, 62, 65, 123, 126])
def test_a_stop_is_outside_the_loop_and_in_no_time_of_a_step(monkeypatch, at, together):
    records = stopped_after(at, monkeypatch, together=together)
    assert [sum(record.count for record in records), sum(record.eval_count for record in records)] == [39, 5]
    assert STOP_S - 3 < sum(record.outside_s or 0.0 for record in records) < STOP_S + 0.5
    assert all((record.outside_s or 0.0) <= record.window_s for record in records)
    assert max(phase.total_ns for record in records for phase in record.phases) < 3 * SECOND
    assert max(record.slowest.total_ns for record in records if record.slowest) == 16 * MS


@pytest.mark.parametrize("together", [False, True])
def test_after_a_stop_the_open_phase_begins_anew(monkeypatch, together):
    """A training that has just gone on does not hang."""
    records = stopped_after(-1, monkeypatch, together=together)
    assert max(record.open_for_s for record in records) < 5
