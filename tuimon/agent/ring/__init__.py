"""The marker ring: one memory-mapped file per training process, written in the target, read by the monitor.

Layout of the file (little endian; all offsets in bytes)::

    0        header   magic, version, slot count, pid, start ticks, creation time, count of names, meta length
    4096     meta     JSON about the process (rank, versions, run id, output file), rewritten whole
    12288    names    table of interned strings: u16 length + UTF-8, in order of their ids
    143360   loading  what DataLoader workers are doing, 256 slots of 128 bytes, written by workers (loading_slots.py)
    176128   slots    SLOT_COUNT slots of 32 bytes

A slot is ``sequence u64 | time_ns u64 | kind u16 | flag u16 | tid u32 | value u64``. ``sequence`` counts from 1 and is
written last: a slot whose sequence is not the one that belongs there is not yet, or no longer, to be read. Slot n is at
index n modulo SLOT_COUNT.

The name of a range is interned with the place it was opened at: name, file, function and line, ``\\x1f`` between them.

The one thing both sides share; standard library only, Python 3.9+.
"""
