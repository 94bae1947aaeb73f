"""What one marker costs the training: a write to the ring."""

from __future__ import annotations

import os
import tempfile
import timeit

from bench.overhead import Say
from bench.table import Row, Spread
from tuimon.agent.ring import layout
from tuimon.agent.ring.writer import RingWriter

WRITES = 200_000


def measure(repeats: int, say: Say) -> list[Row]:
    """One row: microseconds a write, the loop around it taken off."""
    say(f"cost of a ring write, {repeats} x {WRITES} writes")
    with tempfile.TemporaryDirectory(prefix="tuimon-bench-", dir=_memory()) as folder:
        writer = RingWriter(os.path.join(folder, "bench.ring"))
        emit = writer.emit
        empty_s = min(timeit.repeat("pass", number=WRITES, repeat=5))
        times_s = timeit.repeat(
            "emit(kind, 1)", globals={"emit": emit, "kind": layout.MARK}, number=WRITES, repeat=repeats
        )
        writer.unlink()
    return [Row("ring write", None, Spread.of([(time_s - empty_s) / WRITES * 1e6 for time_s in times_s]), unit="us")]


def _memory() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
