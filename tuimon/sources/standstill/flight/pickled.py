"""Unpickles what is made of plain values alone: a pickle that names a class or a function is refused."""

from __future__ import annotations

import io
import pickle
from typing import Any, NoReturn


class NotPlain(Exception):
    """The pickle is damaged, or holds more than plain values."""


class _PlainUnpickler(pickle.Unpickler):
    """Knows no name: without one nothing is called, and no object is made (docs.python.org, Restricting Globals)."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise NotPlain(f"it names {module}.{name}")

    def persistent_load(self, pid: object) -> NoReturn:
        raise NotPlain("it names an object elsewhere")


def plain_value(data: bytes) -> Any:  # noqa: ANN401  (whatever was pickled)
    """The value; raises NotPlain. ``data``: of the size that the caller allows, as what is made of it grows with it."""
    try:
        return _PlainUnpickler(io.BytesIO(data)).load()
    except NotPlain:
        raise
    except Exception as error:  # a damaged pickle raises whatever it comes to
        raise NotPlain(f"{type(error).__name__}: {error}") from error
