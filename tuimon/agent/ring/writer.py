"""The agent's side of a ring: makes and writes it, and interns the names of user ranges with their places."""

import itertools
import json
import os
import re
import sys
import time
from _thread import get_ident, get_native_id
from collections import deque
from types import CodeType, FrameType
from typing import Any, Callable, Deque, Dict, List, Optional, Set, Tuple

from ..outside import attempt, is_surely_ours
from ..own_threads import Turn
from ..private import make_private
from . import files, layout
from .control_words import CONTROL_BYTES, CONTROL_OFFSET

#: sequence, time_ns, kind, value, flag, thread ident
Waiting = Tuple[int, int, int, int, int, int]

_NAME_LIMIT_BYTES = 1024
#: A loop is fast if this many markers come this close together on average: steps of up to 24 ms, or 36 with a
#: DataLoader. Its markers then wait up to HOLD_NS to be written: while the loop halts, the monitor lacks them.
FAST_MARKERS = 16
FAST_GAP_NS = 6_000_000
HOLD_NS = 50_000_000
#: Most markers that wait, 7 MB: if a raising signal handler cuts every writing short, the oldest are dropped. They have
#: their sequences, so the reader counts them as dropped.
WAITING_LIMIT = 32768
_WORD = (1 << 64) - 1

RING_BYTES = layout.SLOTS_OFFSET + layout.SLOT_COUNT * layout.SLOT_BYTES


#: After this many distinct names, digits are taken for a counter: "iter 1043" becomes "iter #".
_DISTINCT_LIMIT = 64
_NAMES_LIMIT = 1024
_CACHE_LIMIT = 4096
_NAME_CHARACTERS = 200
_OVERFLOW = "(more names)"


