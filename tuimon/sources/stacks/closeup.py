"""Details on demand: the code around a line, and one dump of all stacks of a process. Both may block."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tuimon.proc.pthreads import os_ids
from tuimon.records import Place
from tuimon.sources.source_text import SourceText
from tuimon.sources.stacks import pyspy, pyspy_dump, pyspy_errors

#: Lines before and after the one in question; threads and frames of a dump.
AROUND_LINES = 5
THREADS_LIMIT = 200
FRAMES_LIMIT = 200


class ThreadStack(NamedTuple):
    """One thread at one instant; ``frames`` innermost first."""

    tid: int | None
    name: str
    active: bool
    owns_gil: bool
    frames: tuple[Place, ...]


class Dump(NamedTuple):
    """All Python threads of a process at one instant, or why there is none."""

    threads: tuple[ThreadStack, ...]
    trouble: str | None = None
    hint: str | None = None


class CloseUp:
    """Reads files and processes of the machine that the run is on; a replay has none (``live`` False)."""

    def __init__(self, *, live: bool = True) -> None:
        self.live = live
        self._source = SourceText()

    def code(self, file: str, line: int, started_unix_s: float | None = None) -> list[tuple[int, str]]:
        """The lines around one, numbered; [] where the file cannot be read, or was changed since the process began."""
        return self._source.around(file, line, AROUND_LINES, started_unix_s) if self.live else []

    def dump(self, pid: int) -> Dump:
        """The stacks of all Python threads now, or why they cannot be read."""
        if not self.live:
            return Dump((), "a log is played back: there is no process to look at")
        binary = pyspy.find()
        if binary is None:
            return Dump((), "no dump: py-spy was not found", pyspy_errors.NO_BINARY.hint)
        try:
            threads = pyspy_dump.dump(binary, pid)
        except pyspy_dump.DumpError as error:
            problem = pyspy_errors.explain(str(error), pid)
            return Dump((), problem.message.replace("no stack samples", "no dump", 1), problem.hint)
        ids = os_ids(pid, [thread.thread_id for thread in threads if thread.os_thread_id is None])
        return Dump(tuple(_thread(thread, ids) for thread in threads[:THREADS_LIMIT]))


def _thread(thread: pyspy_dump.DumpThread, ids: Mapping[int, int]) -> ThreadStack:
    frames = (Place(frame.filename, frame.line, frame.name) for frame in thread.frames[:FRAMES_LIMIT])
    name = thread.thread_name or "thread"
    tid = ids.get(thread.thread_id) if thread.os_thread_id is None else thread.os_thread_id
    return ThreadStack(tid, name, thread.active, thread.owns_gil, tuple(frames))
