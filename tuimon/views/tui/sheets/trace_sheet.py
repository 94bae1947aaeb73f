"""The sheet of a trace: taken when it is opened, then its tables."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import closing
from threading import Event
from typing import TypeVar

from textual.worker import Worker

from tuimon.errors import TuimonError
from tuimon.new_files import free_name
from tuimon.records import BETWEEN, PHASES, TracedSync, TracedWork, TraceTaken
from tuimon.session.session import Session
from tuimon.sources.control_channel import POLL_S
from tuimon.sources.tracing import TraceOrder
from tuimon.text import kernel_name, plural
from tuimon.trace.events import TakenBy
from tuimon.trace.reader import read_trace
from tuimon.trace.summary import Summary, summarize
from tuimon.views.format import ABSENT, count, duration, ms, percent, plain
from tuimon.views.run_text import flops_text, trace_text
from tuimon.views.tui.drawing.lines import Line, apart, column, line, paragraph
from tuimon.views.tui.sheets.sheet import Sheet

STEPS_TO_TRACE = 5
_ROWS = 12
#: Characters of a line of the user's code next to an operator.
_WHERE = 32


def trace_lines(summary: Summary, width: int) -> list[Line]:
    """All tables; figures are per step, means over the traced steps."""
    own = "own time on the CPU a step" + (", and of the kernels they launched" if summary.gpus else "")
    room = width - 36 - (_WHERE + 3 if summary.has_lines else 0)
    parts = (
        _notes(summary, width),
        _gpus(summary),
        _syncs(summary),
        _works("Operators", own, summary.operators, summary, room, launch=True),
        _works("Kernels", "time on the GPU a step", summary.kernels, summary, width - 25),
    )
    return apart(parts)


def headline(summary: Summary) -> str:
    """``5 steps · 12.1 ms each``."""
    taken = summary.trace.taken
    if not summary.has_steps:
        return f"no steps marked · {ms(summary.span_ns / 1e6)}"
    text = f"{plural(summary.steps, 'step')} · {ms(summary.span_ns / summary.steps / 1e6)} each"
    if taken is not None and taken.step_ms:
        text += f" (before the trace: {ms(taken.step_ms)})"
    return text


def _notes(summary: Summary, width: int) -> list[Line]:
    trace, taken = summary.trace, summary.trace.taken
    lines = [line((headline(summary), "strong"))]
    if summary.flops:
        lines += paragraph(f"{flops_text(summary.flops, summary.steps)}.", width)
    if taken is not None and taken.stop_ms is not None:
        lines += paragraph(
            f"The profiler slows the traced steps; stopping it and writing the file held the training up for"
            f" {ms(taken.stop_ms)}.",
            width,
            "dim",
        )
        if taken.held_limit_ms is not None and taken.stop_ms > taken.held_limit_ms:
            text = f"That is more than the {ms(taken.held_limit_ms)} allowed: it was estimated from one step before"
            lines += paragraph(f"{text}, and torch cannot be interrupted.", width, "warning")
        if taken.wanted > taken.steps:
            text = f"{taken.wanted} steps were requested; more would have held the training up for longer than allowed."
            lines += paragraph(text, width, "warning")
    if trace.ended_early:
        lines += paragraph(f"The file was not read to its end: {trace.ended_early}.", width, "warning")
    if trace.dropped or trace.unreadable:
        text = f"Not shown: {count(trace.dropped)} events beyond the limit, {count(trace.unreadable)} damaged."
        lines += paragraph(text, width, "warning")
    return lines


def _gpus(summary: Summary) -> list[Line]:
    lines = []
    for gpu in summary.gpus:
        idle = 1 - gpu.busy_ns / gpu.span_ns if gpu.span_ns else None
        name = f" ({gpu.name})" if gpu.name else ""
        lines.append(
            line(
                (f"GPU {gpu.device}{name} ", "text"),
                (f"idle {percent(idle)}", "strong"),
                (f" · {count(round(gpu.kernels / summary.steps))} kernels a step", "dim"),
            )
        )
    return lines


def _syncs(summary: Summary) -> list[Line]:
    def drawn(row: TracedSync) -> Line:
        return line(
            (column(ms(row.total_ns / summary.steps / 1e6), 9, ">"), "strong"),
            (column(percent(row.total_ns / (summary.span_ns or 1)), 6, ">"), "text"),
            "  ",
            (plain(row.name), _role(row.phase)),
            (f" {plain(row.call)}" if row.operator else "", "text"),
            (f" · {plain(row.where) or ABSENT}" if row.where or summary.has_lines else "", "key"),
            (f" · {_per_step(row.count, summary.steps)}", "dim"),
        )

    return _table("Where the CPU waited for the GPU", "a step; share of the step", summary.syncs, drawn)


def _works(
    title: str, note: str, rows: Sequence[TracedWork], summary: Summary, room: int, *, launch: bool = False
) -> list[Line]:
    """Operators, which ``launch`` kernels at a line of code, or kernels: a row each, the name in ``room`` cells."""
    total = sum(row.total_ns for row in rows) or 1

    def drawn(row: TracedWork) -> Line:
        gpu = f"GPU {ms((row.gpu_ns or 0) / summary.steps / 1e6, unit=False)}" if launch and summary.gpus else ""
        where = column(plain(row.where) or ABSENT, _WHERE).rstrip() if launch and summary.has_lines else ""
        name = plain(row.name) if launch else kernel_name(plain(row.name), max(room, 20))
        return line(
            (column(ms(row.total_ns / summary.steps / 1e6, unit=False), 10, ">"), "strong"),
            (column(percent(row.total_ns / total), 6, ">"), "text"),
            (column(gpu, 11, ">") if gpu else "", "gpu-edge"),
            "  ",
            (column(name, max(room, 20)).rstrip(), _role(row.phase)),
            (f" · {_per_step(row.count, summary.steps)}", "dim"),
            (f" · {where}" if where else "", "key"),
        )

    return _table(title, note, rows, drawn)


Row = TypeVar("Row")


def _table(title: str, note: str, rows: Sequence[Row], drawn: Callable[[Row], Line]) -> list[Line]:
    """The first rows below their heading; nothing without any."""
    hidden = len(rows) - _ROWS
    more = [line((f"           … {hidden} more", "dim"))] if hidden > 0 else []
    return [line((title, "strong"), (f"  {note}", "dim")), *map(drawn, rows[:_ROWS]), *more] if rows else []


def _per_step(number: int, steps: int) -> str:
    mean = number / steps
    return f"{count(round(mean))}×" if mean >= 0.95 else f"{count(number)}× in {steps} steps"


def _role(phase: str) -> str:
    return phase if phase in (*PHASES, BETWEEN) else "text"


class TraceSheet(Sheet):
    """Takes a trace of a process on another thread; if closed before the end, it cancels the trace."""

    def __init__(self, known: TakenBy) -> None:
        super().__init__("Trace", self._lines)
        self._known = known
        self._left = Event()
        self._progress: TraceOrder | None = None
        self.work: Worker[Summary | None] | None = None

    def on_mount(self) -> None:
        self.work = self.run_worker(self.take, thread=True, exit_on_error=False)
        self.call_after_refresh(self.update)

    def on_unmount(self) -> None:
        """Cancel the trace if it is still being taken."""
        self._left.set()

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """Show the trace, or why there is none."""
        self.update()

    def _lines(self, width: int) -> list[Line]:
        """The tables; before that, the progress of the trace; without a trace, the reason."""
        work = self.work
        if work is None or not work.is_finished:
            return texts_lines(width, (self._state(), "strong"), (_NOTE, "dim"))
        if work.result is None:
            return texts_lines(width, *self._without_trace(work.error))
        where = f"The whole of it, for https://ui.perfetto.dev: {plain(work.result.trace.path)}"
        return [*trace_lines(work.result, width), (), *paragraph(where, width, "dim")]

    def _without_trace(self, error: BaseException | None) -> list[tuple[str, str]]:
        """Why there is no trace, as texts with their roles."""
        if isinstance(error, TuimonError):
            return [(f"No trace: {error.message}", "warning"), (error.hint or "", "text")]
        return [(f"No trace: {plain(str(error))}", "warning")]

    def _state(self) -> str:
        taking = self._progress
        if taking is None or taking.taken is None:
            waited_s = taking.waited_s if taking is not None else 0.0
            text = f"The next {STEPS_TO_TRACE} steps of process {self._known.pid} will be recorded …"
            return text if waited_s < 5 else f"{text} no backward pass has ended for {duration(waited_s)}"
        if taking.is_over:
            return "Reading the trace …"
        return f"Recorded {taking.taken} of {STEPS_TO_TRACE} steps …"

    def take(self) -> Summary | None:
        """Take the trace; runs on a thread of its own."""
        with closing(TraceOrder(self._known.pid, STEPS_TO_TRACE)) as taking:
            self._progress = taking
            while not taking.is_over:
                if self._left.wait(POLL_S):
                    return None
                taking.poll()
            path = f"{free_name(os.path.abspath(f'tuimon-trace-{self._known.pid}'), '.json.gz')}.json.gz"
            return taking.write(path, self._known)


_NOTE = (
    "The profiler slows these steps; the training is held up for at most a quarter of a second while it stops and"
    " writes."
)


def texts_lines(width: int, *texts: tuple[str, str]) -> list[Line]:
    """Texts with their roles; a blank line follows each that is not plain."""
    lines: list[Line] = []
    for text, role in texts:
        lines += [*paragraph(text, width, role), *([()] if role != "text" else [])]
    return lines


def known_before(session: Session, pid: int) -> TakenBy:
    """Command, rank and length of a step; None for what is unknown."""
    own = session.over("recent").of(pid)
    step_ms = own.steps.median_ms if own.steps is not None else None
    return TakenBy(pid=pid, rank=own.process.rank, command=" ".join(own.process.command)[:500], step_ms=step_ms)


def trace_sheet(session: Session, *, runs: bool) -> TraceSheet:
    """The sheet that key K opens: the next steps of a training that ``runs``, else the latest trace of its log."""
    pid = session.trainer()
    if runs and pid and session.exit is None:
        return TraceSheet(known_before(session, pid))
    return _RecordedTraceSheet(session.traces[-1])


class _RecordedTraceSheet(TraceSheet):
    """The sheet of a log's latest trace, whose file it reads on another thread."""

    def __init__(self, record: TraceTaken) -> None:
        super().__init__(TakenBy(pid=record.pid, rank=record.rank))
        self._record = record

    def _without_trace(self, error: BaseException | None) -> list[tuple[str, str]]:
        """The figures in the log, which are all that there is without the file."""
        head, *rest = trace_text(self._record)
        reason = getattr(error, "message", None) or plain(str(error))
        note = f"These figures are in the log; the tables are only in the trace file: {reason}"
        return [(head, "strong"), (note, "dim"), *((text, "text") for text in rest)]

    def _state(self) -> str:
        return "Reading the trace …"

    def take(self) -> Summary | None:
        return summarize(read_trace(self._record.file))
