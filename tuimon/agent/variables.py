"""Environment variables, read in C.

``os.environ`` is written in Python: its ``get``, ``in`` and ``pop`` keep any KeyError to themselves, also one that a
signal handler of the program raises meanwhile.
"""

import os

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing costs milliseconds, in every Python process under ``tuimon run``
    from typing import Any, Optional


def variable(name: "str") -> "Optional[str]":
    """The value of an environment variable; None without it."""
    encoded: "Any" = getattr(os.environ, "_data", None)
    if type(encoded) is not dict:  # the program has put something else in the place of ``os.environ``
        return os.environ.get(name)
    value = encoded.get(os.fsencode(name))
    return None if value is None else os.fsdecode(value)
