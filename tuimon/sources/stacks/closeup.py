"""The code around a line, on demand; reading it may block."""

from __future__ import annotations

from tuimon.proc.target_files import OURS, TargetFiles
from tuimon.records import Process
from tuimon.sources.source_text import SourceText

#: Lines before and after the one in question.
AROUND_LINES = 5


class CloseUp:
    """Reads files of the machine that the run is on; a replay has none (``live`` False)."""

    def __init__(self, *, live: bool = True, launched: bool = False) -> None:
        """``launched``: we started the run, and read for its ended processes with our own rights."""
        self.live = live
        self._source = SourceText()
        self._ended = OURS if launched else None

    def code(
        self, file: str, line: int, process: Process, not_after_unix_s: float | None = None
    ) -> list[tuple[int, str]]:
        """The lines around one, numbered; [] where that process cannot read them.

        They are not shown either if the file was changed after the process began, or after ``not_after_unix_s``.
        """
        if not self.live:
            return []
        files = TargetFiles(process.pid, process.start_unix_s, not_after_unix_s=not_after_unix_s, ended=self._ended)
        return self._source.around(file, line, AROUND_LINES, files)
