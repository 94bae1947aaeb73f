"""The loading slots of a ring: one for each process that makes batches, which it overwrites with running totals.

A reader that comes late or seldom loses nothing, and the slot of a process that ended is reused for a later one.
Slots are claimed under a POSIX lock on the area's first byte.
"""

import errno
import fcntl
import mmap
import os
import struct
from time import monotonic_ns, sleep
from typing import Any, Iterator, NamedTuple, Optional

from .files import PID_LIMIT, is_running, map_file, ring_path, start_ticks
from .layout import LOADING_BYTES, LOADING_OFFSET

#: sequence u64 | start ticks u64 | pid u32 | loader u16 | worker u16 | workers u16 | state u16 | dataset u32 |
#: since, batches, items, collate, wait, hand over: u64 | sequence u64. Times in ns.
SLOT = struct.Struct("<QQIHHHHIQQQQQQQ")
LOADING_SLOT_BYTES = 128
#: Number of a "worker" that is the training process itself (``num_workers=0``).
IN_PROCESS = 0xFFFF

_LIMIT = 1 << 62  # of times and counts: beyond, the slot is damaged

#: States of the process.
WAITING, ITEMS, COLLATE = 0, 1, 2
#: In place of the time for handing over if that is not measured.
UNMEASURED = 0xFFFF_FFFF_FFFF_FFFF

_KEY = struct.Struct("<QI")  # start ticks and pid, from byte 8 on


class Loading(NamedTuple):
    """One slot as read. The totals leave out the current ``state``, which began at ``since_ns``."""

    start_ticks: int
    pid: int
    loader: int  # name id of its loader's facts; 0 if only the trainer knows it (workers)
    worker: int  # its number, or IN_PROCESS
    workers: int  # how many its loader has
    state: int
    dataset: int  # crc32 of the name of the dataset's class
    since_ns: int
    batches: int
    items_ns: int
    collate_ns: int
    wait_ns: int
    hand_over_ns: int  # UNMEASURED: it is part of ``wait_ns``


class LoadingSlot:
    """The writer's side of one slot."""

    def __init__(self, area: Any, offset: int, loader: int, worker: int, workers: int, dataset: int) -> None:
        self._area = area
        self._offset = offset
        self._head = (start_ticks(os.getpid()), os.getpid(), loader, worker, workers)
        self._dataset = dataset
        self._sequence = 0

    def write(self, state: int, *totals: int) -> None:
        """Replace the slot's content; ``totals``: from ``since_ns`` on, see ``Loading``.

        They are negative, or grow without bound, if the program replaces the clock, as freezegun does in all modules:
        such a slot then reads as damaged.
        """
        self._sequence += 1
        within = [total & UNMEASURED for total in totals]
        raw = SLOT.pack(self._sequence, *self._head, state, self._dataset, *within, self._sequence)
        # by slice assignment: pack_into would show readers a cleared slot
        self._area[self._offset : self._offset + SLOT.size] = raw

    def free(self) -> None:
        """Clear the slot for another process; later writes go nowhere."""
        self._area[self._offset : self._offset + SLOT.size] = bytes(SLOT.size)
        self.detach()

    def detach(self) -> None:
        """Have later writes go nowhere, in a forked child: the slot is its parent's."""
        self._area = bytearray(LOADING_BYTES)


def claim_slot(trainer: int, loader: int, worker: int, workers: int, dataset: int) -> Optional[LoadingSlot]:
    """A slot for this process in the ring of process ``trainer``; None when none is free, or the ring another user's.

    Raises BlockingIOError when another process is claiming just now, OSError when the ring cannot be opened.
    """
    handle = os.open(ring_path(trainer), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        if os.fstat(handle).st_uid != os.geteuid():
            return None
        area = map_file(handle, LOADING_BYTES, LOADING_OFFSET)
        _lock(handle)
        offset = _free_offset(area)
        if offset is None:
            return None
        slot = LoadingSlot(area, offset, loader, worker, workers, dataset)
        slot.write(WAITING, monotonic_ns(), 0, 0, 0, 0, UNMEASURED)
        return slot
    finally:
        os.close(handle)  # and with it the lock


def _lock(handle: int) -> None:
    """Wait at most 10 ms: workers that start together claim together, and each holds the lock for 0.3 ms."""
    for _ in range(20):
        try:
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, LOADING_OFFSET)
            return
        except (BlockingIOError, PermissionError):
            sleep(0.0005)
    raise BlockingIOError(errno.EAGAIN, "another process is claiming")


def _free_offset(area: mmap.mmap) -> Optional[int]:
    """Offset of a slot that was never used; without any, of one whose process has ended."""
    offsets = range(0, LOADING_BYTES, LOADING_SLOT_BYTES)
    keys = [_KEY.unpack_from(area, offset + 8) for offset in offsets]
    for offset, (_, pid) in zip(offsets, keys):
        if not pid:
            return offset
    for offset, (ticks, pid) in zip(offsets, keys):
        if not is_running(pid, ticks):
            return offset
    return None


def used_bytes(area: bytes) -> int:
    """The number of bytes of the area up to the last slot that was ever used: mostly a few slots."""
    return -(-len(area.rstrip(b"\0")) // LOADING_SLOT_BYTES) * LOADING_SLOT_BYTES


def used_slots(area: bytes, again: bytes) -> Iterator[Loading]:
    """The used slots of an area that was read twice, but for those that were being written meanwhile."""
    for offset in range(0, min(len(area), len(again)), LOADING_SLOT_BYTES):
        raw = area[offset : offset + SLOT.size]
        if raw[20:24] == b"\0\0\0\0" and not any(raw[:24]):
            continue
        if raw != again[offset : offset + SLOT.size]:
            continue
        sequence, *fields, check = SLOT.unpack(raw)
        slot = Loading(*fields)
        if sequence == check and slot.pid <= PID_LIMIT and max(slot[7:-1]) < _LIMIT:
            yield slot
