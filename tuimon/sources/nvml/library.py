"""NVML through nvidia-ml-py (``import pynvml``).

Never called: ``nvmlDeviceGetPcieThroughput``, which blocks 20 ms a direction.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, ClassVar

from tuimon.sources.gpus.handle import DriverError, Handle

# Return codes (nvml.h, nvmlReturn_t), and our own for a missing Python package.
NO_PACKAGE = 0
INVALID_ARGUMENT = 2
NOT_SUPPORTED = 3
NO_PERMISSION = 4
NOT_FOUND = 6
TIMEOUT = 10
LIBRARY_NOT_FOUND = 12
FUNCTION_NOT_FOUND = 13
GPU_IS_LOST = 15
RESET_REQUIRED = 16
ARGUMENT_VERSION_MISMATCH = 25

#: The driver's library; pynvml tries no other on Linux.
_NAME = "libnvidia-ml.so.1"


class NvmlError(DriverError):
    """NVML, or one device, failed; ``code`` is nvmlReturn_t or NO_PACKAGE."""


def is_installed() -> bool:
    """True if the library can be loaded; it stays loaded from then on, as pynvml's."""
    try:
        ctypes.CDLL(_NAME)
    except OSError:
        return False
    return True


class Library:
    """The opened NVML library."""

    FATAL: ClassVar = frozenset({GPU_IS_LOST, RESET_REQUIRED})
    NEVER: ClassVar = frozenset({NOT_SUPPORTED, NO_PERMISSION, FUNCTION_NOT_FOUND, ARGUMENT_VERSION_MISMATCH})
    NOTHING_NEW: ClassVar = frozenset({NOT_FOUND, TIMEOUT})

    def __init__(self) -> None:
        """Load and initialise it. Raises NvmlError."""
        if not is_installed():
            raise NvmlError(LIBRARY_NOT_FOUND, f"{_NAME} not found")
        try:
            import pynvml  # noqa: PLC0415  (costs 15 ms and 2 MB and is of no use on most machines)
        except ImportError as error:
            raise NvmlError(NO_PACKAGE, str(error)) from error
        self.api: Any = pynvml  # ships no types
        self.call(pynvml.nvmlInit)

    def call(self, function: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401  (what pynvml returns has no types)
        """Any function of pynvml. Raises NvmlError."""
        try:
            return function(*arguments)
        except self.api.NVMLError as error:
            raise NvmlError(int(getattr(error, "value", 999)), str(error)) from error

    def device_count(self) -> int:
        """Number of GPUs; in a container, of those visible to it."""
        return int(self.call(self.api.nvmlDeviceGetCount))

    def driver_version(self) -> tuple[int, ...]:
        """``(535, 113, 1)``; empty when unknown."""
        try:
            text = str(self.call(self.api.nvmlSystemGetDriverVersion))
        except NvmlError:
            return ()
        return tuple(int(part) for part in text.split(".") if part.isdecimal())

    def handle(self, index: int) -> Handle:
        """One GPU by PCI order. Raises NvmlError when it does not answer."""
        return self.handle_of(self.call(self.api.nvmlDeviceGetHandleByIndex, index))

    def handle_of(self, raw: object) -> Handle:
        """A GPU or MIG instance by its pynvml handle. Raises NvmlError when it does not answer."""
        return Handle(self, raw, str(self.call(self.api.nvmlDeviceGetUUID, raw)))

    def close(self) -> None:
        """Release the driver."""
        self.call(self.api.nvmlShutdown)
