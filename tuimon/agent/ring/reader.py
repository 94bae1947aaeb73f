"""The monitor's side of a ring: reads new markers and counts the lost ones.

Markers come as columns, one for each word of their slots, so that many markers are compared in one operation. The file
is read, not mapped: if somebody cuts it short, a read returns less, but a map kills the process that touches it
(SIGBUS).
"""

import fcntl
import json
import os
import stat
import struct
import sys
from functools import partial
from typing import Any, Dict, Iterator, List, NamedTuple, Tuple

from . import layout
from .files import PID_LIMIT
from .loading_slots import Loading, used_bytes, used_slots

__all__ = ("RingError", "RingReader")

_FIRST_CHUNK_SLOTS = 64  # most reads find few markers
_CHUNK_SLOTS = 4096
#: Slots of the smallest ring and of the largest: others are damaged.
_SLOTS = (8 * layout.SLOT_MARGIN, 1 << 18)
#: Most chunks in one ``read``: all of the largest ring. Damaged sequences would keep it reading.
_CHUNKS_LIMIT = 96
#: No writer comes to this sequence: a million a second would take 285 years.
_SEQUENCE_LIMIT = 1 << 53
#: Most facts that ranks may have in common.
_FACTS_LIMIT = 64
#: A hole of more empty slots than this is passed once the writer has come round.
_HOLE_LIMIT = 64


_as_marker = partial(tuple.__new__, layout.Marker)

#: The flag within a head.
FLAG_SHIFT = 16
#: The thread id within a head.
TID_SHIFT = 32
LOW_BITS = 0xFFFF


class Columns(NamedTuple):
    """Markers in their order; ``heads``: kind, flag and thread of each in one number, as in its slot."""

    times_ns: List[int]
    heads: List[int]
    values: List[int]

    def markers(self) -> List[layout.Marker]:
        return [
            _as_marker((time_ns, head & LOW_BITS, head >> FLAG_SHIFT & LOW_BITS, head >> TID_SHIFT, value))
            for time_ns, head, value in zip(*self)
        ]

    def append(self, *marker: int) -> None:
        for column, value in zip(self, marker):
            column.append(value)

    def extend(self, others: "Columns") -> None:
        for column, more in zip(self, others):
            column.extend(more)

    def drop(self, count: int) -> None:
        for column in self:
            del column[:count]


def columns_of(slots: bytes) -> Columns:
    """The markers that these slots hold."""
    words = whole(slots).cast("Q")
    return Columns(
        words[1 :: layout.SLOT_WORDS].tolist(),
        words[2 :: layout.SLOT_WORDS].tolist(),
        words[3 :: layout.SLOT_WORDS].tolist(),
    )


def sequences_of(slots: bytes) -> List[int]:
    return whole(slots).cast("Q")[:: layout.SLOT_WORDS].tolist() if slots else []


