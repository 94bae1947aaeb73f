"""The ring: wrap-around, overrun, torn slots, holes, fast loops, several threads."""

import os
import struct
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from tests.agent.programs import ROOT
from tests.agent.ring.markers import SLOTS, emit_values, values
from tuimon.agent.ring import layout
from tuimon.agent.ring import writer as writing
from tuimon.agent.ring.reader import RingError, RingReader
from tuimon.agent.ring.writer import RingWriter

pytestmark = pytest.mark.trust


@pytest.fixture
def writer(tmp_path):
    return RingWriter(str(tmp_path / "1-1.ring"), slot_count=SLOTS)


@pytest.fixture
def reader(writer):
    reader = RingReader(writer.path)
    reader.read()
    yield reader
    reader.close()


def test_a_marker_arrives_whole(writer, reader):
    writer.emit(layout.FETCH_END, 0xFFFFFFFF, 2)
    (marker,) = reader.read()
    assert marker[1:] == (layout.FETCH_END, 2, threading.get_native_id(), 0xFFFFFFFF)
    assert marker == layout.Marker(*marker)


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


def written(path, offset, data):
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(data)


def publish(writer, number, sequence):
    """Write the sequence of slot ``number``: 0 leaves it as a writer caught in the middle does."""
    written(writer.path, layout.SLOTS_OFFSET + number % SLOTS * layout.SLOT_BYTES, struct.pack("<Q", sequence))


def test_a_torn_slot_is_waited_for(writer, reader):
    emit_values(writer, [1, 2])
    publish(writer, 2, 0)
    assert values(reader.read()) == [1]
    publish(writer, 2, 2)
    assert values(reader.read()) == [2]
    assert reader.dropped == 0


def test_slots_torn_for_good_are_skipped_once_others_follow(writer, reader):
    emit_values(writer, [1, 2, 3, 4])
    for number in (2, 3, 4):
        publish(writer, number, 0)
    assert values(reader.read()) == [1]
    for _ in range(10):
        reader.read()
    assert reader.dropped == 0  # they may still be completed
    emit_values(writer, [5])
    got = [values(reader.read()) for _ in range(RingReader.HOLE_READS)]
    assert got == [[], [], [5]]
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


@pytest.fixture
def fast(tmp_path, monkeypatch):
    """A writer that may hold markers back, its clock, and its reader."""
    clock = SimpleNamespace(now_ns=1_000_000_000)
    monkeypatch.setattr(writing, "time", SimpleNamespace(monotonic_ns=lambda: clock.now_ns))
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


def test_a_clock_before_the_epoch_fails_at_no_marker(fast):
    """As freezegun sets it, if a program freezes a moment before 1970."""
    writer, clock, _ = fast
    clock.now_ns = -(10**18)
    emit_every(writer, clock, 70_000, 200)
    writer.hold()


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


def test_names_are_interned_and_read_back(writer, reader):
    names = ["a", "größe", "x" * 5000, "", "a\x1ffile.py\x1ff\x1f3", "lone \ud800 surrogate"]
    ids = [writer.name_id(name) for name in names]
    assert len(set(ids)) == len(names) and writer.name_id("a") == ids[0]
    assert [reader.name(number) for number in ids] == ["a", "größe", "x" * 1024, "", names[4], "lone ? surrogate"]
    assert reader.name(0) == reader.name(99) == "?"


def test_a_full_table_gives_0_and_spoils_nothing(writer, reader):
    numbers = [writer.name_id(f"{i:0>1000}") for i in range(200)]
    assert numbers[0] == 1 and numbers[-1] == 0
    last = max(numbers)
    assert reader.name(last) == f"{last - 1:0>1000}"
    writer.emit(layout.MARK, 5)
    assert values(reader.read()) == [5]


def test_interning_never_waits_for_another_call(writer, monkeypatch):
    """A signal handler may intern while the thread it interrupts is interning."""
    plain, inside = writer.intern, []

    def interrupted(name):
        inside.append(writer.name_id("inside"))
        return plain(name)

    monkeypatch.setattr(writer, "intern", interrupted)
    assert writer.name_id("outside") == 1
    assert inside == [0]
    monkeypatch.undo()
    assert writer.name_id("inside") == 2


def test_meta_is_replaced_whole(writer, reader):
    assert reader.meta() == {}
    writer.set_meta({"pid": 1, "argv": ["a", "b"]})
    assert reader.meta() == {"pid": 1, "argv": ["a", "b"]}
    writer.set_meta({"rank": None})
    assert reader.meta() == {"rank": None}


def test_meta_that_is_too_long_loses_its_longest_parts(writer, reader):
    writer.set_meta({"pid": 1, "argv": ["\u00e9" * 300] * 64, "cwd": "/tmp"})
    assert reader.meta() == {"pid": 1, "cwd": "/tmp"}


