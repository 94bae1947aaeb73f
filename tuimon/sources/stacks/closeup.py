"""Details on demand: the code around a line, and one dump of all stacks of a process. Both may block."""

from __future__ import annotations

from typing import NamedTuple

from tuimon.proc.target_files import OURS, TargetFiles
from tuimon.records import Process
from tuimon.sources.source_text import SourceText
from tuimon.sources.stacks.pyspy import dump, errors, recorder

#: Lines before and after the one in question; threads of a dump.
AROUND_LINES = 5
THREADS_LIMIT = 200


class Dump(NamedTuple):
    """All Python threads of a process at one instant, or why there is none."""

    threads: tuple[dump.DumpThread, ...]
    trouble: str | None = None
    hint: str | None = None


class CloseUp:
    """Reads files and processes of the machine that the run is on; a replay has none (``live`` False)."""

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

    def dump(self, pid: int) -> Dump:
        """The stacks of all Python threads now, or why they cannot be read."""
        if not self.live:
            return Dump((), "a log is played back: there is no process to inspect")
        binary = recorder.find()
        if binary is None:
            return Dump((), "no dump: py-spy was not found", errors.NO_BINARY.hint)
        try:
            threads = dump.dump(binary, pid)
        except dump.DumpError as error:
            problem = errors.explain(str(error), pid)
            return Dump((), problem.message.replace("no stack samples", "no dump", 1), problem.hint)
        return Dump(tuple(threads[:THREADS_LIMIT]))
