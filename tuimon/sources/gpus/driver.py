"""What the GPU source needs of a vendor's driver."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from tuimon.sources.gpus.handle import DriverError, Library
from tuimon.sources.notices import Problem

if TYPE_CHECKING:
    from tuimon.sources.gpus.slot import Slot


class Driver(Protocol):
    """A vendor's driver."""

    name: str

    def open(self, clock: Callable[[], float], root: str) -> tuple[Library, list[Slot]]:
        """Its library and its GPUs, in the order of their indices. Raises DriverError. ``root``: where /sys is."""

    def explain(self, error: DriverError) -> Problem:
        """An error of the whole library."""

    def no_devices(self) -> Problem:
        """It works and counts no GPU."""

    def hangs(self) -> Problem:
        """A call into it does not come back."""
