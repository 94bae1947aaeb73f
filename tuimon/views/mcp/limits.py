"""The bound of an answer."""

from __future__ import annotations

from collections.abc import Iterable

from tuimon.views.format import plain

#: 1,500 tokens at three characters each: paths, figures and code take more tokens than prose, which has four.
MOST_CHARACTERS = 4500


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


def _plain(line: str) -> str:
    text = plain(line)
    return text if len(text) <= MOST_CHARACTERS // 4 else f"{text[: MOST_CHARACTERS // 4]}…"
