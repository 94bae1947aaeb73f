"""What GPUs and their drivers differ in, with the values of recorded trainings: both ends, and what lies between."""

from __future__ import annotations

from typing import NamedTuple

US = 1_000


class Hardware(NamedTuple):
    """One end of what was seen; times in ns."""

    latency_ns: int  # from the end of a launch call to the work's beginning on an idle GPU
    late_latency_ns: int  # the same of one launch in twenty
    gap_ns: int  # between works that are queued
    event_ns: int  # what an event takes on a stream
    queue_limit: int  # so many launches may wait in a stream
    room: int  # a launch that finds the queue full waits until so many works are done
    return_ns: int  # from the end of the work to the return of a call that waits for it
    record_ns: tuple[int, int]  # what recording an event takes the CPU, from and to
    query_ns: tuple[int, int]  # and asking for one, or for the stream


#: CUDA on V100 at its quickest.
QUICK = Hardware(2 * US, 2 * US, 0, 500, 1022, 1, 5 * US, (1_000, 1_500), (500, 1_000))
TYPICAL = Hardware(3 * US, 3 * US, 0, 500, 1024, 1, 5 * US, (2 * US, 4 * US), (1 * US, 2 * US))
#: HIP on MI300X, and the slowest of each kind: one launch in six waits where the queue is full, for 0.1 to 2 ms.
SLOW = Hardware(9_500, 10 * US, 3 * US, 1_500, 1781, 6, 13 * US, (2_000, 4_000), (1_500, 3_000))

#: What simulated trainings have unless a test says otherwise.
current = TYPICAL
