"""The sheet of a trace: taken when it is opened, then its tables."""

from __future__ import annotations

import os
import time
from threading import Event
from typing import NamedTuple

from textual.worker import Worker

from tuimon.errors import TuimonError
from tuimon.records import TraceTaken
from tuimon.session.session import Session
from tuimon.sources.tracing.taking import Taking
from tuimon.trace.raw import TakenBy
from tuimon.trace.reader import Trace, read_trace
from tuimon.trace.summary import Summary, summarize
from tuimon.views.format import duration, plain
from tuimon.views.trace_text import known_before, trace_text
from tuimon.views.tui.drawing.lines import Line, paragraph
from tuimon.views.tui.sheets.sheet import Sheet
from tuimon.views.tui.sheets.trace_lines import trace_lines

STEPS = 5
_POLL_S = 0.1


class Taken(NamedTuple):
    """A trace, read and summed up."""

    path: str
    trace: Trace
    summary: Summary


class TraceSheet(Sheet):
    """Takes a trace of a process off this thread; closed before its end, it takes the order back."""

    def __init__(self, known: TakenBy, folder: str, steps: int = STEPS) -> None:
        super().__init__("Trace", self._lines)
        self._known = known
        self._steps = steps
        self._path = os.path.join(folder, f"tuimon-trace-{known.pid}-{time.time():.0f}.json.gz")
        self._left = Event()
        self._progress: Taking | None = None
        self.work: Worker[Taken | None] | None = None

    def on_mount(self) -> None:
        """Begin the trace."""
        self.work = self.run_worker(self.take, thread=True, exit_on_error=False)
        self.call_after_refresh(self.update)

    def on_unmount(self) -> None:
        """Cancel: nobody waits for it any more."""
        self._left.set()

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """The trace has come, or there is none."""
        self.update()

    def _lines(self, width: int) -> list[Line]:
        """The tables; until they are there how far it has come, or why there are none."""
        work = self.work
        if work is None or not work.is_finished:
            return texts_lines(width, (self._state(), "strong"), (_NOTE, "dim"))
        if work.result is None:
            return texts_lines(width, *self._without_trace(work.error))
        taken = work.result
        where = f"The whole of it, for https://ui.perfetto.dev: {plain(taken.path)}"
        return [*trace_lines(taken.trace, taken.summary, width), (), *paragraph(where, width, "dim")]

    def _without_trace(self, error: BaseException | None) -> list[tuple[str, str]]:
        """Why there is no trace, as texts with their roles."""
        if isinstance(error, TuimonError):
            return [(f"No trace: {error.message}", "warning"), (error.hint or "", "text")]
        return [(f"No trace: {plain(str(error))}", "warning")]

    def _state(self) -> str:
        taking = self._progress
        if taking is None or taking.taken is None:
            waited_s = taking.waited_s if taking is not None else 0.0
            text = f"The next {self._steps} steps of process {self._known.pid} will be recorded …"
            return text if waited_s < 5 else f"{text} no backward pass has ended for {duration(waited_s)}"
        if taking.is_over:
            return "Reading the trace …"
        return f"Recorded {taking.taken} of {self._steps} steps …"

    def take(self) -> Taken | None:
        """Runs on a thread of its own."""
        taking = self._progress = Taking(self._known.pid, self._steps)
        try:
            while not taking.is_over:
                if self._left.wait(_POLL_S):
                    taking.cancel()
                    return None
                taking.poll()
        except BaseException:
            taking.cancel()
            raise
        taking.write(self._path, self._known)
        taken = read_taken(self._path)
        taking.leave_record(self._path, taken.trace, taken.summary)
        return taken


_NOTE = (
    "The profiler slows these steps; the training is held up for at most a quarter of a second to stop it and to write."
)


def read_taken(path: str) -> Taken:
    """Read a trace and sum it up. Raises TuimonError."""
    trace = read_trace(path)
    return Taken(path, trace, summarize(trace))


def texts_lines(width: int, *texts: tuple[str, str]) -> list[Line]:
    """Texts with their roles; a blank line follows each that is not plain."""
    lines: list[Line] = []
    for text, role in texts:
        lines += [*paragraph(text, width, role), *([()] if role != "text" else [])]
    return lines


def trace_sheet(session: Session, *, runs: bool) -> TraceSheet | None:
    """The sheet that key K opens: the next steps of a training that ``runs``, else the latest trace of its log."""
    pid = session.trainer()
    if runs and pid is not None and session.exit is None:
        return TraceSheet(known_before(session, pid), os.getcwd())
    return _RecordedTraceSheet(session.traces[-1]) if session.traces else None


class _RecordedTraceSheet(TraceSheet):
    """Reads the file off this thread."""

    def __init__(self, record: TraceTaken) -> None:
        super().__init__(TakenBy(pid=record.pid, rank=record.rank), os.path.dirname(record.file))
        self._record = record

    def _without_trace(self, error: BaseException | None) -> list[tuple[str, str]]:
        """The figures that the log holds: there is nothing else."""
        head, *rest = trace_text(self._record)
        reason = getattr(error, "message", None) or plain(str(error))
        note = f"These figures are in the log; the tables are only in the trace file: {reason}"
        return [(head, "strong"), (note, "dim"), *((text, "text") for text in rest)]

    def _state(self) -> str:
        return "Reading the trace …"

    def take(self) -> Taken | None:
        return read_taken(self._record.file)
