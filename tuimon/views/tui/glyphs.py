"""Terminals without Unicode: every character we draw has an ASCII stand-in."""

from __future__ import annotations

from collections.abc import Mapping

from rich.cells import cell_len

_PLAIN = {
    "–": "-",
    "·": "|",
    "…": "~",
    "→": ">",
    "←": "<",
    "×": "x",
    "≥": ">",
    "°": " ",
    "±": "+",
    "━": "=",
    "╍": "+",
    "┄": ":",
    "─": "-",
    "│": "|",
    "└": "`",
    "├": "|",
    "▾": "*",
    "▸": ">",
    "▴": "^",
    "●": "*",
    "▏": " ",
    "▎": " ",
    "▍": "-",
    "▌": "-",
    "▋": "=",
    "▊": "=",
    "▉": "#",
    "█": "#",
    "▁": ".",
    "▂": ".",
    "▃": ":",
    "▄": ":",
    "▅": "|",
    "▆": "|",
    "▇": "#",
    "\u202f": " ",
    "\u00a0": " ",
}
_NO_UNICODE_TERMS = ("linux", "dumb", "vt100", "vt102", "vt220")


def _braille() -> dict[int, str]:
    """Braille cells by how high their dots reach, as ``.`` ``:`` ``|`` ``#``."""
    rows = (0x09, 0x12, 0x24, 0xC0)  # dots of each row, from the top
    table = {}
    for code in range(1, 256):
        full = sum(1 for row in rows if code & row)
        table[0x2800 + code] = " .:|#"[full]
    return table


_TABLE = {ord(key): value for key, value in _PLAIN.items()} | _braille()


def ascii_only(text: str) -> str:
    """``text`` with every character replaced that plain ASCII does not have; its width in cells stays."""
    if text.isascii():
        return text
    return "".join(char if char.isascii() else "?" * cell_len(char) for char in text.translate(_TABLE))


def terminal_has_unicode(environ: Mapping[str, str], encoding: str) -> bool:
    """Whether charts may use braille and block characters.

    ``LC_ALL`` is the user's explicit word. Beyond it the stream's encoding decides and not ``LANG``: a container
    without any locale still shows on a UTF-8 terminal (and Python then speaks UTF-8, PEP 538). The Linux console's
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