class RingWriter:
    """Writes one ring. ``emit`` and ``flush`` are closures: ``emit`` takes no lock, waits for nothing, never raises."""

    def __init__(self, path: str, slot_count: int = layout.SLOT_COUNT) -> None:
        """Create the file and reserve its space: no write raises SIGBUS later. Raises OSError when there is none."""
        self.path = path
        self.pid = os.getpid()
        ticks = files.start_ticks(self.pid)
        size = layout.SLOTS_OFFSET + slot_count * layout.SLOT_BYTES
        unborn = "%s.%d" % (path, time.monotonic_ns())  # a reader sees the file whole or not at all
        handle = os.open(unborn, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            files.fill(handle, size)
            attempt(files.lock, handle)  # held by the map (see ``map_file``); there are file systems without locks
            self._map = files.map_file(handle, size)
            header = layout.HEADER.pack(layout.MAGIC, layout.VERSION, slot_count, self.pid, ticks, time.monotonic_ns())
            self._put(0, header)
            os.rename(unborn, path)
        except BaseException:
            files.remove_file(unborn)
            raise
        finally:
            os.close(handle)
        self._meta: Dict[str, Any] = {}
        self._names: Dict[str, int] = {}
        self._table: Tuple[int, int] = (0, layout.NAMES_OFFSET)  # how many names, and where the next one goes
        self._interning = Turn(self.name_id)
        self._seen: Set[str] = set()  # names of user ranges
        # their ids by name and place, with the code, so that its ``id()`` is not reused (its hash hashes its constants)
        self._ids: Dict[Tuple[object, int, int], Tuple[int, Optional[CodeType]]] = {}
        self._latest = [0]  # sequence of the latest marker that was written; in a list: no closure holds ``self``
        self._words = memoryview(self._map)[layout.SLOTS_OFFSET :].cast("Q")
        #: ``emit_of(time_ns, thread, kind, value, flag)`` emits for another moment and thread.
        self.emit_of: Callable[..., None]
        #: ``hold`` has markers wait from now on.
        self.hold: Callable[[], None]
        self.emit, self.flush = self._make_emit(slot_count)

    def _make_emit(self, slot_count: int) -> Tuple[Callable[..., None], Callable[[], None]]:
        # In a training the code for each marker is cold after every kernel: 2 us to write a slot at steps of 0.3 ms,
        # 5 to 10 at 5 ms, 0.3 when hot. In a fast loop markers therefore wait in a queue, and are written in one hot
        # run: of 44 us a step of 6.6 ms, 25 were left; of 83 us a step of 11.5 ms, on a slow day, 59.
        #
        # No lock: a signal handler may raise between any two bytecodes, and would leave it locked. A marker has its
        # sequence, and with it its slot, before it is queued: the thread that takes it off the queue writes it, in any
        # order. A marker that is never written is a gap that the reader counts.
        held_until = memoryview(self._map)[layout.HELD_UNTIL_OFFSET : layout.HELD_UNTIL_OFFSET + 8].cast("q")
        waiting: Deque[Waiting] = deque(maxlen=WAITING_LIMIT)
        wait = waiting.append
        next_sequence = itertools.count(1).__next__
        write_all = self.make_write(slot_count, waiting)
        now = time.monotonic_ns
        thread = get_ident  # gettid is a system call: made once in a run of writing
        due_ns = 0  # markers before this moment may wait; 0 in a slow loop
        counted, since_ns = 0, now()  # how many were written, and since when, in a slow loop

        def emit(kind: int, value: int = 0, flag: int = 0) -> None:
            time_ns = now()
            wait((next_sequence(), time_ns, kind, value, flag, thread()))
            if time_ns > due_ns:
                note_written(write_all(), time_ns)

        def note_written(written: "Optional[int]", time_ns: int) -> None:
            nonlocal due_ns, counted, since_ns
            if written is None:
                return
            counted += written
            if not due_ns and counted < FAST_MARKERS:
                return
            fast = time_ns - since_ns < counted * FAST_GAP_NS
            due_ns = time_ns + HOLD_NS if fast else 0
            held_until[0] = due_ns
            counted, since_ns = 0, time_ns

        def flush() -> None:
            note_written(write_all(), now())

        def emit_of(time_ns: int, ident: int, kind: int, value: int, flag: int) -> None:
            wait((next_sequence(), time_ns, kind, value, flag, ident))

        def hold() -> None:
            nonlocal due_ns, counted, since_ns
            since_ns = now()
            due_ns = since_ns + HOLD_NS
            counted = FAST_MARKERS
            held_until[0] = due_ns

        self.emit_of, self.hold = emit_of, hold
        return emit, flush

    def make_write(self, slot_count: int, waiting: Deque[Waiting]) -> Callable[[], Optional[int]]:
        """A function that writes the waiting markers and returns how many it wrote; None in a forked child.

        A child calls it before it has let go of its parent's ring if a garbage collection at the fork takes long. The
        waiting markers are the parent's to write: from here they would name a thread that the parent does not have.
        """
        words, latest, pid, slot_words = self._words, self._latest, self.pid, layout.SLOT_WORDS
        take = waiting.popleft
        tids: Dict[int, int] = {}

        def write_all() -> "Optional[int]":
            written = sequence = 0
            own, tid = get_ident(), get_native_id()
            if tids.get(own) != tid:  # a thread that is new here, maybe with the ident of one that is gone
                if os.getpid() != pid:
                    return None
                tids[own] = tid
            while waiting:
                try:
                    sequence, time_ns, kind, value, flag, ident = take()
                except IndexError:  # another thread has taken the last
                    break
                tid = tids.get(ident) or tids.setdefault(ident, _native_id(ident))
                at = sequence % slot_count * slot_words
                try:
                    words[at + 1] = time_ns
                    words[at + 2] = kind | (flag & 0xFFFF) << 16 | tid << 32
                    words[at + 3] = value & _WORD
                except (TypeError, ValueError):  # no number: the slot stays empty, the reader skips it
                    continue
                words[at] = sequence  # last: now it may be read
                written += 1
            latest[0] = max(latest[0], sequence)
            return written

        return write_all

    def written(self) -> int:
        """The number of markers written so far."""
        return self._latest[0]

    def control_words(self) -> memoryview:
        """The words through which a monitor gives orders (``control_words.py``)."""
        return memoryview(self._map)[CONTROL_OFFSET : CONTROL_OFFSET + CONTROL_BYTES].cast("Q")

    def random(self) -> float:
        """A random number from 0 to 1, not taken from the program's own generators."""
        return (self._latest[0] * 2654435761 + time.monotonic_ns()) * 2654435761 % 65536 / 65536

    def name_id(self, name: str) -> int:
        """Id of an interned string; 0 when the table is full, or being written by another thread just now."""
        known = self._names.get(name)
        if known is not None:
            return known
        turn = self._interning.take()
        if turn is None:  # never waits: it may be this very thread's, interrupted by a signal handler or a finalizer
            return 0
        try:
            return self.intern(name)
        finally:
            self._interning.release(turn)

    def intern(self, name: str) -> int:
        """The number of a name, which is written into the ring's table; 0 if that is full."""
        count, at = self._table
        raw = name.encode("utf-8", "replace")[:_NAME_LIMIT_BYTES]
        end = at + layout.U16.size + len(raw)
        if end > layout.NAMES_OFFSET + layout.NAMES_BYTES or count >= 0xFFFF:
            return 0
        self._put(at, layout.U16.pack(len(raw)) + raw)
        # In this order ids and entries stay consistent whatever interrupts: at worst a name has two ids.
        self._table = (count + 1, end)
        self._put(layout.NAME_COUNT_OFFSET, layout.U32.pack(count + 1))
        self._names[name] = count + 1
        return count + 1

    def set_meta(self, meta: Dict[str, Any]) -> None:
        """Publish facts about the process in place of earlier ones; the longest values are left out until they fit."""
        raw = _json(meta)
        while len(raw) > layout.META_BYTES:
            longest = max(meta, key=lambda key: len(_json(meta[key])))
            meta = {key: value for key, value in meta.items() if key != longest}
            raw = _json(meta)
        self._meta = meta
        self._put(layout.META_LENGTH_OFFSET, layout.U32.pack(0))
        self._put(layout.META_OFFSET, raw)
        self._put(layout.META_LENGTH_OFFSET, layout.U32.pack(len(raw)))

    def add_meta(self, more: Dict[str, Any]) -> None:
        """Publish further facts in addition to earlier ones."""
        self.set_meta({**self._meta, **more})

    def place_id(self, name: object, frame: FrameType) -> int:
        """Name id of a range opened by the current instruction of ``frame``; 0 when there is no room for its name."""
        known = self._ids.get((name, id(frame.f_code), frame.f_lasti)) if name.__class__ is str else None
        return known[0] if known else attempt(self._remember, name, frame.f_code, frame.f_lasti, frame.f_lineno) or 0

    def function_id(self, name: object, code: Optional[CodeType]) -> int:
        """Name id of a range that is a whole function; 0 when there is no room for its name."""
        known = self._ids.get((name, id(code), -1)) if name.__class__ is str else None
        return known[0] if known else attempt(self._remember, name, code, -1, code.co_firstlineno if code else 0) or 0

    def _remember(self, name: object, code: Optional[CodeType], instruction: int, line: int) -> int:
        # the text of a name, which a class of the program may give
        text = str.replace(str.__getitem__(str(name), slice(_NAME_CHARACTERS)), layout.PLACE_SEPARATOR, "?")
        seen = self._seen
        if text not in seen and len(seen) >= _DISTINCT_LIMIT:
            text = re.sub(r"\d+", "#", text)
        if text not in seen and len(seen) >= _NAMES_LIMIT:
            text = _OVERFLOW
        else:
            seen.add(text)
        parts = (text, code.co_filename, code.co_name, str(line)) if code else (text,)
        number = self.name_id(layout.PLACE_SEPARATOR.join(parts))
        if number and name.__class__ is str and text == name and len(self._ids) < _CACHE_LIMIT:
            self._ids[name, id(code), instruction] = (number, code)
        return number

    def unlink(self, reason: int = layout.AT_END) -> None:
        """Remove the file's name, and note that it was us; a reader that has it open keeps the contents."""
        self._put(layout.CLOSED_OFFSET, layout.U32.pack(reason))
        files.remove_file(self.path)

    def _put(self, offset: int, raw: bytes) -> None:
        self._map[offset : offset + len(raw)] = raw


def _native_id(ident: int) -> int:
    """OS thread id of another thread of this process; 0 if it has ended or ``threading`` does not know it."""
    known = getattr(sys.modules.get("threading"), "_active", {}).get(ident)
    return getattr(known, "native_id", None) or 0


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), default=str).encode()


