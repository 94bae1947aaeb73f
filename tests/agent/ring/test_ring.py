"""The ring: wrap-around, overrun, torn slots, holes, fast loops, several threads."""

import os
import struct
import subprocess
import sys
import threading
import time

import pytest

from tests.agent.programs import ROOT
from tests.agent.ring.markers import SLOTS, emit_values, values
from tuimon.agent.ring import layout
from tuimon.agent.ring import writer as writing
from tuimon.agent.ring.reader import RingReader
from tuimon.agent.ring.writer import RingWriter


def test_a_marker_arrives_whole(writer, reader):
    writer.emit(layout.FETCH_END, 0xFFFFFFFF, 2)
    (marker,) = reader.read()
    assert marker[1:] == (layout.FETCH_END, 2, threading.get_native_id(), 0xFFFFFFFF)
    assert marker == layout.Marker(*marker)


def test_times_are_of_the_monotonic_clock_and_rise(writer, reader):
    import time

    before = time.monotonic_ns()
    emit_values(writer, range(10))
    times = [marker.time_ns for marker in reader.read()]
    assert before <= times[0] and times == sorted(times) and times[-1] <= time.monotonic_ns()


def test_wraps_around_without_loss(writer, reader):
    seen = []
    for first in range(0, SLOTS * 5, 40):
        emit_values(writer, range(first, first + 40))
        seen += values(reader.read())
    assert seen == list(range(SLOTS * 5)) and reader.dropped == 0


@pytest.mark.parametrize("count", [SLOTS, SLOTS + 1, SLOTS * 2, SLOTS * 2 + 7, SLOTS * 9 + 13])
def test_overrun_loses_the_oldest_and_counts_them(writer, reader, count):
    emit_values(writer, range(count))
    got = values(reader.read())
    assert got == list(range(count - len(got), count))
    assert len(got) >= SLOTS // 4
    assert reader.dropped == count - len(got)
    emit_values(writer, [count])
    assert values(reader.read()) == [count]


def test_what_was_lost_before_we_came_is_no_loss(writer):
    emit_values(writer, range(SLOTS * 3))
    reader = RingReader(writer.path)
    got = values(reader.read())
    assert got[-1] == SLOTS * 3 - 1 and reader.dropped == 0


def publish(writer, number, sequence):
    """Write the sequence of slot ``number``: 0 leaves it as a writer caught in the middle does."""
    with open(writer.path, "r+b") as file:
        file.seek(layout.SLOTS_OFFSET + number % SLOTS * layout.SLOT_BYTES)
        file.write(struct.pack("<Q", sequence))


def test_a_torn_slot_is_waited_for(writer, reader):
    emit_values(writer, [1, 2])
    publish(writer, 2, 0)
    assert values(reader.read()) == [1]
    publish(writer, 2, 2)
    assert values(reader.read()) == [2]
    assert reader.dropped == 0


def test_a_slot_torn_for_good_is_skipped_once_others_follow(writer, reader):
    emit_values(writer, [1, 2])
    publish(writer, 2, 0)
    for _ in range(10):
        reader.read()
    assert reader.dropped == 0  # it may still be completed
    emit_values(writer, [3])
    got = [values(reader.read()) for _ in range(RingReader.HOLE_READS)]
    assert got == [[], [], [3]]
    assert reader.dropped == 1


def test_slots_that_were_never_filled(writer, reader):
    emit_values(writer, range(6))
    for number in (2, 3, 4):
        publish(writer, number, 0)
    got = [values(reader.read()) for _ in range(RingReader.HOLE_READS)]
    assert got == [[0], [], [4, 5]]
    assert reader.dropped == 3


