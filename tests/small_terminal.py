"""A terminal that understands as much as tuimon's own screen and lines need: text, wrapping, and where it is put."""

import codecs
import re

_SEQUENCE = re.compile(
    r"\x1b\[(\d+);(\d+)H|\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]P].*?(?:\x07|\x1b\\)|\x1b[0-~]|[\r\n]", re.DOTALL
)
#: A sequence whose end is still to come.
_CUT_OFF = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|[\]P][^\x07\x1b]*\x1b?)?\Z")


class SmallTerminal:
    """Bytes in, rows out."""

    def __init__(self, columns: int, rows: int) -> None:
        self.cells = [[" "] * columns for _ in range(rows)]
        self.row = self.column = 0
        self.rest = ""
        self.utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, data: bytes) -> None:
        """What a program writes."""
        text = self.rest + self.utf8.decode(data)
        cut_off = _CUT_OFF.search(text)
        self.rest = cut_off[0] if cut_off is not None else ""
        text, begin = text[: len(text) - len(self.rest)], 0
        for sequence in _SEQUENCE.finditer(text):
            self._write(text[begin : sequence.start()])
            begin = sequence.end()
            if sequence[1]:
                self.row, self.column = int(sequence[1]) - 1, int(sequence[2]) - 1
            elif sequence[0] == "\r":
                self.column = 0
            elif sequence[0] == "\n":
                self._move_down()
        self._write(text[begin:])

    @property
    def display(self) -> list[str]:
        """Its rows."""
        return ["".join(row) for row in self.cells]

    def _write(self, text: str) -> None:
        for char in text:
            if self.column == len(self.cells[0]):
                self.column = 0
                self._move_down()
            self.cells[self.row][self.column] = char
            self.column += 1

    def _move_down(self) -> None:
        if self.row == len(self.cells) - 1:
            self.cells = [*self.cells[1:], [" "] * len(self.cells[0])]
        else:
            self.row += 1
