"""Lines of the user's source files."""

from __future__ import annotations

import os
import stat

from tuimon.text import plain

#: A line's text is cut to this many characters, and a file larger than this is not read.
SOURCE_CHARS = 160
FILE_BYTES = 4 << 20
#: How many files are held in memory at once.
_FILES_HELD = 32


class SourceText:
    """Lines of source files, read once; a file that is no plain file, is gone or is large has none."""

    def __init__(self) -> None:
        self._lines: dict[str, list[bytes]] = {}

    def line(self, file: str, number: int, not_after_unix_s: float | None = None) -> str:
        """Text of a line (from 1), at most 160 characters; "" when it cannot be read.

        A file changed after ``not_after_unix_s`` (the start of its process) may no longer be what runs: "".
        """
        lines = self._of(file, not_after_unix_s)
        if not 0 < number <= len(lines):
            return ""
        return _text(lines[number - 1]).strip()[:SOURCE_CHARS]

    def whole(self, file: str, not_after_unix_s: float | None = None) -> bytes:
        """All of a file; empty where lines have no text either."""
        return b"\n".join(self._of(file, not_after_unix_s))

    def around(
        self, file: str, number: int, count: int, not_after_unix_s: float | None = None
    ) -> list[tuple[int, str]]:
        """The line and ``count`` before and after it, with their numbers and indentation; [] when it cannot be read."""
        lines = self._of(file, not_after_unix_s)
        if not 0 < number <= len(lines):
            return []
        first = max(number - count, 1)
        return [(n, _text(lines[n - 1])[:SOURCE_CHARS]) for n in range(first, min(number + count, len(lines)) + 1)]

    def _of(self, file: str, not_after_unix_s: float | None) -> list[bytes]:
        lines = self._lines.get(file)
        if lines is None:
            lines = _read_lines(file, not_after_unix_s)
            if len(self._lines) >= _FILES_HELD:
                del self._lines[next(iter(self._lines))]
            self._lines[file] = lines
        return lines


def _text(line: bytes) -> str:
    return plain(line[: 8 * SOURCE_CHARS].decode("utf-8", "replace").expandtabs(4)).rstrip()


def _read_lines(file: str, not_after_unix_s: float | None) -> list[bytes]:
    try:
        handle = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe must not hold us up
    except (OSError, ValueError):
        return []
    try:
        facts = os.fstat(handle)
        if not stat.S_ISREG(facts.st_mode) or facts.st_size > FILE_BYTES:
            return []
        if not_after_unix_s is not None and facts.st_mtime > not_after_unix_s + 2.0:
            return []
        return os.read(handle, FILE_BYTES).splitlines()
    except OSError:
        return []
    finally:
        os.close(handle)