#: A ring made less than this ago may not have been found yet by the monitor that waits for it.
YOUNG_S = 30.0
_STREAMS = 3


def make_ring() -> Optional[RingWriter]:
    """A ring in the first directory that has room for one; None if none has: a file then says why.

    Raises OSError if /proc is missing, or no descriptor is left.
    """
    handles: List[int] = []  # at the numbers of closed standard streams, where C code would print into the ring
    try:
        while not handles or handles[-1] < _STREAMS:
            handles.append(os.open("/", os.O_PATH | os.O_CLOEXEC))
        os.close(handles.pop())
        return _make_ring()
    finally:
        for handle in handles:
            os.close(handle)


def _make_ring() -> Optional[RingWriter]:
    directories = files.ring_directories()
    name = files.ring_name(os.getpid())
    limit = files.file_size_limit()
    if limit < RING_BYTES:
        files.leave_reason("a ring has %d bytes, files may have %d (ulimit -f)" % (RING_BYTES, limit))
        return None
    reasons = []
    for directory in directories:
        try:
            refused = files.shortage(directory) or make_private(directory)
            if refused is None:
                remove_stale(directory)
                return RingWriter(os.path.join(directory, name))
            reasons.append(refused)
        except OSError as error:  # missing, read-only, full
            if not is_surely_ours(error):
                raise
            reasons.append("%s: %s" % (directory, getattr(error, "strerror", None) or error))
    files.leave_reason("; ".join(reasons))
    return None


def remove_stale(directory: str) -> None:
    """Remove the rings of processes that were killed, except young ones, which the monitor may not have read yet."""
    for name in os.listdir(directory):
        pid, dash, rest = name.partition("-")
        ticks = rest.partition(".")[0]
        is_ring = dash and ".ring" in rest and pid.isdecimal() and ticks.isdecimal()
        if is_ring and not files.is_running(int(pid), int(ticks)):
            attempt(_remove_unlocked, os.path.join(directory, name))


def _remove_unlocked(path: str) -> None:
    """Unlink the file unless a process holds its lock: one in another pid namespace that shares /dev/shm."""
    handle = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        if os.fstat(handle).st_mtime < time.time() - YOUNG_S:
            files.lock(handle)
            os.unlink(path)
    finally:
        os.close(handle)
