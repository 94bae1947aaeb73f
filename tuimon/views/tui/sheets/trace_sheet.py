"""The sheet of a trace: taken when it is opened, then the timeline above, the tables below."""

from __future__ import annotations

import os
import time
from threading import Event
from typing import ClassVar, Literal, NamedTuple

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.worker import Worker, WorkerState

from tuimon.errors import TuimonError
from tuimon.records import TraceTaken
from tuimon.session.session import Session
from tuimon.sources.tracing.taking import Taking
from tuimon.trace.raw import TakenBy
from tuimon.trace.reader import Trace, read_trace
from tuimon.trace.summary import Summary, summarize
from tuimon.trace.timeline import Timeline, timeline_of
from tuimon.views.format import duration, plain
from tuimon.views.trace_text import known_before, trace_text
from tuimon.views.tui.drawing.lines import Line, Span, line, paragraph
from tuimon.views.tui.sheets.sheet import Overlay, ScrolledBody
from tuimon.views.tui.sheets.timeline_lines import View, timeline_lines
from tuimon.views.tui.sheets.trace_lines import trace_lines

STEPS = 5
_POLL_S = 0.1
_KEYS = (
    ("← →", "move"),
    ("+ -", "zoom"),
    ("n N", "next step, last"),
    ("0", "all"),
    ("↑ ↓", "tables"),
    ("Esc", "close"),
)


class Taken(NamedTuple):
    """A trace, read and summed up."""

    path: str
    trace: Trace
    summary: Summary
    timeline: Timeline


class TraceBody(ScrolledBody):
    """The timeline, and under it the tables; where there is no trace, texts."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("right,l", "look('pan', 1)", show=False),
        Binding("left,h", "look('pan', -1)", show=False),
        Binding("plus,equals_sign", "look('zoom', 1)", show=False),
        Binding("minus", "look('zoom', -1)", show=False),
        Binding("n", "look('step', 1)", show=False),
        Binding("N", "look('step', -1)", show=False),
        Binding("0", "whole", show=False),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.view: View | None = None
        self._taken: Taken | None = None
        self._waiting: list[tuple[str, str]] = []  # text and role

    def show_waiting(self, *texts: tuple[str, str]) -> None:
        """Show these texts while there is no trace, or where none came."""
        self._waiting = list(texts)
        self.update()

    def show_trace(self, taken: Taken) -> None:
        """Show a trace."""
        self._taken = taken
        self.view = View(taken.timeline)
        self.update()

    def update(self) -> None:
        """Draw what there is."""
        width, height = self.content_size
        if not height:
            return
        if self._taken is None or self.view is None:
            lines: list[Line] = []
            for text, role in self._waiting:
                lines += [*paragraph(text, width, role), *([()] if role != "text" else [])]
            shown, more = self.in_view(lines, height)
            self.set_title(Span("Trace", "text bold"), more, Span(" · Esc closes", "dim"))
            self.show_lines(shown)
            return
        drawn = timeline_lines(self.view, width)
        drawn = [*drawn[: max(height - 6, 3)], _keys(), ()]
        tables = trace_lines(self._taken.trace, self._taken.summary, width)
        shown, more = self.in_view(tables, max(height - len(drawn), 1))
        file = Span(f" · {plain(os.path.basename(self._taken.path))}", "dim")
        self.set_title(Span("Trace", "text bold"), file, more)
        self.show_lines([*drawn, *shown])

    def action_look(self, how: Literal["pan", "zoom", "step"], steps: int) -> None:
        """Move along the timeline, zoom into it or out, show the next step alone or the one before."""
        if self.view is not None:
            {"pan": self.view.pan, "zoom": self.view.zoom, "step": self.view.go_to_step}[how](steps)
            self.update()

    def action_whole(self) -> None:
        """The whole timeline."""
        if self.view is not None:
            self.view.whole()
            self.update()


class TraceSheet(Overlay[None]):
    """Takes a trace of a process off this thread; closed before its end, it takes the order back."""

    AUTO_FOCUS = "TraceBody"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q", "dismiss", "close", show=False)]

    def __init__(self, known: TakenBy, folder: str, steps: int = STEPS) -> None:
        super().__init__()
        self.body = TraceBody()
        self._known = known
        self._steps = steps
        self._path = os.path.join(folder, f"tuimon-trace-{known.pid}-{time.time():.0f}.json.gz")
        self._left = Event()
        self._progress: Taking | None = None
        self._work: Worker[Taken | None] | None = None

    def compose(self) -> ComposeResult:
        """The one body."""
        yield self.body

    def on_mount(self) -> None:
        """Begin the trace."""
        self.body.set_title(Span("Trace", "text bold"), Span(" · Esc closes", "dim"))
        self._work = self.run_worker(self._take, thread=True, exit_on_error=False)
        self.call_after_refresh(self.update)

    def on_unmount(self) -> None:
        """Cancel: nobody waits for it any more."""
        self._left.set()

    def update(self) -> None:
        """A tick passed: show how far it has come."""
        if self._work is not None and not self._work.is_finished:
            self.body.show_waiting((self._state(), "strong"), (_NOTE, "dim"))

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """The trace has come, or there is none."""
        if event.worker is not self._work:
            return
        if event.state == WorkerState.SUCCESS and self._work.result is not None:
            self.body.show_trace(self._work.result)
        elif event.state == WorkerState.ERROR:
            self._show_error(self._work.error)

    def _show_error(self, error: BaseException | None) -> None:
        """Show why there is no trace."""
        if isinstance(error, TuimonError):
            self.body.show_waiting((f"No trace: {error.message}", "warning"), (error.hint or "", "text"))
        else:
            self.body.show_waiting((f"No trace: {plain(str(error))}", "warning"))

    def _state(self) -> str:
        taking = self._progress
        if taking is None or taking.taken is None:
            waited_s = taking.waited_s if taking is not None else 0.0
            text = f"The next {self._steps} steps of process {self._known.pid} will be recorded …"
            return text if waited_s < 5 else f"{text} no backward pass has ended for {duration(waited_s)}"
        if taking.is_over:
            return "Reading the trace …"
        return f"Recorded {taking.taken} of {self._steps} steps …"

    def _take(self) -> Taken | None:
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
    return Taken(path, trace, summarize(trace), timeline_of(trace))


def _keys() -> Line:
    spans: list[Span] = []
    for key, word in _KEYS:
        spans += [Span(key, "key bold"), Span(f" {word}", "dim"), Span("  ")]
    return line(*spans)


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

    def _show_error(self, error: BaseException | None) -> None:
        """Show the figures that the log holds: there is nothing else."""
        head, *rest = trace_text(self._record)
        reason = getattr(error, "message", None) or plain(str(error))
        note = f"These figures are in the log; the timeline is only in the trace file: {reason}"
        self.body.show_waiting((head, "strong"), (note, "dim"), *((text, "text") for text in rest))

    def _state(self) -> str:
        return "Reading the trace …"

    def _take(self) -> Taken | None:
        return read_taken(self._record.file)