def test_a_slot_that_was_never_filled_is_an_old_one_after_a_lap(writer, reader):
    for _ in range(2):
        emit_values(writer, range(SLOTS // 2))
        reader.read()
    emit_values(writer, [6, 7])
    publish(writer, SLOTS + 1, 1)
    got = [values(reader.read()) for _ in range(RingReader.HOLE_READS)]
    assert got == [[], [], [7]]


def test_two_threads_lose_nothing_and_keep_their_order(tmp_path, monkeypatch):
    monkeypatch.setattr(RingReader, "HOLE_READS", 1_000_000)  # read without a pause: a thread may be off its core
    writer = RingWriter(str(tmp_path / "1-1.ring"), slot_count=16384)
    reader = RingReader(writer.path)
    reader.read()
    gate = threading.Barrier(2)

    def write():
        gate.wait()
        emit_values(writer, range(5000))

    threads = [threading.Thread(target=write) for _ in range(2)]
    for thread in threads:
        thread.start()
    seen = []
    while any(thread.is_alive() for thread in threads):
        seen += reader.read()
    seen += reader.read()
    for thread in threads:
        thread.join()
    by_thread = {tid: [m.value for m in seen if m.tid == tid] for tid in {m.tid for m in seen}}
    assert list(by_thread.values()) == [list(range(5000))] * 2
    assert reader.dropped == 0


class Clock:
    """``time`` for a writer, standing still until a test moves it."""

    now_ns = 1_000_000_000

    def monotonic_ns(self):
        return self.now_ns


@pytest.fixture
def fast(tmp_path, monkeypatch):
    """A writer that may hold markers back, its clock, and its reader."""
    clock = Clock()
    monkeypatch.setattr(writing, "time", clock)
    monkeypatch.setattr(writing, "FAST_GAP_NS", 6_000_000)
    made = RingWriter(str(tmp_path / "1-1.ring"))
    return made, clock, RingReader(made.path)


def emit_every(writer, clock, gap_ns, count):
    for number in range(count):
        clock.now_ns += gap_ns
        writer.emit(layout.MARK, number)


def test_a_slow_loop_writes_at_once(fast):
    writer, clock, reader = fast
    for number in range(100):
        emit_every(writer, clock, 6_000_000, 1)
        assert len(reader.read()) == 1, number
    assert not reader.held_until_ns()


@pytest.mark.parametrize("gap_ns", [70_000, 1_200_000, 5_000_000], ids=["0.3 ms", "5 ms", "20 ms a step"])
def test_a_fast_loop_writes_every_50_ms_and_loses_nothing(fast, gap_ns):
    writer, clock, reader = fast
    emit_every(writer, clock, gap_ns, 17)
    seen = reader.read()
    assert len(seen) == 16
    assert reader.held_until_ns()
    for _ in range(1000):
        emit_every(writer, clock, gap_ns, 1)
        seen += reader.read()
        assert clock.now_ns - seen[-1].time_ns <= 50_000_000
    writer.flush()
    seen += reader.read()
    assert values(seen) == [*range(17), *[0] * 1000]
    assert [m.time_ns for m in seen] == sorted(m.time_ns for m in seen)


def test_a_loop_that_turns_slow_is_written_at_once_again(fast):
    writer, clock, reader = fast
    emit_every(writer, clock, 70_000, 500)
    emit_every(writer, clock, 50_000_000, 5)
    reader.read()
    assert not reader.held_until_ns()
    emit_every(writer, clock, 50_000_000, 1)
    assert len(reader.read()) == 1


WRITING = """
import sys
from tuimon.agent.ring.layout import MARK
from tuimon.agent.ring.writer import RingWriter
writer = RingWriter(sys.argv[1], slot_count=256)
print("ready", flush=True)
sys.stdin.readline()
for i in range(300_000):
    writer.emit(MARK, i, i & 0xFFFF)
writer.flush()
"""


def test_no_marker_is_half_of_two_while_another_process_laps_us(tmp_path):
    path = str(tmp_path / "1-1.ring")
    with subprocess.Popen(
        [sys.executable, "-c", WRITING, path],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout.readline() == "ready\n"
        reader = RingReader(path)
        reader.read()
        child.stdin.write("go\n")
        child.stdin.flush()
        seen = []
        while child.poll() is None:
            seen += reader.read()
        seen += reader.read()
    assert all(marker.flag == marker.value & 0xFFFF for marker in seen)
    assert values(seen) == sorted(set(values(seen)))
    assert values(seen)[-1] == 299_999
    assert len(seen) + reader.dropped == 300_000


def test_sequences_beyond_32_bits():
    from tuimon.agent.ring.reader import columns_of, valid_slots

    first = (1 << 32) - 2
    packed = b"".join(
        struct.pack("<QQHHIQ", number, number, layout.MARK, 0, 1, number & 0xFF) for number in range(first, first + 5)
    )
    assert valid_slots(packed, first) == 5
    assert columns_of(packed).values == [254, 255, 0, 1, 2]


def test_a_forked_child_leaves_what_waits_to_its_parent(writer, reader, monkeypatch):
    """A garbage collection at the fork, before the child has let go of the ring: its pause is a marker, too."""
    emit_values(writer, range(writing.FAST_MARKERS))
    monkeypatch.setattr(writing, "HOLD_NS", 0)
    writer.hold()
    writer.emit_of(time.monotonic_ns(), threading.get_ident(), layout.MARK, 77, 0)
    child = os.fork()
    if child == 0:
        writer.emit(layout.GC_PAUSE, 20_000_000, 2)
        os._exit(0)
    os.waitpid(child, 0)
    assert values(reader.read()) == list(range(writing.FAST_MARKERS))
    writer.emit(layout.MARK, 78)
    waited = reader.read()
    assert values(waited) == [77, 78]
    assert {marker.tid for marker in waited} == {threading.get_native_id()}
