"""How a run is watched, as set on the command line; the views beside the screen that it names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from tuimon.diagnosis.finding import Finding
from tuimon.records import Notice
from tuimon.session.session import Session


class Observer(Protocol):
    """A view that no screen shows. Its methods return at once."""

    name: str

    def start(self) -> None: ...

    def show(self, session: Session, findings: Sequence[Finding]) -> Sequence[Notice]:
        """The state has changed, or time has passed; what the user should know of the view itself."""
        ...

    def close(self, session: Session, findings: Sequence[Finding]) -> None:
        """The monitor ends with this state; wait a few seconds at most."""
        ...


class Options(Struct, frozen=True):
    """The options of the command line; None: the default of the mode."""

    headless: bool = False
    log: str | None = None
    force: bool = False  # replace an earlier log
    run: str | None = None  # name that the logs of one run on all its nodes have
    interval_s: float | None = None  # window of the records, and between two refreshes of the view
    rate_hz: float | None = None  # highest rate of stack samples
    max_cpu_ratio: float | None = None  # of one core, for sampling stacks
    stacks: bool = True
    native: bool = True
    gpu: bool = True
    markers: bool = True
    memory: bool = False  # watch for errors for want of memory, and record the allocator's history once
    observers: tuple[Observer, ...] = ()  # views beside the screen or the lines

    @property
    def window_s(self) -> float:
        """Length of one record's window."""
        return self.interval_s or 1.0

    @property
    def refresh_s(self) -> float:
        """Time between two refreshes of the view: a line headless, a frame in the TUI."""
        return self.interval_s or (1.0 if self.headless else 0.5)

    @property
    def sampling_ratio(self) -> float:
        """CPU that stack sampling may use, 1.0 = one core: part of the 5 % (headless: 2 %) that tuimon may use."""
        return self.max_cpu_ratio or (0.02 if self.headless else 0.03)
