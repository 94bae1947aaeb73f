"""Memory of the monitor's threads."""

from __future__ import annotations

import contextlib
import ctypes

#: mallopt(3): how many heaps ("arenas") threads may divide among them.
_M_ARENA_MAX = -8


def share_one_heap() -> None:
    """Have threads that are started from now on allocate from one heap.

    glibc gives each thread one of its own, whose free memory no other may use: 4 MB for nine threads that watch 64
    processes. They would gain nothing from it, as nearly all that they allocate they allocate under the GIL.
    """
    with contextlib.suppress(AttributeError, OSError):  # another C library
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)
