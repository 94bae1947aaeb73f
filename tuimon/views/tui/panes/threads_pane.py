"""The threads table: who runs, who waits, and at which line."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace
from textual.binding import Binding, BindingType
from textual.events import Click
from textual.message import Message

from tuimon.node_ids import own_id
from tuimon.records import Notice, Process
from tuimon.session.series import mean_of_known
from tuimon.session.threads import ThreadRow
from tuimon.text import whole_number
from tuimon.views.format import advice, place, plain
from tuimon.views.tui.drawing.lines import Line, Span, filled, head_line, line, notes_lines, row_line
from tuimon.views.tui.drawing.moving import MOVE_KEYS, Moving, RowCursor
from tuimon.views.tui.drawing.pane import Pane
from tuimon.views.tui.panes.thread_rows import thread_columns

if TYPE_CHECKING:
    from tuimon.diagnosis.finding import Finding
    from tuimon.session.session import Session

#: Share of the time from which samples refute a notice that there are none: our choice, a window's gap now and then.
_COVERED = 0.9
MEASURED_ROWS = 200  # with more rows only those in view decide the columns' widths

_ROLES = ("training", "main", "worker", "pin-memory", "autograd")


class ThreadsState(NamedTuple):
    """The rows of all threads, unfiltered, and what the sources report of gaps."""

    rows: tuple[ThreadRow, ...]
    notes: tuple[str, ...]
    processes: tuple[Process, ...] = ()


class ThreadsPane(Moving, Pane[ThreadsState]):
    """A table with a cursor that stays on its thread, a filter and a sort."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *MOVE_KEYS,
        Binding("enter", "open", show=False),
        Binding("right", "open", show=False),
    ]

    class ThreadOpened(Message):
        """The user opened a thread's sheet."""

        def __init__(self, row: ThreadRow) -> None:
            super().__init__()
            self.row = row

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self._list = ThreadList()
        self._cursor: RowCursor[tuple[int, int]] = RowCursor()  # on a pid and a tid

    def collect(self, session: Session, findings: Sequence[Finding]) -> ThreadsState:
        """All threads of the run: as they are, or, once it has ended, with means of the training."""
        notices = (session.notices.get(source) for source in ("stacks", "processes"))
        notes = [advice(n.message, n.hint) for n in notices if n is not None and not _is_refuted(n, session)]
        return ThreadsState(tuple(session.shown().threads()), tuple(notes), tuple(session.processes()))

    @property
    def filter_text(self) -> str:
        """The text that threads are filtered by."""
        return self._list.filter_text

    def shown(self) -> list[ThreadRow]:
        """The rows to scroll through."""
        return self._list.rows(self.state.rows, self.state.processes) if self.state is not None else []

    def draw(self, state: ThreadsState, width: int, height: int) -> list[Line]:
        """Header, the visible rows, notes."""
        rows = self.shown()
        notes = notes_lines(state.notes, width, height)
        room = max(height - 1 - len(notes), 1)
        at = self._cursor.scroll(_keys(rows), room)
        top = self._cursor.top
        visible = rows[top : top + room]
        columns = thread_columns(rows if len(rows) <= MEASURED_ROWS else visible, width)
        lines = [head_line(columns, self._list.sorted_by)]
        for index, row in enumerate(visible, top):
            lines.append(row_line(columns, row, cursor=index == at and self.has_focus))
        if not rows:
            pattern = f" “{plain(self.filter_text)}” "
            no_match = line(("no thread matches", "dim"), (pattern, "text"), ("(Esc clears)", "dim"))
            is_filtered = bool(state.rows and self.filter_text)
            lines.append(no_match if is_filtered else line(("no thread seen yet", "dim")))
        return [*filled(lines, max(height - len(notes), len(lines))), *notes]

    def heading(self, state: ThreadsState) -> tuple[Span, ...]:
        """How many threads, and what of them is shown."""
        total = sum(row.count for row in state.rows)
        spans = [Span("4 ", "key"), Span("CPU threads", "text bold"), Span(f" · {total}", "dim")]
        if self.filter_text:
            shown = sum(row.count for row in self.shown())
            spans.append(Span(f" · {shown} match “{plain(self.filter_text)}”", "warning"))
        if self._list.sorted_by != "role":
            spans.append(Span(f" · by {self._list.sorted_by}", "dim"))
        return tuple(spans)

    def filter_by(self, text: str) -> None:
        """Show only threads whose role, name, state or place contains the text."""
        self._list.filter_text = text
        self.redraw(force=True)

    def next_sort(self) -> None:
        """Sort by the next column."""
        self._list.sort_by_next()
        self.redraw(force=True)

    def selected(self) -> ThreadRow | None:
        """The thread under the cursor."""
        rows = self.shown()
        return rows[self._cursor.index(_keys(rows))] if rows else None

    def chosen(self) -> ThreadRow | None:
        """The thread under the cursor, if somebody has put it there."""
        return self.selected() if self._cursor.key is not None else None

    def action_move(self, rows_down: int) -> None:
        """Move the cursor."""
        rows = self.shown()
        if rows:
            self._cursor.move(_keys(rows), rows_down)
            self.redraw(force=True)

    def action_open(self) -> None:
        """Open the thread under the cursor."""
        row = self.selected()
        if row is not None:
            self.post_message(self.ThreadOpened(row))

    def on_click(self, event: Click) -> None:
        """A click puts the cursor there; a second one opens the thread."""
        keys = _keys(self.shown())
        index = self._cursor.row_at(int(event.get_content_offset_capture(self).y) - 1, len(keys))
        if index is None:
            return
        same = self._cursor.key == keys[index]
        self._cursor.key = keys[index]
        self.redraw(force=True)
        if same:
            self.action_open()


