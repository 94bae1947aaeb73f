"""AMD's driver, as the GPU source opens it, and its errors explained to a user."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from tuimon.installation import install_command
from tuimon.sources.amdsmi.library import (
    DRIVER_NOT_LOADED,
    LIBRARY_NOT_FOUND,
    NO_PACKAGE,
    NO_PERMISSION,
    OTHER_VERSION,
    AmdSmiError,
    Library,
    words,
)
from tuimon.sources.gpus.handle import DriverError
from tuimon.sources.notices import Problem

if TYPE_CHECKING:
    from tuimon.sources.gpus.slot import Slot

_FIRST_LINES = {
    LIBRARY_NOT_FOUND: ("no AMD driver on this machine (libamd_smi.so not found)", None),
    NO_PACKAGE: ("no figures of AMD GPUs: the package amdsmi is not installed", None),
    OTHER_VERSION: ("no figures of AMD GPUs: the package amdsmi and libamd_smi.so have different versions", None),
    NO_PERMISSION: ("no permission to query the AMD driver", "Join the groups render and video"),
    DRIVER_NOT_LOADED: ("the AMD driver is not loaded", "sudo modprobe amdgpu"),
}


class AmdSmi:
    """amdsmi."""

    name = "amdsmi"

    def open(self, clock: Callable[[], float], root: str) -> tuple[Library, list[Slot]]:
        """The library and its GPUs, as ``amd-smi`` numbers them. Raises AmdSmiError."""
        library = Library()
        try:
            count = len(library.handles())
        except AmdSmiError:
            with contextlib.suppress(AmdSmiError):
                library.close()
            raise
        from tuimon.sources.amdsmi.device import AmdSlot  # modules that no machine without a driver needs

        return library, [AmdSlot(library, index, root) for index in range(count)]

    def count(self) -> int:
        """How many GPUs there are. Raises AmdSmiError."""
        library = Library()
        try:
            return len(library.handles())
        finally:
            library.close()

    def explain(self, error: DriverError) -> Problem:
        """An error of the whole library."""
        if error.code in _FIRST_LINES:
            message, hint = _FIRST_LINES[error.code]
            if error.code in (NO_PACKAGE, OTHER_VERSION):
                hint = f"{install_command('amdsmi', upgrade=error.code == OTHER_VERSION)}, in the version of your ROCm"
            return Problem(message, hint, expected=error.code == LIBRARY_NOT_FOUND)
        return Problem(
            f"no figures of AMD GPUs: amdsmi says {words(error)}", "amd-smi shows more; tuimon will try again soon"
        )

    def no_devices(self) -> Problem:
        """It works and counts no GPU."""
        return Problem("the AMD driver shows no GPU", expected=True)

    def hangs(self) -> Problem:
        """A call into it does not come back."""
        hint = "The figures are old until it does; dmesg shows whether a GPU is in trouble"
        return Problem("the AMD driver does not answer", hint, passing=True)
