"""The interfaces of the process that a Monitor watches, and of some of its sources."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from tuimon.launch.child import Ended
from tuimon.sources.standstill.suspicion import Suspicion

if TYPE_CHECKING:
    from tuimon.sources.log.lines import Backlog


class Target(Protocol):
    """The process that a run began with: launched, or attached to."""

    @property
    def pid(self) -> int:
        """Its process id."""
        ...

    @property
    def run_id(self) -> str | None:
        """The mark in the environment of all processes of its run; None unless tuimon started it."""
        ...

    def poll(self) -> Ended | None:
        """How it ended; None while it runs."""
        ...


@runtime_checkable
class StackSampler(Protocol):
    """A source with a budget of CPU."""

    def limit_cpu(self, max_cpu_ratio: float) -> None:
        """Use at most this much of a core from now on."""
        ...

    def sample_first(self, pid: int | None) -> None:
        """Sample this process all the time and the others in rotation; None: the first rank."""
        ...


@runtime_checkable
class Focusable(Protocol):
    """A source that reads some processes less often where there are many."""

    def focus_on(self, pids: Collection[int]) -> None:
        """Read these as often as ever."""
        ...


@runtime_checkable
class MemoryRecorder(Protocol):
    """A source that records the allocator's history on request."""

    def record_memory(self) -> None:
        """Record the next steps."""
        ...


@runtime_checkable
class Inspector(Protocol):
    """A source that takes all stacks when the run may hang."""

    def inspect(self, suspicion: Suspicion | None) -> None:
        """Inspect a standstill; None: there is none."""
        ...


@runtime_checkable
class Replayed(Protocol):
    """A source that reads what was written before it follows what comes."""

    @property
    def backlog(self) -> Backlog | None:
        """How far it has read that; None once it has, and where it is played at a pace."""
        ...