def _is_refuted(notice: Notice, session: Session) -> bool:
    """True if there are samples of nearly all the time where a notice says that there are none."""
    if notice.source != "stacks" or notice.level != "warning":
        return False
    sampling = session.shown().sampling()
    return sampling is not None and (sampling.coverage_ratio or 0.0) >= _COVERED


def _keys(rows: Sequence[ThreadRow]) -> list[tuple[int, int]]:
    return [(row.pid, row.tid) for row in rows]


def _by_role(row: ThreadRow) -> tuple[int, str, int, int, float]:
    """Its place in the list: the training thread first, workers by number, pin-memory, autograd; by rank, then CPU."""
    order = _ROLES.index(row.kind) if row.kind in _ROLES else len(_ROLES)
    whose, _, last = row.role.rpartition(" ")
    number = whole_number(last)
    if number is not None:
        return order + 10 * row.ended, whose.rpartition("worker")[0], number, row.rank or 0, 0.0
    return order + 10 * row.ended, "", 0, row.rank or 0, -(row.cpu_ratio or 0.0)


#: Ways to sort, cycled by ``s``: (the column it marks, key). Any: whatever can be compared.
SORTS: tuple[tuple[str, Callable[[ThreadRow], Any]], ...] = (
    ("role", _by_role),
    ("cpu", lambda row: -(row.cpu_ratio or 0.0)),
    ("delay", lambda row: -(row.delay_ratio or 0.0)),
    ("where", lambda row: place(row.place.file, row.place.line) if row.place else "\uffff"),
)


class ThreadList(Struct):
    """The user's choice of threads: filter and order."""

    filter_text: str = ""
    _sort: int = 0
    _rows: list[ThreadRow] = field(default_factory=list)
    _rows_of: tuple[object, ...] = ()  # the input that ``_rows`` was made from

    @property
    def sorted_by(self) -> str:
        """The column that the threads are sorted by."""
        return SORTS[self._sort][0]

    def rows(self, threads: Sequence[ThreadRow], processes: Sequence[Process]) -> list[ThreadRow]:
        """The threads that pass the filter, sorted, and helpers that are alike as one."""
        made_from = (threads, processes, self.filter_text, self._sort)
        if made_from != self._rows_of:
            self._rows_of = made_from
            order = SORTS[self._sort][1]
            rows = sorted((row for row in threads if matches(row, self.filter_text)), key=order)
            self._rows = sorted(with_helpers_folded(rows, processes), key=order)
        return self._rows

    def sort_by_next(self) -> None:
        """Sort by the next column."""
        self._sort = (self._sort + 1) % len(SORTS)


def matches(row: ThreadRow, text: str) -> bool:
    """True if a thread's row contains the text, whatever its case."""
    if not text:
        return True
    where = f"{row.place.file}:{row.place.line} {row.place.function} {row.place.source}" if row.place else ""
    rank = f"rank {row.rank}: " if row.rank is not None else ""
    return (
        text.lower() in f"{rank}{row.role} {row.name} {own_id(row.tid)} {own_id(row.pid)} {row.state} {where}".lower()
    )


#: Roles of a process's own threads that share a row.
_ALIKE = ("native", "intra-op", "CUDA driver", "NCCL", "gloo", "watchdog")
#: The processes that torch.compile starts run this module.
_COMPILE_WORKER = "compile_worker"


def with_helpers_folded(rows: Sequence[ThreadRow], processes: Sequence[Process]) -> list[ThreadRow]:
    """The rows in their order, each group of helpers as one where its first stood: ``compile workers ×16``."""
    others = {process.pid: process for process in processes if process.role in ("other", "child")}
    groups: dict[Hashable, list[ThreadRow]] = {}
    for row in rows:
        helper = others.get(row.pid)
        key: Hashable = (row.pid, row.ended, row.role) if row.role in _ALIKE else (row.pid, row.tid)
        if helper is not None:
            key = "helper", row.ended, _program(helper)
        groups.setdefault(key, []).append(row)
    return [_folded(members, others.get(members[0].pid)) for members in groups.values()]


def _program(helper: Process) -> str:
    if any(_COMPILE_WORKER in word for word in helper.command):
        return "compile workers"
    return helper.command[0].rpartition("/")[2] if helper.command else ""


def _folded(members: Sequence[ThreadRow], helper: Process | None) -> ThreadRow:
    first = members[0]
    if len(members) == 1:
        return first
    cpu = [row.cpu_ratio for row in members if row.cpu_ratio is not None]
    return replace(
        first,
        role=(helper and _program(helper)) or first.role,
        cpu_ratio=sum(cpu) if cpu else None,
        delay_ratio=mean_of_known([row.delay_ratio for row in members]),
        state="running" if any(row.state == "running" for row in members) else first.state,
        place=None,
        count=sum(row.count for row in members),
        gil_ratio=None,
    )
