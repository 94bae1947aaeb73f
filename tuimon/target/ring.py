"""The marker ring: one memory-mapped file per training process, written in the target, read by the monitor.

Layout of the file (little endian; all offsets in bytes)::

    0        header   magic, version, slot count, pid, start ticks, creation time, count of names, meta length
    4096     meta     JSON about the process (rank, versions, run id, output file), rewritten whole
    12288    names    table of interned strings: u16 length + UTF-8, in order of their ids
    143360   slots    SLOT_COUNT slots of 32 bytes

A slot is ``sequence u64 | time_ns u64 | kind u16 | flag u16 | tid u32 | value u32 | check u32``: sequence counts
from 1, ``check`` is its low 32 bits again, so a reader recognises a slot that is half written. Slots are written by slice
assignment of packed bytes: ``struct.pack_into`` on an mmap clears the destination first, and a reader would see the zeros.

Standard library only, Python 3.9+: this file runs inside the user's process.
"""

import itertools
import json
import mmap
import os
import struct
import tempfile
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

MAGIC = b"TUIMON\x00\x01"
VERSION = 1
META_OFFSET = 4096
META_BYTES = 8192
NAMES_OFFSET = META_OFFSET + META_BYTES
NAMES_BYTES = 128 * 1024
SLOTS_OFFSET = NAMES_OFFSET + NAMES_BYTES
SLOT_BYTES = 32
#: 2 MiB of slots: about 4 s of a 0.25 ms step with four user ranges.
SLOT_COUNT = 65536

_HEADER = struct.Struct("<8sIIIQQ")  # magic, version, slot_count, pid, start_ticks, created_ns
_NAME_COUNT_OFFSET = 64
_META_LENGTH_OFFSET = 72
_U32 = struct.Struct("<I")
_SLOT = struct.Struct("<QQHHIII")

# Kinds of markers. Begin and end of a pair differ in the lowest bit.
FETCH_BEGIN = 2  # value: id of the iterator
FETCH_END = 3  # flag: 0 a batch, 1 StopIteration, 2 another exception
BACKWARD_BEGIN = 4
BACKWARD_END = 5
OPTIMIZER_BEGIN = 6
OPTIMIZER_END = 7
RANGE_PUSH = 8  # value: name id; per-thread nesting
RANGE_POP = 9
RANGE_START = 10  # value: handle, flag: name id; may end on another thread
RANGE_END = 11  # value: handle
STEP = 12  # tuimon.step(): a step ends here
MARK = 14  # value: name id


class Marker(NamedTuple):
    """One slot of the ring: ``time_ns`` of ``time.monotonic_ns()``, ``kind`` as above, OS thread id."""

    time_ns: int
    kind: int
    flag: int
    tid: int
    value: int


def ring_directory() -> str:
    """Directory that holds this user's rings; ``TUIMON_RING_DIR`` overrides it (tests, exotic containers)."""
    override = os.environ.get("TUIMON_RING_DIR")
    if override:
        return override
    base = "/dev/shm" if os.access("/dev/shm", os.W_OK | os.X_OK) else tempfile.gettempdir()  # noqa: S108
    return os.path.join(base, "tuimon-%d" % os.getuid())


def start_ticks(pid: int) -> int:
    """Start time of a process in clock ticks since boot (field 22 of /proc/PID/stat): with the pid, its identity.

    Raises OSError when there is no such process.
    """
    with open("/proc/%d/stat" % pid, "rb") as stat:
        return int(stat.read().rpartition(b")")[2].split()[19])


def ring_path(pid: int, directory: Optional[str] = None) -> str:
    """Where the ring of a live process is, if it has one."""
    return os.path.join(directory or ring_directory(), "%d-%d.ring" % (pid, start_ticks(pid)))


class RingError(Exception):
    """The file is no ring of this version, or belongs to somebody else."""


