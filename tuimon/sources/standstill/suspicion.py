"""The processes that the monitor wants inspected."""

from __future__ import annotations

from msgspec import Struct

from tuimon.records import Frame, ProcessRole


class Suspect(Struct, frozen=True, gc=False):
    """A process that may hang; a worker has the rank of its trainer."""

    pid: int
    role: ProcessRole
    rank: int | None
    tid: int | None = None  # of the thread that trains, where it is not the main one
    loops: tuple[tuple[Frame, ...], ...] = ()  # where it trained: its stacks in backward or an update, root first


class Suspicion(Struct, frozen=True, gc=False):
    """Nothing has moved since a moment (s, monotonic): the processes to inspect, ranks first."""

    since_s: float
    processes: tuple[Suspect, ...]
