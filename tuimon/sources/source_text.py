"""Reads lines of the user's source files, and the code around a line; reading may block."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tuimon.bounds import Latest
from tuimon.proc.target_files import OURS, Rights, TargetFiles
from tuimon.records import Process
from tuimon.text import AROUND_LINES, plain

#: A line's text is cut to this many characters, and a file larger than this is not read.
SOURCE_CHARS = 160
SOURCE_BYTES = 4 << 20
#: Most files that are held in memory at the same time.
FILES_HELD = 32
_OURS = TargetFiles(None)


class SourceText:
    """The lines of source files, each read once; none of a file that is not regular, is gone or is large."""

    def __init__(self, files_held: int = FILES_HELD) -> None:
        self._lines = Latest[tuple[str, Rights], list[bytes]](files_held)

    def line(self, file: str, number: int, files: TargetFiles = _OURS) -> str:
        """Text of a line (from 1), at most 160 characters; "" when the process of ``files`` cannot read it.

        A file changed after the start of its process may no longer be what runs: "".
        """
        return line_of(self.lines(file, files), number)

    def around(self, file: str, number: int, count: int, files: TargetFiles = _OURS) -> list[tuple[int, str]]:
        """The line and ``count`` before and after it, with their numbers and indentation; [] when it cannot be read."""
        lines = self.lines(file, files)
        if not 0 < number <= len(lines):
            return []
        first = max(number - count, 1)
        return [(n, safe_line(lines[n - 1])[:SOURCE_CHARS]) for n in range(first, min(number + count, len(lines)) + 1)]

    def lines(self, file: str, files: TargetFiles = _OURS) -> list[bytes]:
        lines = self._lines.get((file, files.rights)) if files.rights else None
        if lines is not None:
            return lines
        rights = files.refresh()
        if rights is None:
            return []
        cell, lines = files.cell(file), []
        if cell is not None:
            lines = cell.text.splitlines()
        elif (content := rights.read(file, SOURCE_BYTES)) is not None:
            last_unix_s = math.inf if files.not_after_unix_s is None else files.not_after_unix_s + 2.0
            lines = content.data.splitlines() if content.changed_unix_s <= last_unix_s else []
        self._lines[file, rights] = lines
        return lines


def line_of(lines: Sequence[bytes], number: int) -> str:
    """Text of a line (from 1) without its indentation, cut; "" beyond the end."""
    return safe_line(lines[number - 1]).strip()[:SOURCE_CHARS] if 0 < number <= len(lines) else ""


def safe_line(line: bytes) -> str:
    """A line of source with its indentation, made safe to print."""
    return plain(line[: 8 * SOURCE_CHARS].decode("utf-8", "replace").expandtabs(4)).rstrip()


class CloseUp:
    """Reads the code around a line, from files of this machine."""

    def __init__(self, *, launched: bool = False) -> None:
        """``launched``: tuimon started the run, so files of its ended processes are read with tuimon's own rights."""
        self._source = SourceText()
        self._ended = OURS if launched else None

    def code(
        self, file: str, line: int, process: Process, not_after_unix_s: float | None = None
    ) -> list[tuple[int, str]]:
        """The lines around one, numbered; [] if that process cannot read them.

        They are not shown either if the file was changed after the process began, or after ``not_after_unix_s``.
        """
        files = TargetFiles(process.pid, process.start_unix_s, not_after_unix_s=not_after_unix_s, ended=self._ended)
        return self._source.around(file, line, AROUND_LINES, files)