class RingWriter:
    """The target's side. ``emit`` is a closure: one call, no lock, no allocation that outlives it."""

    def __init__(self, path: str, slot_count: int = SLOT_COUNT) -> None:
        """Create the file. Raises OSError when there is no room: never SIGBUS later."""
        self.path = path
        self.pid = os.getpid()
        size = SLOTS_OFFSET + slot_count * SLOT_BYTES
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            # A sparse file on a full tmpfs would raise SIGBUS at the first touch; reserve the pages now.
            os.posix_fallocate(handle, 0, size)
            self._map = mmap.mmap(handle, size)
        except BaseException:
            os.close(handle)
            os.unlink(path)
            raise
        os.close(handle)
        self._names: Dict[str, int] = {}
        self._names_end = NAMES_OFFSET
        self._map[_NAME_COUNT_OFFSET : _NAME_COUNT_OFFSET + 4] = _U32.pack(0)
        self.emit = self._make_emit(slot_count)
        header = _HEADER.pack(MAGIC, VERSION, slot_count, self.pid, start_ticks(self.pid), time.monotonic_ns())
        self._map[0 : len(header)] = header

    def _make_emit(self, slot_count: int) -> Callable[..., None]:
        view = self._map
        pack = _SLOT.pack
        take = itertools.count(1).__next__  # atomic under the GIL: hands out slots without a lock
        now = time.monotonic_ns
        # threading.get_native_id caches nothing on 3.9; the C function costs ~60 ns
        from _thread import get_native_id

        def emit(kind: int, value: int = 0, flag: int = 0) -> None:
            sequence = take()
            at = SLOTS_OFFSET + (sequence - 1) % slot_count * SLOT_BYTES
            view[at : at + SLOT_BYTES] = pack(
                sequence, now(), kind, flag, get_native_id(), value & 0xFFFFFFFF, sequence & 0xFFFFFFFF
            )

        return emit

    def name_id(self, name: str) -> int:
        """Id of an interned string, 0 when the table is full."""
        known = self._names.get(name)
        if known is not None:
            return known
        raw = name.encode("utf-8", "replace")[:1024]
        entry = struct.pack("<H", len(raw)) + raw
        if self._names_end + len(entry) > NAMES_OFFSET + NAMES_BYTES or len(self._names) >= 0xFFFF:
            return 0
        self._map[self._names_end : self._names_end + len(entry)] = entry
        self._names_end += len(entry)
        number = len(self._names) + 1
        self._names[name] = number
        # the count is published after the bytes
        self._map[_NAME_COUNT_OFFSET : _NAME_COUNT_OFFSET + 4] = _U32.pack(number)
        return number

    def set_meta(self, meta: Dict[str, Any]) -> None:
        """Publish facts about the process; later calls replace earlier ones."""
        raw = json.dumps(meta, separators=(",", ":")).encode()
        if len(raw) > META_BYTES:
            raw = b"{}"
        self._map[_META_LENGTH_OFFSET : _META_LENGTH_OFFSET + 4] = _U32.pack(0)
        self._map[META_OFFSET : META_OFFSET + len(raw)] = raw
        self._map[_META_LENGTH_OFFSET : _META_LENGTH_OFFSET + 4] = _U32.pack(len(raw))

    def unlink(self) -> None:
        """Remove the file's name; a reader that has it open keeps the contents."""
        try:
            os.unlink(self.path)
        except OSError:
            pass


