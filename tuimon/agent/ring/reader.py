"""The monitor's side of a ring: reads new markers and counts the lost ones."""

import json
import mmap
import os
import stat
from functools import partial
from typing import Any, Dict, Iterator, List, Tuple

from .layout import (
    HEADER,
    HELD_UNTIL_OFFSET,
    LOADING_OFFSET,
    MAGIC,
    META_BYTES,
    META_LENGTH_OFFSET,
    META_OFFSET,
    NAME_COUNT_OFFSET,
    NAMES_OFFSET,
    SLOT_BYTES,
    SLOT_MARGIN,
    SLOT_WORDS,
    SLOTS_OFFSET,
    U16,
    U32,
    U64,
    VERSION,
    Marker,
)
from .loading_slots import Loading, used_slots
from .paths import PID_LIMIT

_FIRST_CHUNK_SLOTS = 64  # most reads find few markers
_CHUNK_SLOTS = 4096
#: Slots of the smallest ring and of the largest: others are damaged.
_SLOTS = (8 * SLOT_MARGIN, 1 << 18)
#: Most chunks in one ``read``: all of the largest ring. Damaged sequences would keep it reading.
_CHUNKS_LIMIT = 96
#: No writer comes to this sequence: a million a second would take 285 years.
_SEQUENCE_LIMIT = 1 << 53
#: A hole has at most this many empty slots.
_HOLE_LIMIT = 64
_as_marker = partial(tuple.__new__, Marker)


class RingError(Exception):
    """The file is no ring of this version, or belongs to another user."""


