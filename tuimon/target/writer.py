"""The target's side of a ring."""

import fcntl
import itertools
import json
import mmap
import os
import time
from _thread import _local, allocate_lock, get_native_id
from typing import Any, Callable, Dict, List, Tuple

from .layout import (
    HEADER,
    KINDS,
    MAGIC,
    META_BYTES,
    META_LENGTH_OFFSET,
    META_OFFSET,
    NAME_COUNT_OFFSET,
    NAMES_BYTES,
    NAMES_OFFSET,
    SLOT_BYTES,
    SLOT_COUNT,
    SLOT_WORDS,
    SLOTS_OFFSET,
    U16,
    U32,
    VERSION,
    start_ticks,
)

_NAME_LIMIT_BYTES = 1024


class RingWriter:
    """Writes one ring. ``emit`` is a closure: one call, no lock, no allocation that outlives it; it never raises."""

    def __init__(self, path: str, slot_count: int = SLOT_COUNT) -> None:
        """Create the file. Raises OSError when there is no room: never SIGBUS later."""
        self.path = path
        self.pid = os.getpid()
        ticks = start_ticks(self.pid)
        size = SLOTS_OFFSET + slot_count * SLOT_BYTES
        unborn = "%s.%d" % (path, time.monotonic_ns())  # a reader sees the file whole or not at all
        handle = os.open(unborn, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            # A sparse file on a full tmpfs would raise SIGBUS at the first touch; reserve the pages now.
            os.posix_fallocate(handle, 0, size)
            # Held by the map's own duplicate of the descriptor until this process is gone (see rings.py).
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._map = mmap.mmap(handle, size)
            header = HEADER.pack(MAGIC, VERSION, slot_count, self.pid, ticks, time.monotonic_ns())
            self._map[0 : len(header)] = header
            os.rename(unborn, path)
        except BaseException:
            os.unlink(unborn)
            raise
        finally:
            os.close(handle)
        self._names: Dict[str, int] = {}
        self._table: Tuple[int, int] = (0, NAMES_OFFSET)  # how many names, and where the next one goes
        self._interning = allocate_lock()
        self.emit = self._make_emit(slot_count)

    def _make_emit(self, slot_count: int) -> Callable[..., None]:
        # Stores through a memoryview: in a training the code for each marker is cold, and what is not called need not
        # be fetched. 2.1 us a marker there, 3.0 with struct.pack_into (0.3 both when hot).
        words = memoryview(self._map)[SLOTS_OFFSET:].cast("Q")
        take = itertools.count(1).__next__  # atomic under the GIL: hands out slots without a lock
        now = time.monotonic_ns
        thread = _local()  # gettid is a system call: 0.2 us; this is 0.04

        def emit(kind: int, value: int = 0, flag: int = 0) -> None:
            sequence = take()
            try:
                heads = thread.heads
            except AttributeError:
                heads = thread.heads = _heads(get_native_id())
            try:
                at = sequence % slot_count * SLOT_WORDS
                words[at + 1] = now()
                words[at + 2] = heads[kind] + (flag << 16) if flag else heads[kind]
                words[at + 3] = value
                words[at] = sequence  # last: now it may be read
            except Exception:  # a value out of range: the slot stays empty, the reader steps over it
                return

        return emit

    def name_id(self, name: str) -> int:
        """Id of an interned string; 0 when the table is full, or being written by another thread just now."""
        known = self._names.get(name)
        if known is not None:
            return known
        # never waits: the holder may be this very thread, interrupted by a signal handler or a finalizer
        if not self._interning.acquire(False):
            return 0
        try:
            return self._intern(name)
        finally:
            self._interning.release()

    def _intern(self, name: str) -> int:
        count, at = self._table
        raw = name.encode("utf-8", "replace")[:_NAME_LIMIT_BYTES]
        end = at + U16.size + len(raw)
        if end > NAMES_OFFSET + NAMES_BYTES or count >= 0xFFFF:
            return 0
        self._map[at:end] = U16.pack(len(raw)) + raw
        # Whatever interrupts between these lines, ids and entries stay in step; the count is published last.
        self._table = (count + 1, end)
        self._names[name] = count + 1
        self._map[NAME_COUNT_OFFSET : NAME_COUNT_OFFSET + U32.size] = U32.pack(count + 1)
        return count + 1

    def set_meta(self, meta: Dict[str, Any]) -> None:
        """Publish facts about the process; later calls replace earlier ones. What is too long is left out."""
        raw = _json(meta)
        while len(raw) > META_BYTES:
            longest = max(meta, key=lambda key: len(_json(meta[key])))
            meta = {key: value for key, value in meta.items() if key != longest}
            raw = _json(meta)
        self._map[META_LENGTH_OFFSET : META_LENGTH_OFFSET + U32.size] = U32.pack(0)
        self._map[META_OFFSET : META_OFFSET + len(raw)] = raw
        self._map[META_LENGTH_OFFSET : META_LENGTH_OFFSET + U32.size] = U32.pack(len(raw))

    def unlink(self) -> None:
        """Remove the file's name; a reader that has it open keeps the contents."""
        try:
            os.unlink(self.path)
        except OSError:
            pass


def _heads(tid: int) -> List[int]:
    """The third word of a slot for every kind of marker of one thread: kind, no flag, thread id."""
    return [kind | tid << 32 for kind in range(KINDS)]


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), default=str).encode()