class RingReader:
    """The monitor's side: follows one ring, counts what it lost."""

    #: How many reads a hole may stay open (its writer was interrupted between taking and filling it).
    PATIENCE = 3

    def __init__(self, path: str) -> None:
        """Map the file. Raises RingError when it is not a ring of this version, OSError when it is not there."""
        self.path = path
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            info = os.fstat(handle)
            if info.st_uid != os.getuid():
                raise RingError("%s belongs to user %d" % (path, info.st_uid))
            if info.st_size < SLOTS_OFFSET + SLOT_BYTES:
                raise RingError("%s is too short for a ring" % path)
            self._map = mmap.mmap(handle, info.st_size, prot=mmap.PROT_READ)
        finally:
            os.close(handle)
        magic, version, slots, self.pid, self.start_ticks, self.created_ns = _HEADER.unpack_from(self._map)
        if magic != MAGIC or version != VERSION or info.st_size != SLOTS_OFFSET + slots * SLOT_BYTES:
            self._map.close()
            raise RingError("%s is not a ring of version %d" % (path, VERSION))
        self._slots: int = slots
        self._next = 1  # sequence of the next slot to read
        self._hole_age = 0
        self._names: List[str] = [""]
        self._names_end = NAMES_OFFSET
        self.dropped = 0
        self._begun = False

    def close(self) -> None:
        """Unmap the file."""
        self._map.close()

    def meta(self) -> Dict[str, Any]:
        """Facts about the process; empty while they are being written."""
        (length,) = _U32.unpack_from(self._map, _META_LENGTH_OFFSET)
        if not 0 < length <= META_BYTES:
            return {}
        try:
            found = json.loads(self._map[META_OFFSET : META_OFFSET + length])
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}

    def name(self, number: int) -> str:
        """The interned string with this id; "?" when there is none."""
        (count,) = _U32.unpack_from(self._map, _NAME_COUNT_OFFSET)
        while len(self._names) <= min(number, count):
            at = self._names_end
            if at + 2 > SLOTS_OFFSET:
                break
            (length,) = struct.unpack_from("<H", self._map, at)
            self._names.append(self._map[at + 2 : at + 2 + length].decode("utf-8", "replace"))
            self._names_end = at + 2 + length
        return self._names[number] if 0 < number < len(self._names) else "?"

    def read(self) -> List[Marker]:
        """All markers written since the last call, oldest first; adds overwritten ones to ``dropped``."""
        out: List[Marker] = []
        if not self._begun:  # what was overwritten before we came is history, not loss
            self._begun = True
            out = self.read()
            self.dropped = 0
            return out
        while True:
            index = (self._next - 1) % self._slots
            start = SLOTS_OFFSET + index * SLOT_BYTES
            chunk = self._map[start : min(start + 4096 * SLOT_BYTES, len(self._map))]
            taken, stop = self._take(chunk, out)
            self._next += taken
            if stop or not taken:
                return out

    def _take(self, chunk: bytes, out: List[Marker]) -> Tuple[int, bool]:
        """Append the valid run at the start of ``chunk``; returns (slots consumed, nothing more to read)."""
        expected = self._next
        taken = 0
        for sequence, time_ns, kind, flag, tid, value, check in _SLOT.iter_unpack(chunk):
            if sequence == expected + taken and check == sequence & 0xFFFFFFFF:
                out.append(Marker(time_ns, kind, flag, tid, value))
                taken += 1
                continue
            if sequence > expected + taken:
                # The writer lapped us. Resume a quarter ring behind it, so that it does not at once lap us again.
                resume = max(sequence - self._slots + self._slots // 4, expected + taken + 1)
                self.dropped += resume - (expected + taken)
                return taken + resume - (expected + taken), False
            self._hole_age = 0 if taken else self._hole_age
            return taken, not self._skip_hole(expected + taken, taken)
        self._hole_age = 0
        return taken, False

    def _skip_hole(self, sequence: int, taken: int) -> bool:
        """Whether the empty slot at ``sequence`` was abandoned: its successor is filled and it stayed empty."""
        after = SLOTS_OFFSET + sequence % self._slots * SLOT_BYTES
        (following,) = struct.unpack_from("<Q", self._map, after)
        if following != sequence + 1:
            return False
        self._hole_age += 1
        if self._hole_age < self.PATIENCE:
            return False
        self._hole_age = 0
        self.dropped += 1
        self._next += 1
        return True
