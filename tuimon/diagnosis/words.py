"""How findings write a line of code and a share."""

from __future__ import annotations

from tuimon.records import Place
from tuimon.text import code_place, plain


def at(place: Place) -> str:
    """``function() file.py:31`` for people."""
    function = "" if place.function.startswith("<") else f"{plain(place.function)}() "
    return f"{function}{code_place(place.file, place.line)}"


def percent(ratio: float) -> str:
    """``62 %``, in whole percent: findings state shares of some weight."""
    return f"{100 * ratio:.0f} %"
