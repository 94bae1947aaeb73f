"""The types of what was recorded on request: the history of torch's allocator, and traces."""

from __future__ import annotations

from msgspec import Struct

TracedRow = dict[str, str | int | float | bool | None]


class MemoryLine(Struct):
    """A line that allocates."""

    file: str
    line: int
    function: str
    live_bytes: int
    blocks: int
    growth_bytes_per_step: float | None


class Memory(Struct):
    """The memory that torch's allocator held, by line."""

    pid: int
    trigger: str
    device: str
    steps: int
    live_bytes: int
    most_bytes: int | None
    text: list[str]
    lines: list[MemoryLine]


class Trace(Struct):
    """A trace that was taken; times are sums over its steps."""

    pid: int
    rank: int | None
    first_step: int | None
    steps: int
    file: str
    pause_ms: float | None
    gpu_idle: float | None
    text: list[str]
    phases: list[TracedRow]  # fields of the log's TracedPhase
    operators: list[TracedRow]  # of TracedWork
    kernels: list[TracedRow]
    waits: list[TracedRow]  # of TracedWait
    syncs: list[TracedRow]  # of TracedSync
