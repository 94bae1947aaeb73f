"""The sheet of one thread: its latest stack with the code around its line, and a dump on demand."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NamedTuple

from msgspec.structs import replace
from textual.binding import Binding, BindingType
from textual.worker import Worker, WorkerState

from tuimon.node_ids import own_id
from tuimon.records import Frame
from tuimon.session.loop_tree.hot_lines import by_line
from tuimon.session.loop_tree.tree import program_part
from tuimon.session.rows import ThreadRow
from tuimon.views.format import duration, percent, plain
from tuimon.views.tui.drawing.lines import Line, Span, line, paragraph, place_column, places_width
from tuimon.views.tui.panes.thread_rows import thread_lines
from tuimon.views.tui.sheets.code_around import Code, CodeAround, code_lines, frame_line
from tuimon.views.tui.sheets.sheet import Sheet

if TYPE_CHECKING:
    from tuimon.session.session import Session
    from tuimon.sources.stacks.closeup import CloseUp, Dump
    from tuimon.sources.stacks.pyspy.dump import DumpThread

FRAMES_SHOWN = 60
_DUMP_HEAD = Span("dump of all Python threads, innermost first", "strong")
#: From here on it is shown how long a thread's stack has not changed.
STUCK_S = 5.0


class LatestStack(NamedTuple):
    """The most frequent stack of a thread in its latest window of samples."""

    frames: tuple[Frame, ...]  # innermost first
    share: float  # share of the window's samples
    same_for_s: float | None


def latest_stack(session: Session, row: ThreadRow) -> LatestStack | None:
    """The latest stack of a thread; None where no sample is known."""
    sampled = session.samples.get(row.pid)
    found = sampled.threads.stack_of(row.tid) if sampled is not None else None
    if sampled is None or found is None:
        return None
    numbers, share = found
    frames = program_part(session.frames.stack(numbers))
    return LatestStack(tuple(reversed(frames)), share, sampled.threads.same_stack_s(row.tid))


def own_line(stack: LatestStack | None) -> Frame | None:
    """The innermost line of the user's code."""
    return next((frame for frame in stack.frames if frame.user), None) if stack is not None else None


