"""The marker ring: one memory-mapped file per training process, written in the target, read by the monitor.

Layout of the file (little endian; all offsets in bytes)::

    0        header   magic, version, slot count, pid, start ticks, creation time, count of names, meta length
    4096     meta     JSON about the process (rank, versions, run id, output file), rewritten whole
    12288    names    table of interned strings: u16 length + UTF-8, in order of their ids
    143360   loading  what DataLoader workers are doing, 256 slots of 128 bytes, written by the workers (slots.py)
    176128   slots    SLOT_COUNT slots of 32 bytes

A slot is ``sequence u64 | time_ns u64 | kind u16 | flag u16 | tid u32 | value u64``. ``sequence`` counts from 1 and is
written last: a slot whose sequence is not the one that belongs there is not yet, or no longer, to be read. Slot n is at
index n modulo SLOT_COUNT.

The name of a range is interned with the place it was opened at: name, file, function and line, ``\\x1f`` between them.

The one thing both sides share; standard library only, Python 3.9+.
"""

from .layout import (
    BACKWARD_BEGIN,
    BACKWARD_END,
    FETCH_BEGIN,
    FETCH_END,
    GC_PAUSE,
    GPU_ANCHOR,
    GPU_FIRST,
    GPU_TIME,
    ITER_BEGIN,
    ITER_END,
    LOADER_SHIFT,
    MARK,
    MEMORY_ALLOCATED,
    MEMORY_OOMS,
    MEMORY_RESERVED,
    MEMORY_RETRIES,
    META_BYTES,
    OPTIMIZER_BEGIN,
    OPTIMIZER_END,
    PLACE_SEPARATOR,
    RANGE_END,
    RANGE_POP,
    RANGE_PUSH,
    RANGE_START,
    SLOT_BYTES,
    SLOT_COUNT,
    SLOTS_OFFSET,
    STEP,
    TORCH_MEMORY,
    WORKER,
    EventTime,
    Marker,
    pack_gpu_anchor,
    pack_gpu_time,
    ring_directories,
    ring_directory,
    ring_path,
    start_ticks,
    unpack_gpu_anchor,
    unpack_gpu_time,
)
from .reader import RingError, RingReader
from .writer import RingWriter

__all__ = [
    "BACKWARD_BEGIN",
    "BACKWARD_END",
    "FETCH_BEGIN",
    "FETCH_END",
    "GC_PAUSE",
    "GPU_ANCHOR",
    "GPU_FIRST",
    "GPU_TIME",
    "ITER_BEGIN",
    "ITER_END",
    "LOADER_SHIFT",
    "MARK",
    "MEMORY_ALLOCATED",
    "MEMORY_OOMS",
    "MEMORY_RESERVED",
    "MEMORY_RETRIES",
    "META_BYTES",
    "OPTIMIZER_BEGIN",
    "OPTIMIZER_END",
    "PLACE_SEPARATOR",
    "RANGE_END",
    "RANGE_POP",
    "RANGE_PUSH",
    "RANGE_START",
    "SLOTS_OFFSET",
    "SLOT_BYTES",
    "SLOT_COUNT",
    "STEP",
    "TORCH_MEMORY",
    "WORKER",
    "EventTime",
    "Marker",
    "RingError",
    "RingReader",
    "RingWriter",
    "pack_gpu_anchor",
    "pack_gpu_time",
    "ring_directories",
    "ring_directory",
    "ring_path",
    "start_ticks",
    "unpack_gpu_anchor",
    "unpack_gpu_time",
]
