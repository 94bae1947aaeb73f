"""The threads table: who runs, who waits, and at which line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from textual.binding import Binding, BindingType
from textual.events import Click, MouseScrollDown, MouseScrollUp
from textual.message import Message

from tuimon.records import Process
from tuimon.session.rows import ThreadRow
from tuimon.views.format import place, plain
from tuimon.views.tui.drawing.lines import Line, Span, line
from tuimon.views.tui.drawing.pane import Pane
from tuimon.views.tui.panes.process_tree import WHOLE, TreeRow, folded_at_first, tree_rows
from tuimon.views.tui.panes.thread_rows import header_line, layout, thread_line

if TYPE_CHECKING:
    from tuimon.diagnosis.finding import Finding
    from tuimon.session.session import Session

#: Ways to sort, cycled by ``s``: (the column it marks, key). Any: whatever can be compared.
SORTS: tuple[tuple[str, Callable[[ThreadRow], Any]], ...] = (
    ("role", lambda row: _by_role(row)),  # noqa: PLW0108  (defined below)
    ("cpu", lambda row: -(row.cpu_ratio or 0.0)),
    ("delay", lambda row: -(row.delay_ratio or 0.0)),
    ("where", lambda row: place(row.place.file, row.place.line) if row.place else "\uffff"),
)
LAYOUT_ROWS = 200  # beyond, the columns follow the rows in view
_ROLES = ("main", "worker", "pin-memory", "autograd")


class ThreadsPicture(NamedTuple):
    """The rows of all threads, unfiltered, and what the sources have to say."""

    rows: tuple[ThreadRow, ...]
    notes: tuple[str, ...]
    processes: tuple[Process, ...] = ()


class ThreadsPane(Pane[ThreadsPicture]):
    """A table with a cursor that stays on its thread, a filter and a sort."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", show=False),
        Binding("down,j", "move(1)", show=False),
        Binding("pageup", "move(-10)", show=False),
        Binding("pagedown", "move(10)", show=False),
        Binding("home,g", "move(-100000)", show=False),
        Binding("end,G", "move(100000)", show=False),
        Binding("enter", "open", show=False),
        Binding("right", "unfold", show=False),
        Binding("left", "fold", show=False),
        Binding("T", "tree", show=False),
    ]

    class Opened(Message):
        """The user wants to see one thread whole."""

        def __init__(self, row: ThreadRow) -> None:
            super().__init__()
            self.row = row

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.filter_text = ""
        self.sort = 0
        self.by_process = False  # by process, with folding
        self._folded: set[int] = set()
        self._shown: list[TreeRow] = []
        self._shown_for: tuple[object, ...] = ()
        self._cursor: tuple[int, int] | None = None
        self._top = 0

    def collect(self, session: Session, findings: Sequence[Finding]) -> ThreadsPicture:
        """All threads of the run."""
        notes = []
        for source in ("stacks", "processes"):
            notice = session.notices.get(source)
            if notice is not None and notice.level != "ok":
                notes.append(plain(notice.message) + (f" – {plain(notice.hint)}" if notice.hint else ""))
        return ThreadsPicture(tuple(session.threads()), tuple(notes), tuple(session.processes()))

    def rows(self) -> list[ThreadRow]:
        """What passes the filter, sorted."""
        if self.picture is None:
            return []
        rows = [row for row in self.picture.rows if matches(row, self.filter_text)]
        return sorted(rows, key=SORTS[self.sort][1])

    def shown(self) -> list[TreeRow]:
        """What can be scrolled through: the threads, or processes with those of their threads that are not folded."""
        if self.picture is None:
            return []
        known = (self.picture, self.filter_text, self.sort, self.by_process, frozenset(self._folded))
        if known != self._shown_for:
            self._shown_for = known
            rows = self.rows()
            self._shown = (
                tree_rows(rows, self.picture.processes, self._folded)
                if self.by_process
                else [TreeRow(row, row) for row in rows]
            )
        return self._shown

    def draw(self, picture: ThreadsPicture, width: int, height: int) -> list[Line]:
        """Header, the visible rows, notes."""
        rows = [row.drawn for row in self.shown()]
        notes = [line((note, "dim")) for note in picture.notes[: 1 if height < 12 else 2]]
        room = max(height - 1 - len(notes), 1)
        at = self._position(rows)
        self._top = max(0, min(self._top, len(rows) - room))
        if at is not None:
            self._top = min(max(self._top, at - room + 1), at)
        visible = rows[self._top : self._top + room]
        columns = layout(rows if len(rows) <= LAYOUT_ROWS else visible, width)
        lines = [header_line(columns, SORTS[self.sort][0])]
        for index, row in enumerate(visible, self._top):
            lines.append(thread_line(row, columns, cursor=index == at and self.has_focus))
        if not rows:
            lines.append(_empty(picture, self.filter_text))
        lines += [()] * (height - len(lines) - len(notes))
        return [*lines, *notes]

    def heading(self, picture: ThreadsPicture) -> tuple[Span, ...]:
        """How many threads, and what of them is shown."""
        total = sum(row.count for row in picture.rows)
        spans = [Span("4 ", "key"), Span("CPU threads", "text bold"), Span(f" · {total}", "dim")]
        if self.filter_text:
            shown = sum(row.count for row in self.rows())
            spans.append(Span(f" · {shown} match “{plain(self.filter_text)}”", "warning"))
        if self.by_process:
            spans.append(Span(" · by process", "dim"))
        if self.sort:
            spans.append(Span(f" · by {SORTS[self.sort][0]}", "dim"))
        return tuple(spans)

    def filter_by(self, text: str) -> None:
        """Show only threads whose role, name, state or place contains the text."""
        self.filter_text = text
        self.redraw(force=True)

    def action_tree(self) -> None:
        """By process, or all threads in one list."""
        self.by_process = not self.by_process
        if self.by_process and self.picture is not None:
            self._folded = folded_at_first(self.picture.rows, self.picture.processes)
        self.redraw(force=True)

    def action_fold(self) -> None:
        """Fold the process; from a thread: to its process."""
        row = self._selected()
        if row is not None and self.by_process:
            if row.is_process:
                self._folded.add(row.drawn.pid)
            self._cursor = (row.drawn.pid, WHOLE)
            self.redraw(force=True)

    def action_unfold(self) -> None:
        """Show the threads of the process; open a thread."""
        row = self._selected()
        if row is not None and row.is_process:
            self._folded.discard(row.drawn.pid)
            self.redraw(force=True)
        else:
            self.action_open()

    def next_sort(self) -> None:
        """Sort by the next column."""
        self.sort = (self.sort + 1) % len(SORTS)
        self.redraw(force=True)

    def action_move(self, rows_down: int) -> None:
        """Move the cursor."""
        rows = [row.drawn for row in self.shown()]
        if not rows:
            return
        at = self._position(rows)
        at = 0 if at is None else max(0, min(len(rows) - 1, at + rows_down))
        self._cursor = _key(rows[at])
        self.redraw(force=True)

    def selected(self) -> ThreadRow | None:
        """The thread under the cursor; of a process its main thread."""
        row = self._selected()
        return None if row is None else row.thread

    def _selected(self) -> TreeRow | None:
        rows = self.shown()
        at = self._position([row.drawn for row in rows])
        return None if at is None else rows[at]

    def action_open(self) -> None:
        """Open the thread under the cursor; fold or unfold a process."""
        row = self._selected()
        if row is None:
            return
        if row.is_process:
            self._folded ^= {row.drawn.pid}
            self.redraw(force=True)
        else:
            self.post_message(self.Opened(row.thread))

    def on_click(self, event: Click) -> None:
        """A click puts the cursor there; a second one opens the thread."""
        rows = [row.drawn for row in self.shown()]
        index = self._top + int(event.get_content_offset_capture(self).y) - 1
        if 0 <= index < len(rows):
            same = self._cursor == _key(rows[index])
            self._cursor = _key(rows[index])
            self.redraw(force=True)
            if same:
                self.action_open()

    def on_mouse_scroll_down(self, event: MouseScrollDown) -> None:
        """The wheel moves the cursor."""
        self.action_move(3)

    def on_mouse_scroll_up(self, event: MouseScrollUp) -> None:
        """The wheel moves the cursor."""
        self.action_move(-3)

    def on_focus(self) -> None:
        """Show the cursor."""
        self.redraw(force=True)

    def on_blur(self) -> None:
        """Hide the cursor."""
        self.redraw(force=True)

    def _position(self, rows: Sequence[ThreadRow]) -> int | None:
        for index, row in enumerate(rows):
            if _key(row) == self._cursor:
                return index
        return 0 if rows else None


def _key(row: ThreadRow) -> tuple[int, int]:
    return row.pid, row.tid


def _by_role(row: ThreadRow) -> tuple[int, int, float]:
    """What matters to a training first: main, workers by number, pin-memory, autograd; then who uses CPU."""
    word, _, number = row.role.partition(" ")
    rank = _ROLES.index(word) if word in _ROLES else len(_ROLES)
    if number.isdigit():
        return rank + 10 * row.ended, int(number), 0.0
    return rank + 10 * row.ended, 0, -(row.cpu_ratio or 0.0)


def matches(row: ThreadRow, text: str) -> bool:
    """Whether a thread's row contains the text, whatever its case."""
    if not text:
        return True
    where = f"{row.place.file}:{row.place.line} {row.place.function} {row.place.source}" if row.place else ""
    return text.lower() in f"{row.role} {row.name} {row.tid} {row.pid} {row.state} {where}".lower()


def _empty(picture: ThreadsPicture, filter_text: str) -> Line:
    if picture.rows and filter_text:
        return line(("no thread matches", "dim"), (f" “{plain(filter_text)}” ", "text"), ("(Esc clears)", "dim"))
    return line(("no thread seen yet", "dim"))
