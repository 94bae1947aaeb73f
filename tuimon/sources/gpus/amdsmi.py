"""AMD's driver: its system management library through its binding (``import amdsmi``), and its errors explained.

Never called: ``amdsmi_get_violation_status``, which sleeps 100 ms between two readings of counters that
``amdsmi_get_gpu_metrics_info`` gives at once, and ``amdsmi_get_gpu_pci_throughput``, which takes a second.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
from collections.abc import Callable
from typing import Any, ClassVar

from tuimon.installation import install_command
from tuimon.sources.base import Problem
from tuimon.sources.gpus.driver import DriverError, Handle, Slot, VendorLibrary

# Codes of amdsmi_status_t (amdsmi.h), and our own for errors that it lacks.
LIBRARY_NOT_FOUND, NO_PACKAGE, OTHER_VERSION = -1, -2, -3
NOT_SUPPORTED, NOT_YET_IMPLEMENTED, NO_PERMISSION = 2, 3, 10
NOT_FOUND, NOT_INITIALISED, DRIVER_NOT_LOADED = 31, 32, 34
NO_DATA = 40

_NAME = "libamd_smi.so"
_FIRST_LINES = {
    LIBRARY_NOT_FOUND: ("no AMD driver on this machine (libamd_smi.so not found)", None),
    NO_PACKAGE: ("no figures of AMD GPUs: the package amdsmi is not installed", None),
    OTHER_VERSION: ("no figures of AMD GPUs: the package amdsmi and libamd_smi.so have different versions", None),
    NO_PERMISSION: ("no permission to query the AMD driver", "Join the groups render and video"),
    DRIVER_NOT_LOADED: ("the AMD driver is not loaded", "sudo modprobe amdgpu"),
}


class AmdSmi(VendorLibrary):
    """amdsmi; error codes are of amdsmi_status_t, or our own."""

    name, says, vendor = "amdsmi", "amdsmi", "AMD"
    FATAL: ClassVar = frozenset({NOT_INITIALISED, DRIVER_NOT_LOADED})
    NEVER: ClassVar = frozenset({NOT_SUPPORTED, NOT_YET_IMPLEMENTED, NO_PERMISSION})
    NOTHING_NEW: ClassVar = frozenset({NO_DATA})
    NOT_SUPPORTED, SHUT_DOWN = NOT_SUPPORTED, "amdsmi_shut_down"

    def __init__(self) -> None:
        """Load and initialise it. Raises DriverError."""
        if not self.is_installed():  # the binding itself would print an error
            raise DriverError(LIBRARY_NOT_FOUND, f"{_NAME} not found")
        try:
            import amdsmi  # costs 60 ms and is of no use on most machines

            self.api = amdsmi
            _ = amdsmi.amdsmi_get_gpu_enumeration_info
        except ImportError as error:
            raise DriverError(NO_PACKAGE, str(error)) from error
        except AttributeError as error:  # the binding knows functions that the library lacks, or is too old itself
            raise DriverError(OTHER_VERSION, str(error)) from error
        self.call(amdsmi.amdsmi_init)

    @staticmethod
    def is_installed() -> bool:
        """True if the library can be loaded, from one of the places that the binding tries, in its order."""
        home, rocm = os.environ.get("ROCM_HOME"), os.environ.get("ROCM_PATH")
        package = importlib.util.find_spec("amdsmi")
        beside = os.path.dirname(package.origin) if package is not None and package.origin else None
        first, last = home or rocm, rocm or "/opt/rocm"
        for path in (first and f"{first}/lib/{_NAME}", _NAME, beside and f"{beside}/{_NAME}", f"{last}/lib/{_NAME}"):
            with contextlib.suppress(OSError):
                if path:
                    ctypes.CDLL(path)
                    return True
        return False

    def slots(self, clock: Callable[[], float], root: str) -> list[Slot]:
        """The GPUs as ``amd-smi`` numbers them."""
        count = len(self.handles())
        from tuimon.sources.gpus.amdsmi_device import AmdSlot

        return [AmdSlot(self, index, root) for index in range(count)]

    def call(self, function: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401  (what amdsmi returns has no types)
        """Any function of amdsmi. Raises DriverError."""
        try:
            return function(*arguments)
        except self.api.AmdSmiException as error:
            code, text = getattr(error, "err_code", None), getattr(error, "err_info", None)
            raise DriverError(int(code or 0), str(text or error)) from error
        except ValueError as error:  # the binding cannot decode an answer
            raise DriverError(0, str(error)) from error

    def handles(self) -> list[object]:
        """The binding's handles of all GPUs, as ``amd-smi`` numbers them. Raises DriverError."""
        return list(self.call(self.api.amdsmi_get_processor_handles))

    def handle(self, index: int) -> Handle:
        """The handle of one GPU. Raises DriverError when it does not answer.

        Before ROCm 7.3 the partitions of a GPU may have one UUID: from the second on, a number is added to it.
        """
        raw = self.handles()
        if index >= len(raw):
            raise DriverError(NOT_FOUND, "it is not listed any more")
        handle = Handle(self, raw[index])
        number = 0
        for other in raw[:index]:
            with contextlib.suppress(DriverError):  # it does not answer; this one does
                number += self.uuid_of(other) == handle.uuid
        handle.uuid += f"/{number}" if number else ""
        return handle

    def uuid_of(self, raw: object) -> str:
        """The UUID of a GPU."""
        return str(self.call(self.api.amdsmi_get_gpu_enumeration_info, raw)["hip_uuid"])

    @classmethod
    def explain(cls, error: DriverError) -> Problem:
        """An error of the whole library."""
        if error.code not in _FIRST_LINES:
            message = f"no figures of AMD GPUs: amdsmi says {error.words}"
            return Problem(message, "amd-smi shows more; tuimon will try again soon")
        message, hint = _FIRST_LINES[error.code]
        if error.code in (NO_PACKAGE, OTHER_VERSION):
            hint = f"{install_command('amdsmi', upgrade=error.code == OTHER_VERSION)}, in the version of your ROCm"
        return Problem(message, hint, expected=error.code == LIBRARY_NOT_FOUND)