class RingReader:
    """Follows one ring. Markers overwritten before the first ``read`` are not counted as dropped, later ones are."""

    #: A hole is skipped at this read: its writer was interrupted between reserving the slot and filling it.
    HOLE_READS = 3

    def __init__(self, path: str) -> None:
        """Map the file. Raises RingError when it is not a ring of this version, OSError when it is not there."""
        self.path = path
        self._map, self._identity = _map_own_file(path)
        magic, version, slots, self.pid, self.start_ticks, self.created_ns = HEADER.unpack_from(self._map)
        sized = _SLOTS[0] <= slots <= _SLOTS[1] and len(self._map) == SLOTS_OFFSET + slots * SLOT_BYTES
        if magic != MAGIC or version != VERSION or not sized or not 0 < self.pid <= PID_LIMIT:
            self._map.close()
            raise RingError("%s is not a ring of version %d" % (path, VERSION))
        self._slots: int = slots
        self._slots_view = memoryview(self._map)[SLOTS_OFFSET:]
        self._next = 1  # sequence of the next slot to read
        self._hole = (0, 0)  # sequence of a slot that stays empty, and how many reads have found it so
        self._names: List[str] = [""]
        self._names_end = NAMES_OFFSET
        self._has_read = False
        self.dropped = 0

    def close(self) -> None:
        """Unmap the file."""
        self._slots_view.release()
        self._map.close()

    def is_current(self) -> bool:
        """Whether the path still names this ring: a process that replaces itself (exec) makes a new one."""
        try:
            info = os.stat(self.path)
        except OSError:
            return False
        return (info.st_dev, info.st_ino) == self._identity

    def meta(self) -> Dict[str, Any]:
        """Facts about the process; empty while they are being written."""
        (length,) = U32.unpack_from(self._map, META_LENGTH_OFFSET)
        if not 0 < length <= META_BYTES:
            return {}
        try:
            found = json.loads(self._map[META_OFFSET : META_OFFSET + length])
        except (ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    def holds_back(self) -> bool:
        """Whether the latest markers may still wait in the writer (a fast loop): the current phase is unknown."""
        (until_ns,) = U64.unpack_from(self._map, HELD_UNTIL_OFFSET)
        return bool(until_ns)

    def name(self, number: int) -> str:
        """The interned string with this id; "?" when there is none."""
        (count,) = U32.unpack_from(self._map, NAME_COUNT_OFFSET)
        while len(self._names) <= min(number, count):
            at = self._names_end + U16.size
            if at > LOADING_OFFSET:
                break
            (length,) = U16.unpack_from(self._map, self._names_end)
            if at + length > LOADING_OFFSET:
                break
            self._names.append(self._map[at : at + length].decode("utf-8", "replace"))
            self._names_end = at + length
        return self._names[number] if 0 < number < len(self._names) else "?"

    def loading(self) -> Iterator[Loading]:
        """The loading slots of this process's DataLoader workers, and of its loaders without workers."""
        area, again = (self._map[LOADING_OFFSET:SLOTS_OFFSET] for _ in range(2))
        return used_slots(area, again)

    def read(self) -> List[Marker]:
        """All markers written since the last call, oldest first; adds overwritten ones to ``dropped``."""
        out: List[Marker] = []
        size = _FIRST_CHUNK_SLOTS
        for _ in range(_CHUNKS_LIMIT):
            index = self._next % self._slots
            count = min(size, self._slots - index)
            size = min(size * 8, _CHUNK_SLOTS)
            slots = self._slots_view[index * SLOT_BYTES : (index + count) * SLOT_BYTES]
            valid = _valid_slots(slots, self._next, count)
            markers = _markers(slots, valid)
            if self._skip_overwritten():  # checked last: the writer may have reached the slots while we read them
                continue
            out += markers
            self._next += valid
            if valid < count and not self._skip_hole():
                break
        if not self._has_read:
            self._has_read = True
            self.dropped = 0
        return out

    def _skip_overwritten(self) -> bool:
        """Whether the writer is a lap ahead, or nearly; if so, continue a quarter ring after the oldest slot."""
        latest = max(self._sequence(self._next), self._sequence(self._next - SLOT_MARGIN))
        if latest < self._next + self._slots - SLOT_MARGIN:
            return False
        self._drop(latest - self._slots + self._slots // 4 - self._next)
        return True

    def _skip_hole(self) -> bool:
        """Whether the next slot may be passed: it stayed empty while later ones were filled, or is filled by now."""
        if self._sequence(self._next) == self._next:  # written meanwhile
            return True
        width = self._filled_beyond()
        if not width:
            return False
        at, age = self._hole
        age = age + 1 if at == self._next else 1
        self._hole = (self._next, age)
        if age < self.HOLE_READS:
            return False
        self._drop(width)
        return True

    def _filled_beyond(self) -> int:
        """How many slots from the next one on are empty before a filled one; 0 when none is filled."""
        for width in range(1, min(_HOLE_LIMIT, self._slots)):
            if self._sequence(self._next + width) == self._next + width:
                return width
        return 0

    def _drop(self, count: int) -> None:
        self.dropped += count
        self._next += count

    def _sequence(self, number: int) -> int:
        """The sequence that is now in the slot of sequence ``number``; 0 for none, or one that cannot be there."""
        index = number % self._slots
        (found,) = U64.unpack_from(self._map, SLOTS_OFFSET + index * SLOT_BYTES)
        return int(found) if found % self._slots == index and found < _SEQUENCE_LIMIT else 0


def _map_own_file(path: str) -> Tuple[mmap.mmap, Tuple[int, int]]:
    """The map of a file of this user, and the file's identity (device, inode)."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)  # a pipe must not hold us up
    try:
        info = os.fstat(handle)
        if info.st_uid != os.geteuid():
            raise RingError("%s belongs to user %d" % (path, info.st_uid))
        if not stat.S_ISREG(info.st_mode):
            raise RingError("%s is no file" % path)
        if info.st_size < SLOTS_OFFSET + SLOT_BYTES:
            raise RingError("%s is too short for a ring" % path)
        return mmap.mmap(handle, info.st_size, prot=mmap.PROT_READ), (info.st_dev, info.st_ino)
    finally:
        os.close(handle)


def _valid_slots(slots: memoryview, first: int, count: int) -> int:
    """How many slots at the start hold the sequences ``first``, ``first`` + 1, ..."""
    sequences = slots.cast("Q")[::SLOT_WORDS].tolist()
    if sequences == list(range(first, first + count)):
        return count
    valid = 0
    while sequences[valid] == first + valid:
        valid += 1
    return valid


def _markers(slots: memoryview, count: int) -> List[Marker]:
    """The first ``count`` slots, read after their sequences, which are written after the rest.

    Column by column: a third of the time of unpacking slot by slot. Not from a copy: ``memcpy`` keeps no order.
    """
    if not count:
        return []
    view = slots[: count * SLOT_BYTES]
    longs, words, halves = view.cast("Q"), view.cast("I"), view.cast("H")
    columns = (longs[1::4], halves[8::16], halves[9::16], words[5::8], longs[3::4])
    return list(map(_as_marker, zip(*(column.tolist() for column in columns))))
