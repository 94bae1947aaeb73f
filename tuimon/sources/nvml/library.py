"""NVML through nvidia-ml-py (``import pynvml``): the library, and queries of one device.

Never called: ``nvmlDeviceGetPcieThroughput``, which blocks 20 ms a direction.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from typing import Any

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
_FATAL = frozenset({GPU_IS_LOST, RESET_REQUIRED})
_NEVER = frozenset({NOT_SUPPORTED, NO_PERMISSION, FUNCTION_NOT_FOUND, ARGUMENT_VERSION_MISMATCH})
_NOTHING_NEW = frozenset({NOT_FOUND, TIMEOUT})


#: The driver's library; pynvml tries no other on Linux.
_NAME = "libnvidia-ml.so.1"


class NvmlError(Exception):
    """NVML, or one device, failed; ``code`` is nvmlReturn_t or NO_PACKAGE."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class Library:
    """The opened NVML library."""

    def __init__(self) -> None:
        """Load and initialise it. Raises NvmlError."""
        try:
            ctypes.CDLL(_NAME)  # as pynvml does, which stays loaded from then on
        except OSError as error:
            raise NvmlError(LIBRARY_NOT_FOUND, str(error)) from error
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


class Handle:
    """One device. A query that it does not support is made once, and is None from then on."""

    def __init__(self, library: Library, raw: object, uuid: str) -> None:
        self.library = library
        self.api = library.api
        self.raw = raw
        self.uuid = uuid
        self.answers = 0  # since ``reset_counts``
        self.error: NvmlError | None = None  # the first since ``reset_counts``
        self.cost_s = 0.0  # duration of the queries since ``reset_counts``
        self._never: set[str] = set()

    def reset_counts(self) -> None:
        """Begin a new window: reset ``answers``, ``error`` and ``cost_s``."""
        self.answers, self.error, self.cost_s = 0, None, 0.0

    def supports(self, key: str) -> bool:
        """False once this was found not to be supported."""
        return key not in self._never

    def query(self, function: str, *arguments: object, key: str | None = None) -> Any:  # noqa: ANN401  (as pynvml)
        """The result of a query of this device, or None. Raises NvmlError only when the GPU is gone.

        ``key``: identifies the query once it was found unsupported, where the function alone does not.
        """
        return self.call(function, self.raw, *arguments, key=key)

    def call(self, function: str, *arguments: object, key: str | None = None) -> Any:  # noqa: ANN401  (as pynvml)
        """Like ``query``, for a function whose first argument is not the device."""
        key = key or function
        if key in self._never:
            return None
        call = getattr(self.api, function, None)
        if call is None:  # an older nvidia-ml-py
            self._never.add(key)
            return None
        began_s = time.perf_counter()
        try:
            answer = self.library.call(call, *arguments)
        except NvmlError as error:
            if error.code in _FATAL:
                raise
            if error.code in _NEVER:
                self._never.add(key)
            if error.code not in _NOTHING_NEW:
                self.error = self.error or error
            return None
        finally:
            self.cost_s += time.perf_counter() - began_s
        self.answers += 1
        return answer
