"""The threads table: the state and the line of each thread; one thread as a row, and in full as a sheet."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from rich.cells import cell_len
from textual.binding import Binding, BindingType
from textual.events import Click
from textual.message import Message

from tuimon.native_code import NativeUse, kind_of
from tuimon.node_ids import own_id
from tuimon.records import Process
from tuimon.session.stacks.samples import HotLine
from tuimon.session.threads import ThreadRow, merged_row
from tuimon.text import code_place, full_place, whole_number
from tuimon.threshold import NEARLY_ALL, TINY
from tuimon.views.format import ABSENT, advice, code, percent, phase_name, plain
from tuimon.views.tui.drawing.charts import bar, layers
from tuimon.views.tui.drawing.lines import (
    MIN_TEXT,
    Column,
    Line,
    Span,
    clipped,
    clipped_left,
    column,
    head_line,
    line,
    notes_lines,
    padded,
    place_column,
    places_width,
    row_line,
    shown_columns,
)
from tuimon.views.tui.drawing.moving import MovingPane, Rows

if TYPE_CHECKING:
    from tuimon.diagnosis.finding import Finding
    from tuimon.views.report.report import Parts

_STATE_ROLES = {"running": "benign", "disk": "critical", "stopped": "warning"}


def thread_columns(rows: Sequence[ThreadRow], width: int) -> list[Column[ThreadRow]]:
    """The columns for these rows that fit the screen."""
    role = max((cell_len(role_text(row)) for row in rows), default=4)
    role = max(10, min(role, 24 if width >= 90 else 20)) + 2
    pid = 8 if width >= 104 and len({row.pid for row in rows}) > 1 else 0
    tid = 8 if width >= 60 else 0
    gauge = 12 if width >= 100 else 0
    delay = 7 if width >= 96 else 0
    gil = 5 if width >= 96 and any(row.gil_ratio is not None for row in rows) else 0
    runs = 30 if width >= 130 and any(row.native for row in rows) else 0
    fixed = role + pid + tid + 7 + gauge + delay + bool(delay) + gil + bool(gil) + 10 + runs
    rest = max(width - fixed, 0)
    spot = places_width((row.place for row in rows if row.place), min(42, rest))
    spot = min(max(spot, len("where") + 2), rest)
    spot = rest if rest - spot < MIN_TEXT else spot
    return shown_columns(
        Column("role", role, lambda row: (clipped(role_text(row), role - 2), _role_style(row))),
        Column("pid", pid, lambda row: (str(own_id(row.pid)), "dim")),
        Column("tid", tid, lambda row: (str(own_id(row.tid)) if row.count == 1 else "", "dim")),
        Column("cpu", 6, lambda row: (percent(row.cpu_ratio), "dim" if _is_idle(row) else "strong"), ">", 1),
        Column("", gauge, lambda row: _gauge(row, gauge)),
        Column(
            "delay",
            delay,
            lambda row: (percent(row.delay_ratio), "warning" if (row.delay_ratio or 0.0) >= 0.1 else "dim"),
            ">",
            1,
        ),
        Column("gil", gil, lambda row: (percent(row.gil_ratio) if row.gil_ratio is not None else "", "dim"), ">", 1),
        Column(" state", 10, lambda row: (f" {_state(row)}", _STATE_ROLES.get(_state(row), "dim"))),
        Column("runs", runs, lambda row: (runs_text(row.native, runs - 2), "dim")),
        Column("where", rest, lambda row: _where_cells(row, spot, rest - spot, says_runs=not runs)),
    )


def _is_idle(row: ThreadRow) -> bool:
    return (row.cpu_ratio or 0.0) < 0.005


def _gauge(row: ThreadRow, width: int) -> Line:
    ratio = row.cpu_ratio or 0.0
    return line(" ", *layers([(ratio, "━", "chart-edge" if ratio >= 0.8 else "chart-body")], width - 2, behind=1))


def _state(row: ThreadRow) -> str:
    return "ended" if row.ended else plain(row.state)


def runs_text(native: NativeUse, width: int) -> str:
    """The libraries that most of the CPU time goes to, as many as there is room for: ``CUDA driver 97 %``."""
    text = ""
    for name, share in native.by_library().items():
        wait = "waiting in " if kind_of(name) == "pool" else ""
        longer = f"{text}{text and ', '}{wait}{plain(name)} {percent(share)}"
        if share < TINY or cell_len(longer) > width:
            break
        text = longer
    return text


def _where_cells(row: ThreadRow, spot: int, room: int, *, says_runs: bool) -> Line:
    """A thread's place and line of code, or else its function; without a place, the libraries that it runs."""
    if row.place is None and says_runs and (runs := runs_text(row.native, spot + room)):
        return line((column(runs, spot + room), "dim"))
    if row.place is None:
        return line((column(ABSENT, spot), "faint"), (column("", room), "dim"))
    return (*place_column(row.place, spot), Span(column(code(row.place), room), "text" if row.place.source else "dim"))


