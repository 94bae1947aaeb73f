"""The bounds of questions and of answers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from tuimon.views.format import plain

#: 1,500 tokens at three characters each: paths, figures and code take more tokens than prose, which has four.
MOST_CHARACTERS = 4500
#: Characters of an error, which repeats a part of the request.
_MOST_OF_AN_ERROR = 1000
#: Characters of an argument: a path on Linux has no more.
_MOST_OF_AN_ARGUMENT = 4096
_MOST_DIGITS = 18
#: Characters that no path has: NUL, and halves of characters.
_NOT_TEXT = re.compile("[\0\ud800-\udfff]")
_SHOWN_NAMES = 5


def bounded(lines: Iterable[str], more: str = "") -> str:
    """The lines as one text without control characters, whole ones up to the bound; ``more``: where the rest is."""
    kept: list[str] = []
    rows = [_plain(line) for line in lines]
    room = MOST_CHARACTERS - 120  # for the last line
    for number, row in enumerate(rows):
        room -= len(row) + 1
        if room < 0:
            kept.append(f"({len(rows) - number} lines more{f': {more}' if more else ''})")
            break
        kept.append(row)
    return "\n".join(kept)


def shortened(text: str, most: int = _MOST_OF_AN_ERROR) -> str:
    """The text without control characters, cut."""
    text = plain(text[: 2 * most])
    return text if len(text) <= most else f"{text[:most]}…"


def names_of(names: Iterable[str]) -> str:
    """The first of the names that a caller has used, each cut."""
    each = [repr(shortened(name, 40)) for name in names]
    more = f" and {len(each) - _SHOWN_NAMES} more" if len(each) > _SHOWN_NAMES else ""
    return ", ".join(each[:_SHOWN_NAMES]) + more


def refusal(arguments: Mapping[str, object]) -> str | None:
    """Why no tool takes these values of its arguments; None when they are short texts and numbers."""
    for name, value in arguments.items():
        if isinstance(value, str):
            if len(value) > _MOST_OF_AN_ARGUMENT:
                return f"{name} has {len(value):,} characters, at most {_MOST_OF_AN_ARGUMENT:,} are taken"
            if _NOT_TEXT.search(value):
                return f"{name} has a NUL or half a character in it"
        elif isinstance(value, (list, dict)) or (isinstance(value, int) and abs(value) >= 10**_MOST_DIGITS):
            return f"{name} is neither a text nor a number of at most {_MOST_DIGITS} digits"
    return None


def _plain(line: str) -> str:
    return shortened(line, MOST_CHARACTERS // 4)
