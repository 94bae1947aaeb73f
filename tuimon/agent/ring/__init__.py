"""The marker ring: one memory-mapped file per training process, written by the agent, read by the monitor.

Layout of the file (little endian; all offsets in bytes)::

    0        header   magic, version, slot count, pid, start ticks, creation time, count of names, meta length
    1024     control  the monitor's orders and the agent's answers (control_words.py)
    4096     meta     JSON about the process (rank, versions, run id, output file), replaced as a whole
    12288    names    table of interned strings: u16 length + UTF-8, in the order of their ids
    143360   loading  256 slots of 128 bytes, one for each process that makes batches, written by it (loading_slots.py)
    176128   slots    SLOT_COUNT slots of 32 bytes, one marker each

A slot is ``sequence u64 | time_ns u64 | kind u16 | flag u16 | tid u32 | value u64``. ``sequence`` counts from 1 and is
written last. The marker with sequence n is in slot n modulo SLOT_COUNT; a slot that holds another sequence is not yet
written, or already overwritten.

A range's name is interned with the place it was opened at: name, file, function and line, ``\\x1f`` between them.
"""
