"""The options for watching a run, as set on the command line, and the further views that they name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from tuimon.diagnosis.finding import Finding
from tuimon.records import Notice
from tuimon.session.session import Session


class Observer(Protocol):
    """A view without a screen. Its methods return at once."""

    name: str

    def show(self, session: Session, findings: Sequence[Finding]) -> Sequence[Notice]:
        """Take in a new state, or the passing of time; returns notices for the user about the view itself."""
        ...

    def close(self, session: Session, findings: Sequence[Finding]) -> None:
        """Take in the last state as the monitor ends; may wait for a few seconds."""
        ...


class Options(Struct, frozen=True):
    """The options of the command line; None stands for the mode's default."""

    headless: bool = False
    log: str | None = None
    force: bool = False  # replace an earlier log
    run: str | None = None  # common name for the logs of one run on all its nodes
    interval_s: float | None = None  # window of the records, and interval between refreshes of the view
    rate_hz: float | None = None  # highest rate of stack samples
    max_cpu_ratio: float | None = None  # part of one core that sampling stacks may use
    stacks: bool = True
    native: bool = True
    gpu: bool = True
    markers: bool = True
    memory: bool = False  # watch for out-of-memory errors, and record the allocator's history once
    observers: tuple[Observer, ...] = ()  # views in addition to the screen or the lines

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