def role_text(row: ThreadRow) -> str:
    """The rank, the role, and how many threads the row stands for."""
    rank = f"rank {row.rank}: " if row.rank is not None else ""
    return rank + plain(row.role or row.name) + (f" ×{row.count}" if row.count > 1 else "")


def _role_style(row: ThreadRow) -> str:
    if row.role in ("main", "training"):
        return "text" if row.ended else "strong"
    return "dim" if _is_idle(row) else "text"


def thread_lines(row: ThreadRow, hot: Sequence[HotLine], width: int, stack: Sequence[Line] = ()) -> list[Line]:
    """One thread in full with its ``stack``, and the lines with most samples of its process."""
    facts = [
        ("role", plain(row.role)),
        *((("rank", str(row.rank)),) if row.rank is not None else ()),
        ("name", plain(row.name)),
        ("pid", str(own_id(row.pid))),
        ("tid", str(own_id(row.tid)) if row.count == 1 else f"{row.count} threads folded into one row"),
        ("cpu", f"{percent(row.cpu_ratio, 1)} of one core"),
        ("delay", f"{percent(row.delay_ratio, 1)} of the time ready to run, but no core was free"),
        ("state", "ended" if row.ended else plain(row.state)),
    ]
    if row.gil_ratio is not None:
        facts.append(("GIL", f"held {percent(row.gil_ratio)} of the time, within a tenth"))
    if row.faults is not None:
        waited = f", {row.faults.major_hz:,.0f} read from a disk" if row.faults.major_hz >= 1 else ""
        facts.append(("faults", f"{row.faults.minor_hz:,.0f} new pages of memory a second{waited}"))
    lines = [line((column(name, 10), "dim"), (text, "text")) for name, text in facts]
    lines += _native_lines(row.native, width) if row.native else []
    if row.place is None:
        where = Span("no Python frame seen: a native thread, or not sampled yet", "dim")
    else:
        path = clipped_left(full_place(row.place), max(width - 10, 10))
        where = Span(path, "key", (row.place.file, row.place.line))
    lines += [line((column("where", 10), "dim"), where), *stack]
    if hot:
        lines += [(), line(("lines with most samples in this process", "strong"))]
        lines += hot_lines(hot[:12], width, gauge=10)
    return lines


def _native_lines(native: NativeUse, width: int) -> list[Line]:
    """The code that a thread runs, by phase: bars of its CPU time, and the libraries that use it."""
    lines = [(), line(("what it runs, Python or not", "strong"), (f"  by {native.total()} samples", "dim"))]
    for phase, part in native.by_phase().items():
        share = part.total() / native.total()
        if share >= TINY:
            name = column(phase_name(phase) or "no phase", 14)
            figures = f"{percent(share):>5}  ", (bar(share, 10), "chart-edge"), "  "
            lines.append(line((name, "dim"), *figures, (runs_text(part, width - 33), "text")))
    return [*lines, ()]


