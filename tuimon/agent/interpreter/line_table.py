"""Which line an instruction belongs to: ``co_linetable``, a run of entries, each for 1 to 8 code units.

The format: https://github.com/python/cpython/blob/3.14/InternalDocs/code_objects.md#source-code-locations. An entry
begins with a byte whose high bit is set: four bits of kind, three of length less one. Kinds 0-9 stay on the line and
have one more byte, 10-12 move it by 0-2 and have two more, 13 moves it by a signed varint, 14 by one with three more
varints behind it, and 15 has no line.
"""

from __future__ import annotations

from bisect import bisect_right

_SHORT_KINDS = 10
_ONE_LINE_KINDS = 13
_NO_COLUMNS = 13
_LONG = 14


class LineTable:
    """The lines of one code object."""

    def __init__(self, table: bytes, first_line: int) -> None:
        """Raises IndexError for what is no such table."""
        self._starts: list[int] = []
        self._lines: list[int] = []
        self._decode(table, first_line)

    def line(self, unit: int) -> int:
        """The line of a code unit; 0 where it has none."""
        at = bisect_right(self._starts, unit) - 1
        return self._lines[at] if at >= 0 else 0

    def _decode(self, table: bytes, line: int) -> None:
        unit = at = 0
        while at < len(table):
            kind, units = table[at] >> 3 & 15, (table[at] & 7) + 1
            at += 1
            if kind < _SHORT_KINDS:
                at += 1
            elif kind < _ONE_LINE_KINDS:
                line += kind - _SHORT_KINDS
                at += 2
            elif kind in (_NO_COLUMNS, _LONG):
                number, at = _varint(table, at)
                line += -(number >> 1) if number & 1 else number >> 1
                for _ in range(3 if kind == _LONG else 0):
                    _, at = _varint(table, at)
            shown = 0 if kind > _LONG else line
            if not self._lines or self._lines[-1] != shown:
                self._starts.append(unit)
                self._lines.append(shown)
            unit += units


def _varint(table: bytes, at: int) -> tuple[int, int]:
    """A number in groups of six bits, the lowest first, and where it ends."""
    number = shift = 0
    while True:
        byte = table[at]
        at += 1
        number |= (byte & 63) << shift
        if not byte & 64:
            return number, at
        shift += 6
