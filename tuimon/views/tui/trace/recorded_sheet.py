"""The sheet of a trace that a log names: its file where that still is, else the rows that the log holds."""

from __future__ import annotations

import os

from tuimon.records import TraceTaken
from tuimon.session.session import Session
from tuimon.trace.raw import TakenBy
from tuimon.views.before_trace import known_before
from tuimon.views.format import plain
from tuimon.views.trace_text import trace_text
from tuimon.views.tui.trace.trace_sheet import Taken, TraceSheet, read_taken


def trace_sheet(session: Session, *, runs: bool) -> TraceSheet | None:
    """The sheet that key K opens: the next steps of a training that ``runs``, else the latest trace of its log."""
    pid = session.trainer()
    if runs and pid is not None and session.exit is None:
        return TraceSheet(known_before(session, pid), os.getcwd())
    return RecordedTraceSheet(session.traces[-1]) if session.traces else None


class RecordedTraceSheet(TraceSheet):
    """Reads the file off this thread."""

    def __init__(self, record: TraceTaken) -> None:
        super().__init__(TakenBy(pid=record.pid, rank=record.rank), os.path.dirname(record.file))
        self._record = record

    def _show_error(self, error: BaseException | None) -> None:
        """What the log holds is all there is."""
        head, *rest = trace_text(self._record)
        reason = getattr(error, "message", None) or plain(str(error))
        note = f"These figures are in the log; the timeline is only in the trace file: {reason}"
        self.body.show_waiting((head, "strong"), (note, "dim"), *((text, "text") for text in rest))

    def _state(self) -> str:
        return "Reading the trace …"

    def _take(self) -> Taken | None:
        return read_taken(self._record.file)