def hot_lines(hot: Sequence[HotLine], width: int, gauge: int = 0) -> list[Line]:
    """Lines by their share of samples, with a bar of ``gauge`` cells: share, place and code."""
    spot = places_width((row.place for row in hot), max(width // 2, 20))
    return [
        line(
            (column(percent(row.share), 5, ">"), "strong"),
            *(line(" ", (bar(row.share, gauge), "chart-edge")) if gauge else ()),
            "  ",
            *place_column(row.place, spot),
            (code(row.place), "text"),
        )
        for row in hot
    ]


_ROLES = ("training", "main", "worker", "pin-memory", "autograd")


class ThreadsState(NamedTuple):
    """The rows of all threads, unfiltered, and the sources' notices of gaps."""

    rows: tuple[ThreadRow, ...]
    notes: tuple[str, ...]
    processes: tuple[Process, ...] = ()
    ended: bool = False  # the run


class ThreadsPane(MovingPane[ThreadsState]):
    """A table with a cursor that stays on its thread, a filter and a sort."""

    sources = ("stacks", "native", "processes")

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "open", show=False), Binding("right", "open", show=False)]

    class ThreadOpened(Message):
        """The user opened a thread's sheet."""

        def __init__(self, row: ThreadRow) -> None:
            super().__init__()
            self.row = row

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.filter_text = ""
        self._sort = 0
        self._rows: Rows[ThreadRow] = Rows(lambda row: (row.pid, row.tid))
        self._rows_of: tuple[object, ...] = ()  # the input that the rows were made from

    def collect(self, now: Parts, findings: Sequence[Finding]) -> ThreadsState:
        """All threads of the run: as they are, or, once it has ended, with means of the training."""
        sampling, notices = now.view.sampling(), self.notices(now)
        if sampling is not None and (sampling.coverage_ratio or 0.0) >= NEARLY_ALL:  # no notice says "no samples" then
            notices = [notice for notice in notices if (notice.source, notice.level) != ("stacks", "warning")]
        notes = [advice(notice.message, notice.hint) for notice in notices]
        session = now.session
        rows, processes = tuple(now.view.threads()), tuple(session.processes())
        return ThreadsState(rows, tuple(notes), processes, ended=session.exit is not None)

    def shown(self) -> Sequence[ThreadRow]:
        """The threads that pass the filter, sorted; helpers of one kind are merged."""
        state, made_from = self.state, (self.state, self.filter_text, self._sort)
        if state is not None and made_from != self._rows_of:
            self._rows_of = made_from
            order = SORTS[self._sort][1]
            rows = sorted((row for row in state.rows if matches(row, self.filter_text)), key=order)
            self._rows.rows = sorted(with_helpers_folded(rows, state.processes), key=order)
        return self._rows.rows

    def draw(self, state: ThreadsState, width: int, height: int) -> list[Line]:
        rows = self.shown()
        notes = notes_lines(state.notes, width, height)
        room = max(height - 1 - len(notes), 1)
        visible = self._rows.in_view(room)
        # with more rows only those in view decide the columns' widths
        columns = thread_columns(rows if len(rows) <= 200 else [row for row, _ in visible], width)
        lines = [head_line(columns, SORTS[self._sort][0])]
        lines += [row_line(columns, row, cursor=cursor and self.has_focus) for row, cursor in visible]
        if not rows:
            pattern = f" “{plain(self.filter_text)}” "
            no_match = line(("no thread matches", "dim"), (pattern, "text"), ("(Esc clears)", "dim"))
            is_filtered = bool(state.rows and self.filter_text)
            none_seen = line((f"no thread seen{'' if state.ended else ' yet'}", "dim"))
            lines.append(no_match if is_filtered else none_seen)
        return [*padded(lines, max(height - len(notes), len(lines))), *notes]

    def rows_wanted(self, width: int, most: int) -> int:
        notes = self.state.notes if self.state is not None else ()
        return 1 + len(self.shown()) + len(notes_lines(notes, width, most))

    def heading(self, state: ThreadsState) -> tuple[Span, ...]:
        """The number of threads, the number that pass the filter, and their order."""
        total = sum(row.count for row in state.rows)
        spans = [Span("4 ", "key"), Span("CPU threads", "text bold"), Span(f" · {total}", "dim")]
        if self.filter_text:
            shown = sum(row.count for row in self.shown())
            spans.append(Span(f" · {shown} match “{plain(self.filter_text)}”", "warning"))
        if self._sort:
            spans.append(Span(f" · by {SORTS[self._sort][0]}", "dim"))
        return tuple(spans)

    def filter_by(self, text: str) -> None:
        """Show only threads whose role, name, state or place contains the text."""
        self.filter_text = text
        self.redraw(force=True)

    def next_sort(self) -> None:
        self._sort = (self._sort + 1) % len(SORTS)
        self.redraw(force=True)

    def chosen(self) -> ThreadRow | None:
        """The thread under the cursor, if the user has put it there."""
        return self._rows.selected if self._rows.key is not None else None

    def action_move(self, rows_down: int) -> None:
        self._rows.move(rows_down)
        self.redraw(force=True)

    def action_open(self) -> None:
        row = self._rows.selected
        if row is not None:
            self.post_message(self.ThreadOpened(row))

    def on_click(self, event: Click) -> None:
        """A click puts the cursor there; a second one opens the thread."""
        opens = self._rows.click(int(event.get_content_offset_capture(self).y) - 1)
        self.redraw(force=True)
        if opens:
            self.action_open()


def _by_role(row: ThreadRow) -> tuple[int, str, int, int, float]:
    """Sort key of a thread: the training thread first, workers by number, pin-memory, autograd; by rank, then CPU."""
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
    ("where", lambda row: code_place(row.place) if row.place else "\uffff"),
)


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
    """The rows in their order, each group of helpers as one row in the place of its first: ``compile workers ×16``."""
    roles: dict[int, str] = {}
    for process in processes:
        if process.role in ("other", "child"):
            name = process.command[0].rpartition("/")[2] if process.command else ""
            compiles = any(_COMPILE_WORKER in word for word in process.command)
            roles[process.pid] = "compile workers" if compiles else name
    groups: dict[Hashable, list[ThreadRow]] = {}
    for row in rows:
        key: Hashable = (row.pid, row.ended, row.role) if row.role in _ALIKE else (row.pid, row.tid)
        if row.pid in roles:
            key = "helper", row.ended, roles[row.pid]
        groups.setdefault(key, []).append(row)
    return [merged_row(alike, roles.get(alike[0].pid, "")) for alike in groups.values()]
