"""What loads batches tells here what it does: one slot in the trainer's ring for each worker, written by the worker.

A slot holds running totals, so a reader that comes late or looks seldom loses nothing, and a worker that ends leaves
nothing behind: its slot is taken over by a later one. Slots are claimed under a POSIX lock on the area's first byte.
"""

import fcntl
import mmap
import os
import struct
from time import monotonic_ns, sleep
from typing import Any, Iterator, NamedTuple, Optional

from ..loading.handover import HandOver
from .layout import LOADING_BYTES, LOADING_OFFSET, ring_path, start_ticks

#: sequence u64 | start ticks u64 | pid u32 | loader u16 | worker u16 | workers u16 | state u16 | dataset u32 |
#: since, batches, items, collate, wait, hand over: u64 | sequence u64. Times in ns.
SLOT = struct.Struct("<QQIHHHHIQQQQQQQ")
SLOT_BYTES = 128
SLOTS = LOADING_BYTES // SLOT_BYTES
#: Number of a "worker" that is the training process itself (``num_workers=0``).
IN_PROCESS = 0xFFFF

#: What a worker is at.
WAITING, ITEMS, COLLATE = 0, 1, 2
#: Part of what it waits, known when it is over: a batch was still being handed over.
_HANDING = 3
#: In place of the time for handing over: it is not measured.
UNMEASURED = 0xFFFF_FFFF_FFFF_FFFF

#: What took longer than this is written at its end; anything is, this long after the last time.
LONG_NS = 1_000_000
HOLD_NS = 20_000_000
#: Batches quicker than this, so many in a row, need no look inside.
QUICK_NS = 500_000
QUICK_BATCHES = 64

_KEY = struct.Struct("<QI")  # start ticks and pid, from byte 8 on


class Loading(NamedTuple):
    """One slot. The totals do not hold what is under way: ``state`` since ``since_ns``."""

    start_ticks: int
    pid: int
    loader: int  # name id of its loader's facts; 0 where only the trainer knows (workers)
    worker: int  # its number, or IN_PROCESS
    workers: int  # how many its loader has
    state: int
    dataset: int  # crc32 of the data set's class name
    since_ns: int
    batches: int
    items_ns: int
    collate_ns: int
    wait_ns: int
    hand_over_ns: int  # UNMEASURED: it is in ``wait_ns``


