"""Keeps what a library imports and never uses here out of memory, while the library is loaded."""

from __future__ import annotations

import contextlib
import sys
from _operator import _compare_digest
from collections.abc import Iterator
from types import SimpleNamespace


@contextlib.contextmanager
def instead_of(module: str, stand_in: object | None = None) -> Iterator[None]:
    """Let importing ``module`` give ``stand_in``, or fail without one. Whoever imports it later gets the real one."""
    absent = module not in sys.modules
    if absent:
        sys.modules[module] = stand_in  # type: ignore[assignment]  # None: import raises ImportError
    try:
        yield
    finally:
        if absent:
            del sys.modules[module]


def without_ssl() -> contextlib.AbstractContextManager[None]:
    """Let asyncio load as in a Python built without OpenSSL: 5 MB and 4 ms less, and nobody here opens a connection."""
    return instead_of("ssl")


def without_typing_extensions() -> contextlib.AbstractContextManager[None]:
    """Let msgspec load as where only Python's own ``typing`` is installed, which has all that our records use.

    The other one loads inspect, ast and dis: with these, 1.5 MB and 8 ms.
    """
    return instead_of("typing_extensions")


def without_hmac() -> contextlib.AbstractContextManager[None]:
    """Let wcwidth, which pyte uses, load without OpenSSL: 4 MB.

    It imports secrets for a random word, and secrets hmac for the one function that is here.
    """
    return instead_of("hmac", SimpleNamespace(compare_digest=_compare_digest))
