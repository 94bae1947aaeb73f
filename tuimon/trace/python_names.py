"""Python functions as kineto names them: ``train.py(44): main``, with paths below a folder of ``sys.path`` cut off."""

from __future__ import annotations

import re
import sys

from tuimon.code_origin import is_user_file
from tuimon.records import Place

_NAME = re.compile(r"(?P<file>[^()<>]*?\.py)\((?P<line>\d{1,9})\): (?P<function>.+)")
_LIBRARIES = frozenset(("torch", "numpy", "site-packages", "tuimon", "lightning", "transformers", "accelerate"))


def place_of(name: str) -> Place | None:
    """File, first line and name of a function; None for what is not written in Python."""
    found = _NAME.fullmatch(name)
    return Place(found["file"], int(found["line"]), found["function"]) if found is not None else None


def is_python_of_user(name: str) -> bool:
    """Whether a function is the user's own: of no library and not of Python's."""
    place = place_of(name)
    if place is None:
        return False
    first = place.file.lstrip("/").split("/", 1)[0].removesuffix(".py")
    if not place.file.startswith("/") and (first in _LIBRARIES or first in sys.stdlib_module_names):
        return False
    return is_user_file(place.file)