def stack_lines(stack: LatestStack, code: Code, width: int) -> list[Line]:
    """The frames, innermost first; under the innermost line of the user's code the lines around it."""
    head = [Span("latest stack", "strong"), Span(", innermost first", "dim")]
    if stack.share < 0.995:
        head.append(Span(f" · {percent(stack.share)} of the last samples", "dim"))
    if stack.same_for_s is not None and stack.same_for_s >= STUCK_S:
        head += [Span("  "), Span(f" same stack for {duration(stack.same_for_s)} ", "warning badge")]
    lines: list[Line] = [(), tuple(head)]
    own = own_line(stack)
    spot = places_width(((frame.file, frame.line) for frame in stack.frames), width // 2)
    shown = list(stack.frames[:FRAMES_SHOWN])
    if own is not None and own not in shown:
        shown.append(own)
    for frame in shown:
        lines.append(frame_line(frame, spot, Span("▸ " if frame is own else "  ", "key bold")))
        if frame is own:
            lines += code_lines(code, frame.line)
    hidden = len(stack.frames) - len(shown)
    return [*lines, line((f"  … {hidden} more frames", "dim"))] if hidden > 0 else lines


def dump_lines(dump: Dump, tid: int, width: int) -> list[Line]:
    """All threads of a dump, the chosen one first; or why there is none."""
    lines: list[Line] = [(), (_DUMP_HEAD,)]
    if dump.trouble is not None:
        lines += paragraph(plain(dump.trouble), width, "warning", indent=2)
        return lines + (paragraph(f"→ {plain(dump.hint)}", width, "text", indent=2) if dump.hint else [])
    if not dump.threads:
        return [*lines, line(("  py-spy saw no Python thread", "dim"))]
    for thread in sorted(dump.threads, key=lambda each: each.tid != tid):
        lines += _dumped(thread, width, chosen=thread.tid == tid)
    return lines


def _dumped(thread: DumpThread, width: int, *, chosen: bool) -> list[Line]:
    flags = [Span(" holds the GIL ", "warning badge")] if thread.owns_gil else []
    state = "active" if thread.active else "idle"
    head = line(
        ("▸ " if chosen else "  ", "key bold"),
        (plain(thread.name), "strong"),
        (f" · tid {thread.tid} · {state}  " if thread.tid else f" · {state}  ", "dim"),
        *flags,
    )
    spot = places_width(((frame.file, frame.line) for frame in thread.frames), width // 2)
    rows: list[Line] = [head]
    for frame in thread.frames[:FRAMES_SHOWN]:
        where = place_column(frame.file, frame.line, spot)
        rows.append(line("    ", (where, "dim"), (f"{plain(frame.function)}()", "text")))
    hidden = len(thread.frames) - FRAMES_SHOWN
    return [*rows, line((f"    … {hidden} more frames", "dim"))] if hidden > 0 else rows


class ThreadSheet(Sheet):
    """One thread, live. ``D`` takes a dump; files are read, and py-spy is run, off this thread."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("D", "dump", show=False)]

    def __init__(self, row: ThreadRow, session: Session, closeup: CloseUp | None) -> None:
        super().__init__(f"Thread {own_id(row.tid)}", self._lines)
        self._row = row
        self._session = session
        self._closeup = closeup
        self._code = CodeAround(self, closeup)
        self._dump: Dump | None = None
        self._dumping: Worker[Dump] | None = None

    def update(self) -> None:
        """A tick passed: the row as it is now."""
        self._find_row()
        super().update()

    def action_dump(self) -> None:
        """Dump the stacks of all threads of the process once."""
        if self._closeup is None or self._dumping is not None:
            return
        closeup, pid = self._closeup, self._row.pid
        self._dumping = self.run_worker(lambda: closeup.dump(pid), thread=True, exit_on_error=False)
        super().update()

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """Code was read, or a dump has come."""
        if event.state not in (WorkerState.SUCCESS, WorkerState.ERROR):
            return
        if event.worker is self._dumping:
            self._dumping = None
            self._dump = event.worker.result or self._dump
            lines = self._lines(self.body.content_size.width)
            self.body.show_from(next((i for i, row in enumerate(lines) if _DUMP_HEAD in row), 0))
        super().update()

    def _find_row(self) -> None:
        mine = (self._row.pid, self._row.tid)
        rows = self._session.over("recent").threads_of(self._row.pid)
        found = next((row for row in rows if (row.pid, row.tid) == mine), None)
        if found is not None and self._row.count > found.count:  # several that the table shows as one
            return
        self._row = found or replace(self._row, ended=True)

    def _lines(self, width: int) -> list[Line]:
        stack = latest_stack(self._session, self._row)
        own = own_line(stack)
        drawn = stack_lines(stack, self._code_of(own), width) if stack is not None else _no_stack()
        drawn += self._dump_part(width)
        sampled = self._session.samples.get(self._row.pid)
        hot_lines = by_line(sampled.now().hot_lines()) if sampled is not None else []
        return thread_lines(self._row, hot_lines, width, drawn)

    def _dump_part(self, width: int) -> list[Line]:
        if self._dumping is not None:
            return [(), line(("py-spy reads the process …", "dim"))]
        if self._dump is not None:
            return dump_lines(self._dump, self._row.tid, width)
        return [(), line(("D", "key bold"), (" takes a dump of all threads now", "dim"))]

    def _code_of(self, own: Frame | None) -> Code:
        if own is None:
            return ()
        return self._code.of(own.file, own.line, self._session.process(self._row.pid))


def _no_stack() -> list[Line]:
    why = "no stack in the last samples: a native thread, one that sleeps all the time, or one not sampled yet"
    return [(), line((why, "dim"))]