def whole(slots: bytes) -> memoryview:
    """The slots, without one that the file's end cuts in two."""
    return memoryview(slots)[: len(slots) // layout.SLOT_BYTES * layout.SLOT_BYTES]


class RingError(Exception):
    """The file is not a ring of this version, or belongs to another user."""


class RingReader:
    """Follows one ring, of this user, which outlives its name.

    Markers overwritten before the first ``read`` are not counted as dropped, later ones are.
    """

    #: A hole is skipped at this read: its writer was interrupted between reserving the slot and filling it.
    HOLE_READS = 3

    def __init__(self, path: str, writable: bool = False) -> None:
        """Open the file. Raises RingError when it is not a ring of this version, OSError when it is not there."""
        self.path = path
        # a pipe must not hold us up, and a symbolic link is not ours
        flags = (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW
        self._handle = os.open(path, flags)
        try:
            info = os.fstat(self._handle)
            if info.st_uid != os.geteuid():
                raise RingError("%s belongs to user %d" % (path, info.st_uid))
            if not stat.S_ISREG(info.st_mode):
                raise RingError("%s is not a file" % path)
            if writable and info.st_mode & 0o077:
                raise RingError("%s is open to other users (mode %o)" % (path, stat.S_IMODE(info.st_mode)))
            magic, version, slots, self.pid, self.start_ticks, self.created_ns = layout.HEADER.unpack(
                self.bytes_at(0, layout.HEADER.size).ljust(layout.HEADER.size, b"\0")
            )
            sized = _SLOTS[0] <= slots <= _SLOTS[1] and info.st_size == layout.SLOTS_OFFSET + slots * layout.SLOT_BYTES
            if magic != layout.MAGIC or version != layout.VERSION or not sized or not 0 < self.pid <= PID_LIMIT:
                raise RingError("%s is not a ring of version %d" % (path, layout.VERSION))
        except BaseException:
            os.close(self._handle)
            raise
        self._size = info.st_size
        self._identity = (info.st_dev, info.st_ino)
        self._slots: int = slots
        self._next = 1  # sequence of the next slot to read
        self._hole = (0, 0)  # sequence of a slot that stays empty, and how many reads have found it so
        self._names: List[str] = [""]
        self._names_end = layout.NAMES_OFFSET
        self._has_read = False
        self._usual = _FIRST_CHUNK_SLOTS  # how many slots are read first
        self._meta_bytes = b""
        self._meta: Dict[str, Any] = {}
        self.dropped = 0

    def close(self) -> None:
        os.close(self._handle)

    def bytes_at(self, offset: int, length: int) -> bytes:
        """At most ``length`` bytes; fewer if the file was cut short."""
        return os.pread(self._handle, length, offset)

    def write(self, offset: int, data: bytes) -> None:
        """Replace bytes, unless the file was cut short. Raises OSError."""
        if self.is_cut():
            raise OSError("the ring was cut short")
        os.pwrite(self._handle, data, offset)

    def try_lock(self, offset: int, length: int) -> bool:
        """Lock bytes against other monitors; False while one has them. Closing any handle of the file unlocks."""
        try:
            fcntl.lockf(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB, length, offset)
        except OSError:
            return False
        return True

    def unlock(self, offset: int, length: int) -> None:
        fcntl.lockf(self._handle, fcntl.LOCK_UN, length, offset)

    def number(self, offset: int, form: struct.Struct = layout.U64) -> int:
        """The integer at ``offset``; 0 if the file was cut short."""
        raw = os.pread(self._handle, form.size, offset)
        return int(form.unpack(raw)[0]) if len(raw) == form.size else 0

    def is_cut(self) -> bool:
        """True if the file has become shorter: what was cut off is lost, and its process ends at its next marker."""
        return os.fstat(self._handle).st_size < self._size

    def is_replaced(self) -> bool:
        """True if the path names another ring: a process that replaces itself (exec) makes a new one."""
        try:
            info = os.stat(self.path)
        except OSError:
            return False
        return (info.st_dev, info.st_ino) != self._identity

    def has_vanished(self) -> bool:
        """True if the path names nothing any more."""
        try:
            os.stat(self.path)
        except OSError as error:
            return isinstance(error, FileNotFoundError)
        return False

    def is_closed(self) -> bool:
        """True if its process has written its last marker."""
        return bool(self.number(layout.CLOSED_OFFSET))

    def is_withdrawn(self) -> bool:
        """True if its process goes on without hooks."""
        return self.number(layout.CLOSED_OFFSET) == layout.WITHDRAWN

    def is_filling(self) -> bool:
        """True if an eighth of the ring holds markers that have not been read."""
        ahead = self._next + self._slots // 8
        return self.number(layout.SLOTS_OFFSET + ahead % self._slots * layout.SLOT_BYTES) >= ahead

    def meta(self) -> Dict[str, Any]:
        """Facts about the process; empty while they are being written. The same object until they change."""
        known = len(self._meta_bytes)
        # in one read: a monitor asks every ring once a window
        both = self.bytes_at(layout.META_LENGTH_OFFSET, layout.META_OFFSET + known - layout.META_LENGTH_OFFSET)
        length = layout.U32.unpack_from(both)[0] if len(both) >= layout.U32.size else 0
        found = both[layout.META_OFFSET - layout.META_LENGTH_OFFSET :]
        if length != known:
            found = self.bytes_at(layout.META_OFFSET, length) if 0 < length <= layout.META_BYTES else b""
        if found != self._meta_bytes:
            self._meta_bytes, self._meta = found, parsed_facts(found)
        return self._meta

    def held_until_ns(self) -> int:
        """The time (monotonic) until which the latest markers of a fast loop may wait in the writer; 0 if none do.

        A marker after that moment would have had all of them written.
        """
        return self.number(layout.HELD_UNTIL_OFFSET)

    def name(self, number: int) -> str:
        """The interned string with this id; "?" when there is none."""
        count = self.number(layout.NAME_COUNT_OFFSET, layout.U32)
        while len(self._names) <= min(number, count):
            at = self._names_end + layout.U16.size
            if at > layout.LOADING_OFFSET:
                break
            length = self.number(self._names_end, layout.U16)
            if at + length > layout.LOADING_OFFSET:
                break
            self._names.append(self.bytes_at(at, length).decode("utf-8", "replace"))
            self._names_end = at + length
        return self._names[number] if 0 < number < len(self._names) else "?"

    def loading(self) -> Iterator[Loading]:
        """The loading slots of this process's DataLoader workers, and of its loaders without workers."""
        area = self.bytes_at(layout.LOADING_OFFSET, layout.LOADING_BYTES)
        if len(area) < layout.LOADING_BYTES:  # it was cut short
            return iter(())
        again = self.bytes_at(layout.LOADING_OFFSET, used_bytes(area))
        return used_slots(area[: len(again)], again)

    def read(self) -> List[layout.Marker]:
        """All markers written since the last call, oldest first; adds overwritten ones to ``dropped``."""
        return self.read_columns().markers()

    def read_columns(self) -> Columns:
        """Like ``read``, with a column for each word of the slots."""
        out = Columns([], [], [])
        size = self._usual
        for _ in range(_CHUNKS_LIMIT):
            index = self._next % self._slots
            count = min(size, self._slots - index)
            size = min(size * 8, _CHUNK_SLOTS)
            valid = valid_slots(self._read_slots(index, count), self._next)
            # A sequence is written after the rest of its slot, but a copy keeps no order: read them again after it.
            markers = columns_of(self._read_slots(index, valid) if valid else b"")
            beyond = _HOLE_LIMIT if valid < count else 1
            # read last: the writer may have reached the slots while we read them
            around = self._sequences(self._next - layout.SLOT_MARGIN, layout.SLOT_MARGIN + valid + beyond)
            if self._skip_overwritten(around[0], around[layout.SLOT_MARGIN]):
                continue
            out.extend(markers)
            self._next += valid
            if valid < count and not self._skip_hole(around[layout.SLOT_MARGIN + valid :]):
                break
        # next time one chunk for as many markers, and some more: a chunk takes three reads
        self._usual = min(max(_FIRST_CHUNK_SLOTS, len(out.heads) + len(out.heads) // 8), _CHUNK_SLOTS)
        if not self._has_read:
            self._has_read = True
            self.dropped = 0
        return out

    def _read_slots(self, index: int, count: int) -> bytes:
        """The bytes of ``count`` slots, or of those up to the file's end."""
        length = max(min(count, self._slots - index), 0) * layout.SLOT_BYTES
        return self.bytes_at(layout.SLOTS_OFFSET + index * layout.SLOT_BYTES, length) if length else b""

    def _sequences(self, first: int, count: int) -> List[int]:
        """The sequences that are now in the slots of ``first``, ``first`` + 1, ...; 0 if the file was cut short."""
        index = first % self._slots
        slots = self._read_slots(index, count)
        if index + count > self._slots:
            slots += self._read_slots(0, index + count - self._slots)
        found = sequences_of(slots)
        return found + [0] * (count - len(found))

    def _skip_overwritten(self, margin_before: int, at_next: int) -> bool:
        """True if the writer is a lap ahead, or nearly; if so, continue a quarter ring after the oldest slot.

        This shows in the sequences that are now in the next slot and in the one a margin before it.
        """
        latest = max(
            self._possible(self._next, at_next), self._possible(self._next - layout.SLOT_MARGIN, margin_before)
        )
        if latest < self._next + self._slots - layout.SLOT_MARGIN:
            return False
        self._drop(latest - self._slots + self._slots // 4 - self._next)
        return True

    def _skip_hole(self, found: List[int]) -> bool:
        """True if the next slot may be passed: it stayed empty while later ones were filled, or is filled by now.

        ``found``: sequences from the next slot on.
        """
        if found[0] == self._next:  # written meanwhile
            return True
        if max(found) < self._next:  # the usual case: nothing was written after it
            return False
        beyond = (width for width, sequence in enumerate(found) if width and sequence == self._next + width)
        width = next(beyond, 0)
        if not width:
            return False
        at, age = self._hole
        age = age + 1 if at == self._next else 1
        self._hole = (self._next, age)
        if age < self.HOLE_READS:
            return False
        self._drop(width)
        return True

    def _drop(self, count: int) -> None:
        self.dropped += count
        self._next += count

    def _possible(self, number: int, found: int) -> int:
        """A sequence that is in the slot of ``number``; 0 if it cannot be there."""
        return found if found % self._slots == number % self._slots and found < _SEQUENCE_LIMIT else 0


#: The latest facts that are not numbers or strings, by name: ranks of a run have equal ones, and share one object.
_latest_facts: Dict[str, Any] = {}


def parsed_facts(found: bytes) -> Dict[str, Any]:
    try:
        facts = json.loads(found, object_pairs_hook=_shared)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(facts, dict):
        return {}
    for name, value in facts.items():
        if isinstance(value, (dict, list)) and len(_latest_facts) < _FACTS_LIMIT:
            if _latest_facts.setdefault(name, value) == value:
                facts[name] = _latest_facts[name]
            else:
                _latest_facts[name] = value
    return facts


def _shared(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
    """One object of JSON; what the processes of a run have in common is in memory once."""
    return {sys.intern(name): sys.intern(value) if type(value) is str else value for name, value in pairs}


def valid_slots(slots: bytes, first: int) -> int:
    """The number of slots at the start that hold the sequences ``first``, ``first`` + 1, ..."""
    sequences = sequences_of(slots)
    expected = range(first, first + len(sequences))
    if sequences == list(expected):
        return len(sequences)
    return next(at for at, (found, number) in enumerate(zip(sequences, expected)) if found != number)
