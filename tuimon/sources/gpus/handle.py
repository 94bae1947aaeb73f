"""A vendor's library, and queries of one device of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, ClassVar, Protocol


class DriverError(Exception):
    """A library, or one device, failed; ``code`` is the library's."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class Library(Protocol):
    """An opened library."""

    api: Any  # the Python binding; it ships no types
    #: error codes: the GPU is gone; this GPU does not support the query; there is nothing to report
    FATAL: ClassVar[frozenset[int]]
    NEVER: ClassVar[frozenset[int]]
    NOTHING_NEW: ClassVar[frozenset[int]]

    def call(self, function: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401  (as the binding)
        """Any function of the binding. Raises DriverError."""

    def handle_of(self, raw: object) -> Handle:
        """A device by the binding's handle. Raises DriverError when it does not answer."""

    def close(self) -> None:
        """Release the driver. Raises DriverError."""


class Handle:
    """One device. A query that it does not support is made once, and is None from then on."""

    def __init__(self, library: Library, raw: object, uuid: str) -> None:
        self.library = library
        self.api = library.api
        self.raw = raw
        self.uuid = uuid
        self.answers = 0  # since ``reset_counts``
        self.error: DriverError | None = None  # the first since ``reset_counts``
        self.cost_s = 0.0  # duration of the queries since ``reset_counts``
        self._never: set[str] = set()

    def reset_counts(self) -> None:
        """Begin a new window: reset ``answers``, ``error`` and ``cost_s``."""
        self.answers, self.error, self.cost_s = 0, None, 0.0

    def supports(self, key: str) -> bool:
        """False once this was found not to be supported."""
        return key not in self._never

    def query(self, function: str, *arguments: object, key: str | None = None) -> Any:  # noqa: ANN401  (as the binding)
        """The result of a query of this device, or None. Raises DriverError only when the GPU is gone.

        ``key``: identifies the query once it was found unsupported, where the function alone does not.
        """
        return self.call(function, self.raw, *arguments, key=key)

    def call(self, function: str, *arguments: object, key: str | None = None) -> Any:  # noqa: ANN401  (as the binding)
        """Like ``query``, for a function whose first argument is not the device."""
        key = key or function
        if key in self._never:
            return None
        call = getattr(self.api, function, None)
        if call is None:  # an older binding
            self._never.add(key)
            return None
        began_s = time.perf_counter()
        try:
            answer = self.library.call(call, *arguments)
        except DriverError as error:
            if error.code in self.library.FATAL:
                raise
            if error.code in self.library.NEVER:
                self._never.add(key)
            if error.code not in self.library.NOTHING_NEW:
                self.error = self.error or error
            return None
        finally:
            self.cost_s += time.perf_counter() - began_s
        self.answers += 1
        return answer
