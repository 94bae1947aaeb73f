"""The interface of the process that a Monitor watches."""

from __future__ import annotations

from typing import Protocol

from tuimon.launch.child import Ended


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
