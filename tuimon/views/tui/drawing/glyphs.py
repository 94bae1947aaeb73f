"""Terminals and fonts with fewer characters: blocks for braille, and an ASCII stand-in for every character we draw."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

from rich.cells import cell_len

#: Characters that we draw, and below each its stand-in.
_PLAIN = str.maketrans(
    "–·…→←×≥°±━╍┄─│┃└├▾▸▴●▏▎▍▌▋▊▉█▁▂▃▄▅▆▇\u202f\u00a0",
    "-|~><x> +=+:-||`|*>^*  --==##..::||#  ",
)
Glyphs = Literal["braille", "blocks", "ascii"]
GLYPHS: tuple[Glyphs, ...] = get_args(Glyphs)
_NO_UNICODE_TERMS = ("linux", "dumb", "vt100", "vt102", "vt220")


def _braille(heights: str) -> dict[int, str]:
    """Braille cells by how high their dots reach, as one of five characters from empty to full."""
    rows = (0xC0, 0x24, 0x12, 0x09)  # dots of each row, from the bottom
    return {
        0x2800 + code: heights[max(height for height, row in enumerate(rows, 1) if code & row)]
        for code in range(1, 256)
    }


_TABLE = _PLAIN | _braille(" .:|#")
_BLOCKS = _braille(" ▂▄▆█")


def blocks_only(text: str) -> str:
    """``text`` with blocks in the place of braille."""
    return text if text.isascii() else text.translate(_BLOCKS)


def ascii_only(text: str) -> str:
    """``text`` with every character replaced that plain ASCII does not have; its width in cells stays."""
    if text.isascii():
        return text
    return "".join(
        char if char.isascii() else "?" * cell_len(char) for char in text.replace(" ±", "+-").translate(_TABLE)
    )


def glyphs_of(environ: Mapping[str, str], encoding: str) -> Glyphs:
    """The glyphs that a terminal can show: the value of ``TUIMON_GLYPHS``, else what its environment shows.

    Which characters its font has cannot be queried: braille is assumed.
    """
    chosen = environ.get("TUIMON_GLYPHS", "")
    for known in GLYPHS:
        if chosen == known:
            return known
    return "braille" if terminal_has_unicode(environ, encoding) else "ascii"


def terminal_has_unicode(environ: Mapping[str, str], encoding: str) -> bool:
    """True if charts may use braille and block characters.

    ``LC_ALL`` is the user's explicit choice. Otherwise the stream's encoding decides and not ``LANG``: a container
    without any locale still shows on a UTF-8 terminal (and Python then uses UTF-8, PEP 538). The Linux console's
    fonts have no braille.
    """
    if environ.get("TERM", "") in _NO_UNICODE_TERMS:
        return False
    forced = environ.get("LC_ALL", "")
    if forced:
        return _is_utf8(forced)
    return _is_utf8(encoding)


def _is_utf8(name: str) -> bool:
    return "utf8" in name.lower().replace("-", "")
