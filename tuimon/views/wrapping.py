"""Lines of plain text: broken at spaces alone, so that no path is cut, and no number stands apart from its unit."""

from __future__ import annotations

import re
import textwrap

#: The space before a unit.
_BEFORE_UNIT = re.compile(r"(?<=\d) (?=(?:%|ms|s|GiB|MiB|KiB|Hz|W)(?![\w/]))")
#: A space that no line is broken at.
_KEPT = "\xa0"


def kept_together(text: str) -> str:
    """The text with a no-break space between each number and its unit; ``freed`` takes them out again."""
    return _BEFORE_UNIT.sub(_KEPT, text)


def freed(text: str) -> str:
    """The text with ordinary spaces."""
    return text.replace(_KEPT, " ")


def wrap(text: str, width: int, first: str = "", later: str = "") -> list[str]:
    """The text as lines of ``width`` characters, longer only by a longer word, with these indents."""
    lines = textwrap.wrap(
        kept_together(text),
        width,
        initial_indent=first,
        subsequent_indent=later,
        break_on_hyphens=False,
        break_long_words=False,
    )
    return [freed(line) for line in lines]
