"""The file of a ring: names, facts, how it is made, when it is refused."""

import os
import struct

import pytest

from tests.agent.ring.markers import SLOTS, emit_values, values
from tuimon.agent.ring import layout
from tuimon.agent.ring.reader import RingError, RingReader
from tuimon.agent.ring.writer import RingWriter

pytestmark = pytest.mark.trust


def test_names_are_interned_and_read_back(writer, reader):
    names = ["a", "größe", "x" * 5000, "", "a\x1ffile.py\x1ff\x1f3"]
    ids = [writer.name_id(name) for name in names]
    assert len(set(ids)) == len(names) and writer.name_id("a") == ids[0]
    assert [reader.name(number) for number in ids] == ["a", "größe", "x" * 1024, "", names[4]]
    assert reader.name(0) == reader.name(99) == "?"


def test_names_that_cannot_be_encoded(writer, reader):
    assert reader.name(writer.name_id("lone \ud800 surrogate")) == "lone ? surrogate"


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


def test_a_reader_outlives_the_name(writer, reader):
    assert not reader.has_vanished()
    os.unlink(writer.path)  # by another program
    emit_values(writer, [4])
    assert values(reader.read()) == [4]
    assert reader.has_vanished()
    assert not reader.is_closed()
    assert not reader.is_replaced()


def test_a_reader_sees_that_its_writer_has_finished(writer, reader):
    emit_values(writer, [4])
    writer.unlink()
    writer.unlink()  # twice does no harm
    assert values(reader.read()) == [4]
    assert reader.is_closed()
    assert not reader.is_replaced()


def test_a_reader_sees_that_it_was_replaced(writer, reader):
    assert not reader.is_replaced()
    RingWriter(writer.path, slot_count=SLOTS)  # the same process after exec
    assert reader.is_replaced()
    assert not reader.has_vanished()


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


@pytest.mark.parametrize("spoil", ["empty", "short", "magic", "version", "size"])
def test_what_is_no_ring_is_refused(writer, spoil):
    with open(writer.path, "r+b") as file:
        if spoil == "empty":
            file.truncate(0)
        elif spoil == "short":
            file.truncate(5000)
        elif spoil == "magic":
            file.write(b"GARBAGE!")
        elif spoil == "version":
            file.seek(8)
            file.write(struct.pack("<I", 99))
        else:
            file.truncate(layout.SLOTS_OFFSET + 3 * layout.SLOT_BYTES)
    with pytest.raises(RingError):
        RingReader(writer.path)


def test_a_link_is_not_followed(writer, tmp_path):
    link = tmp_path / "link.ring"
    link.symlink_to(writer.path)
    with pytest.raises(OSError):
        RingReader(str(link))


def test_no_ring_no_reader(tmp_path):
    with pytest.raises(FileNotFoundError):
        RingReader(str(tmp_path / "none.ring"))


def written(path, offset, data):
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(data)


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