class Slot:
    """The writer's side of one slot. One thread at a time; never raises."""

    def __init__(self, view: Any, at: int, loader: int, worker: int, workers: int, dataset: int) -> None:
        self._view = view
        self._at = at
        self._head = (start_ticks(os.getpid()), os.getpid(), loader, worker, workers)
        self._dataset = dataset
        self._sequence = 0
        self._state = WAITING
        self._since_ns = monotonic_ns()
        self._due_ns = 0
        self._before_ns = 0  # spent on items and collating, when last asked whether that is quick
        self._batches = 0
        self._totals = [0, 0, 0, UNMEASURED]  # by state, and _HANDING
        self._over: Optional[HandOver] = None

    def follow(self, over: Optional[HandOver]) -> None:
        """Tell handing a batch over from waiting to be asked for one."""
        self._over = over
        if over is not None:
            over.before_put = self._before_put
            self._totals[_HANDING] = 0

    def enter(self, state: int, batches: int = 0) -> None:
        """Begin something else; ``batches`` have been finished.

        Written at once where what was done took long, and before it waits, which may take long; else after a few
        milliseconds: writing costs 2 us in the cold of a training loop, and that enters four times a step.
        """
        now_ns = monotonic_ns()
        spent_ns = now_ns - self._since_ns
        if self._state or self._over is None:
            self._totals[self._state] += spent_ns
        else:
            handed_ns = self._over.busy_ns(self._since_ns, now_ns)
            self._totals[_HANDING] += handed_ns
            self._totals[WAITING] += spent_ns - handed_ns
        self._state = state
        self._since_ns = now_ns
        self._batches += batches
        if state == WAITING or spent_ns > LONG_NS or now_ns > self._due_ns:
            self._write(now_ns)

    def _before_put(self) -> None:
        """Between epochs something is put that is no batch: what was waited for until then is no handing over."""
        if monotonic_ns() - self._since_ns > LONG_NS:
            self.enter(self._state)

    def _write(self, now_ns: int) -> None:
        self._due_ns = now_ns + HOLD_NS
        self._sequence += 1
        wait_ns, items_ns, collate_ns, hand_over_ns = self._totals
        at = self._at
        # by slice assignment: pack_into would show readers a cleared slot
        self._view[at : at + SLOT.size] = SLOT.pack(
            self._sequence,
            *self._head,
            self._state,
            self._dataset,
            now_ns,
            self._batches,
            items_ns,
            collate_ns,
            wait_ns,
            hand_over_ns,
            self._sequence,
        )

    def is_quick(self) -> bool:
        """Asked after a batch: whether the last many took so little that measuring them is not worth its cost."""
        if self._batches % QUICK_BATCHES:
            return False
        _, items_ns, collate_ns, _ = self._totals
        spent_ns, self._before_ns = items_ns + collate_ns - self._before_ns, items_ns + collate_ns
        return spent_ns < QUICK_BATCHES * QUICK_NS

    def vanish(self) -> None:
        """Leave no figures behind."""
        self._view[self._at : self._at + SLOT.size] = bytes(SLOT.size)
        self.let_go()

    def let_go(self) -> None:
        """This is a forked child: the slot is its parent's."""
        self._view = bytearray(LOADING_BYTES)


def claim(trainer: int, loader: int, worker: int, workers: int, dataset: int) -> Optional[Slot]:
    """A slot in the ring of process ``trainer`` for this process; None when it has no ring, or none is free.

    Raises BlockingIOError when another process is claiming just now, OSError when the ring cannot be opened.
    """
    handle = os.open(ring_path(trainer), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        if os.fstat(handle).st_uid != os.geteuid():
            return None
        view = mmap.mmap(handle, LOADING_BYTES, offset=LOADING_OFFSET)
        _lock(handle)
        at = _free(view)
        if at is None:
            return None
        slot = Slot(view, at, loader, worker, workers, dataset)
        slot.enter(WAITING)
        return slot
    finally:
        os.close(handle)  # and with it the lock


def _lock(handle: int) -> None:
    """Wait 10 ms at most: workers that start together claim together, and each holds the lock for 0.3 ms."""
    for _ in range(20):
        try:
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, LOADING_OFFSET)
            return
        except (BlockingIOError, PermissionError):
            sleep(0.0005)
    raise BlockingIOError("another process is claiming")


def _free(view: mmap.mmap) -> Optional[int]:
    """Where a slot is that was never used; without any, one whose process is gone."""
    starts = range(0, LOADING_BYTES, SLOT_BYTES)
    keys = [_KEY.unpack_from(view, at + 8) for at in starts]
    for at, (_, pid) in zip(starts, keys):
        if not pid:
            return at
    for at, (ticks, pid) in zip(starts, keys):
        if not _lives(pid, ticks):
            return at
    return None


def _lives(pid: int, ticks: int) -> bool:
    try:
        return start_ticks(pid) == ticks
    except (OSError, ValueError, IndexError):
        return False


def slots_in(area: bytes, again: bytes) -> Iterator[Loading]:
    """The used slots of an area that was read twice; those that were being written meanwhile are left out."""
    for at in range(0, LOADING_BYTES, SLOT_BYTES):
        raw = area[at : at + SLOT.size]
        if raw[20:24] == b"\0\0\0\0" and not any(raw[:24]):
            continue
        if raw != again[at : at + SLOT.size]:
            continue
        sequence, *fields, check = SLOT.unpack(raw)
        if sequence == check:
            yield Loading(*fields)
