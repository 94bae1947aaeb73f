"""The sheet of one thread: its latest stack with the code around its line."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace
from textual.worker import Worker, WorkerState

from tuimon.node_ids import own_id
from tuimon.records import Frame
from tuimon.session.stacks.call_tree import program_part
from tuimon.session.threads import ThreadRow
from tuimon.views.format import duration, percent
from tuimon.views.tui.drawing.lines import Line, Span, line, places_width
from tuimon.views.tui.panes.thread_rows import thread_lines
from tuimon.views.tui.sheets.code_around import Code, CodeAround, code_lines, frame_line
from tuimon.views.tui.sheets.sheet import Sheet

if TYPE_CHECKING:
    from tuimon.session.session import Session
    from tuimon.sources.stacks.closeup import CloseUp

FRAMES_SHOWN = 60
#: From here on it is shown how long a thread's stack has not changed.
STUCK_S = 5.0

_NO_STACK = "no stack in the last samples: a native thread, one that sleeps all the time, or one not sampled yet"


class LatestStack(NamedTuple):
    """The most frequent stack of a thread in its latest window of samples."""

    frames: tuple[Frame, ...]  # innermost first
    share: float  # share of the window's samples
    same_for_s: float | None


def latest_stack(session: Session, row: ThreadRow) -> LatestStack | None:
    """The latest stack of a thread; None where no sample is known."""
    sampled = session.stacks.get(row.pid)
    found = sampled.threads.stack_of(row.tid) if sampled is not None else None
    if sampled is None or found is None:
        return None
    node, share = found
    return LatestStack(tuple(reversed(program_part(node.frames))), share, sampled.threads.same_stack_s(row.tid))


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


class ThreadSheet(Sheet):
    """One thread, live; files are read off this thread."""

    def __init__(self, row: ThreadRow, session: Session, closeup: CloseUp | None) -> None:
        super().__init__(f"Thread {own_id(row.tid)}", self._lines)
        self._row = row
        self._session = session
        self._code = CodeAround(self, closeup)

    def update(self) -> None:
        """A tick passed: the row as it is now."""
        mine = (self._row.pid, self._row.tid)
        rows = self._session.over("recent").threads_of(self._row.pid)
        found = next((row for row in rows if (row.pid, row.tid) == mine), None)
        if found is None or self._row.count <= found.count:  # else the table shows several as one
            self._row = found or replace(self._row, ended=True)
        super().update()

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """Code was read."""
        if event.state in (WorkerState.SUCCESS, WorkerState.ERROR):
            super().update()

    def _lines(self, width: int) -> list[Line]:
        stack = latest_stack(self._session, self._row)
        own = own_line(stack)
        code = self._code.of(own.file, own.line, self._session.process(self._row.pid)) if own is not None else ()
        drawn = stack_lines(stack, code, width) if stack is not None else [(), line((_NO_STACK, "dim"))]
        sampled = self._session.stacks.get(self._row.pid)
        hot_lines = sampled.over(now=True).without_imports.lines() if sampled is not None else []
        return thread_lines(self._row, hot_lines, width, drawn)