def test_no_room_fails_at_creation(tmp_path, monkeypatch):
    def full(handle, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space left"):
        RingWriter(str(tmp_path / "1-1.ring"))
    assert list(tmp_path.iterdir()) == []


def test_the_file_is_private_and_all_there(writer):
    info = os.stat(writer.path)
    assert info.st_mode & 0o777 == 0o600
    assert info.st_blocks * 512 >= info.st_size


@pytest.mark.parametrize(
    ("becomes", "seen"),
    [
        (lambda writer: None, (False, False, False)),
        (lambda writer: os.unlink(writer.path), (True, False, False)),  # by another program
        (lambda writer: (writer.unlink(), writer.unlink()), (True, True, False)),  # twice does no harm
        (lambda writer: RingWriter(writer.path, slot_count=SLOTS), (False, False, True)),  # the same process after exec
    ],
)
def test_a_reader_sees_what_becomes_of_its_ring_and_outlives_it(writer, reader, becomes, seen):
    becomes(writer)
    emit_values(writer, [4])
    assert values(reader.read()) == [4]
    assert (reader.has_vanished(), reader.is_closed(), reader.is_replaced()) == seen


@pytest.mark.parametrize("length", [0, 70, layout.LOADING_OFFSET, layout.SLOTS_OFFSET + 40, layout.SLOTS_OFFSET + 64])
def test_a_ring_that_is_cut_short_while_it_is_read_does_no_harm(writer, reader, length):
    """Of a map, reading beyond the file's end is SIGBUS; pytest would end here."""
    writer.set_meta({"run": "r"})
    emit_values(writer, [4, 5, 6, 7])
    os.truncate(writer.path, length)
    assert set(values(reader.read())) <= {4, 5, 6, 7}
    assert values(reader.read()) == []
    assert reader.meta() in ({}, {"run": "r"})
    assert list(reader.loading()) == []
    assert reader.name(1) == "?"
    assert reader.held_until_ns() >= 0
    assert reader.is_cut()


@pytest.mark.parametrize(
    "spoil",
    [
        lambda file: file.truncate(0),
        lambda file: file.truncate(5000),
        lambda file: file.truncate(layout.SLOTS_OFFSET + 3 * layout.SLOT_BYTES),
        lambda file: file.write(b"GARBAGE!"),  # the magic
        lambda file: (file.seek(8), file.write(struct.pack("<I", 99))),  # the version
    ],
)
def test_what_is_no_ring_is_refused(writer, spoil):
    with open(writer.path, "r+b") as file:
        spoil(file)
    with pytest.raises(RingError):
        RingReader(writer.path)


def test_only_a_file_of_that_name_is_opened(writer, tmp_path):
    """Nor does a pipe hold anybody up."""
    (tmp_path / "link.ring").symlink_to(writer.path)
    os.mkfifo(tmp_path / "pipe.ring")
    for name, error in (("link", OSError), ("none", FileNotFoundError), ("pipe", RingError)):
        with pytest.raises(error, match="not a file" if error is RingError else None):
            RingReader(str(tmp_path / f"{name}.ring"))


@pytest.mark.parametrize("slots", [1, 2, 3, 7, 8, 15])
def test_a_ring_of_too_few_slots_is_refused(tmp_path, slots):
    writer = RingWriter(str(tmp_path / "1-1.ring"), slot_count=slots)
    with pytest.raises(RingError):
        RingReader(writer.path)


def test_a_sequence_that_cannot_be_in_its_slot_costs_that_marker_alone(writer, reader):
    emit_values(writer, range(10))
    written(writer.path, layout.SLOTS_OFFSET + 5 * layout.SLOT_BYTES, (2**63).to_bytes(8, "little"))
    found = [value for _ in range(4) for value in values(reader.read())]
    assert found == [0, 1, 2, 3, 5, 6, 7, 8, 9] and reader.dropped == 1


@pytest.mark.parametrize("raw", [b"[" * 8000, b'{"a":' * 1600, b"1" * 8000, b"\xff\xfe", b"[]"])
def test_meta_that_is_no_object_is_none(writer, reader, raw):
    written(writer.path, layout.META_OFFSET, raw)
    written(writer.path, layout.META_LENGTH_OFFSET, len(raw).to_bytes(4, "little"))
    assert reader.meta() == {}


def test_a_count_of_names_beyond_the_table_ends_with_it(writer, reader):
    writer.name_id("a")
    written(writer.path, layout.NAME_COUNT_OFFSET, (2**32 - 1).to_bytes(4, "little"))
    written(writer.path, layout.NAMES_OFFSET + 3, b"\xff\xff" + b"x" * 65535 + b"\xff\xff")
    assert reader.name(1) == "a"
    assert reader.name(2**63) == reader.name(3) == "?"
