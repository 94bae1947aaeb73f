"""AMD's system management library through its binding (``import amdsmi``).

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

from tuimon.sources.gpus.handle import DriverError, Handle
from tuimon.text import plain

# amdsmi.h, amdsmi_status_t, and our own for what it has no code for.
LIBRARY_NOT_FOUND, NO_PACKAGE, OTHER_VERSION = -1, -2, -3
NOT_SUPPORTED, NOT_YET_IMPLEMENTED, NO_PERMISSION = 2, 3, 10
NOT_FOUND, NOT_INITIALISED, DRIVER_NOT_LOADED = 31, 32, 34
NO_DATA = 40

_NAME = "libamd_smi.so"


class AmdSmiError(DriverError):
    """The library, or one device, failed; ``code`` is amdsmi_status_t or one of our own."""


def words(error: DriverError) -> str:
    """The library's own words for an error."""
    return f"{plain(str(error))} ({error.code})"


def is_installed() -> bool:
    """True if the library can be loaded, from one of the places that the binding tries, in its order."""
    home, rocm = os.environ.get("ROCM_HOME"), os.environ.get("ROCM_PATH")
    package = importlib.util.find_spec("amdsmi")
    beside = os.path.dirname(package.origin) if package is not None and package.origin else None
    first, last = home or rocm, rocm or "/opt/rocm"
    for path in (first and f"{first}/lib/{_NAME}", _NAME, beside and f"{beside}/{_NAME}", f"{last}/lib/{_NAME}"):
        if not path:
            continue
        try:
            ctypes.CDLL(path)
        except OSError:
            continue
        return True
    return False


class Library:
    """The opened library."""

    FATAL: ClassVar = frozenset({NOT_INITIALISED, DRIVER_NOT_LOADED})
    NEVER: ClassVar = frozenset({NOT_SUPPORTED, NOT_YET_IMPLEMENTED, NO_PERMISSION})
    NOTHING_NEW: ClassVar = frozenset({NO_DATA})

    def __init__(self) -> None:
        """Load and initialise it. Raises AmdSmiError."""
        if not is_installed():  # the binding would print that
            raise AmdSmiError(LIBRARY_NOT_FOUND, f"{_NAME} not found")
        try:
            import amdsmi  # noqa: PLC0415  (costs 60 ms and is of no use on most machines)

            self.api: Any = amdsmi  # ships no types
            _ = amdsmi.amdsmi_get_gpu_enumeration_info
        except ImportError as error:
            raise AmdSmiError(NO_PACKAGE, str(error)) from error
        except AttributeError as error:  # the binding knows functions that the library lacks, or is too old itself
            raise AmdSmiError(OTHER_VERSION, str(error)) from error
        self.call(amdsmi.amdsmi_init)

    def call(self, function: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401  (what amdsmi returns has no types)
        """Any function of amdsmi. Raises AmdSmiError."""
        try:
            return function(*arguments)
        except self.api.AmdSmiException as error:
            code, text = getattr(error, "err_code", None), getattr(error, "err_info", None)
            raise AmdSmiError(int(code or 0), str(text or error)) from error
        except ValueError as error:  # the binding cannot decode an answer
            raise AmdSmiError(0, str(error)) from error

    def handles(self) -> list[object]:
        """The binding's handles of all GPUs, as ``amd-smi`` numbers them. Raises AmdSmiError."""
        return list(self.call(self.api.amdsmi_get_processor_handles))

    def handle(self, index: int) -> Handle:
        """One of them. Raises AmdSmiError when it does not answer.

        Before ROCm 7.3 the partitions of a GPU may have one UUID: from the second on, a number is added to it.
        """
        raw = self.handles()
        if index >= len(raw):
            raise AmdSmiError(NOT_FOUND, "it is not listed any more")
        handle = self.handle_of(raw[index])
        number = 0
        for other in raw[:index]:
            with contextlib.suppress(AmdSmiError):  # it does not answer; this one does
                number += self._uuid(other) == handle.uuid
        handle.uuid += f"/{number}" if number else ""
        return handle

    def handle_of(self, raw: object) -> Handle:
        """A GPU by amdsmi's handle. Raises AmdSmiError when it does not answer."""
        return Handle(self, raw, self._uuid(raw))

    def _uuid(self, raw: object) -> str:
        return str(self.call(self.api.amdsmi_get_gpu_enumeration_info, raw)["hip_uuid"])

    def close(self) -> None:
        """Release the driver. Raises AmdSmiError."""
        self.call(self.api.amdsmi_shut_down)
