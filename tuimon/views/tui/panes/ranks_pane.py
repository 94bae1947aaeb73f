"""The Ranks pane: a row for each rank, the late ones first; it takes the place of all panes while it is open."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, ClassVar, NamedTuple, TypeVar

from rich.cells import cell_len
from textual.binding import Binding, BindingType
from textual.message import Message

from tuimon.node_ids import own_id
from tuimon.session.ranks import RankRow, TrainingRow, training_rows, with_utilisation
from tuimon.session.steps import StepStretch
from tuimon.text import code_place, plural
from tuimon.threshold import REPORTED
from tuimon.views.format import ABSENT, ms, percent, plain, size
from tuimon.views.report.report import compared_ranks
from tuimon.views.run_text import started_program
from tuimon.views.scale import Axis, mean, on_axis, spread
from tuimon.views.tui.drawing.charts import layers
from tuimon.views.tui.drawing.lines import (
    GAP,
    Column,
    Line,
    Span,
    clip,
    fitting_widths,
    head_line,
    justified,
    line,
    line_width,
    padded,
    row_line,
    shown_columns,
)
from tuimon.views.tui.drawing.moving import MovingPane, Rows, scrolled

if TYPE_CHECKING:
    from tuimon.diagnosis.finding import Finding
    from tuimon.views.report.report import Parts

#: The text and colour of each state that needs attention, the worst first.
_STATES = {
    "lost": ("lost", "critical"),
    "stopped": ("stopped", "warning"),
    "silent": ("silent", "warning"),
    "training": ("", "dim"),
    "starting": ("starting", "dim"),
    "ended": ("", "dim"),  # the run is over, for all ranks
}
_ORDER = {state: order for order, state in enumerate(_STATES)}
_SORTS: dict[str, Callable[[RankRow], tuple[float, ...]]] = {
    "late": lambda row: (_ORDER[row.state], -round((row.late_ratio or 0.0) / 0.05), row.rank),
    "rank": lambda row: (row.rank,),
    "wait": lambda row: (-(row.wait_ratio or 0.0), row.rank),
    "step": lambda row: (-(row.step_ms or 0.0), row.rank),
}
#: Own work is drawn solid, waiting in collectives hatched.
OWN, WAIT = "█", "░"
_RANK, _LATE, _WAIT, _STATE = 5, 10, 7, 15
_MIN_BAR, _MAX_BAR, _MIN_PLACE, _MAX_NODE = 10, 48, 20, 12
#: Cells of a training's command, and of the line that its first rank is at.
_MIN_COMMAND, _MAX_COMMAND, _MIN_AT = 12, 32, 16

#: Ranks from which the median is taken, evenly chosen: for a thousand it is the same at a twentieth of the cost.
_COMPARED = 64
#: (lateness as a share of the step, glyph, role) of a cell, from the highest down; less than 0.1 is nobody's fault.
_LEVELS = ((0.6, "█", "critical"), (0.4, "▇", "critical"), (0.2, "▅", "warning"), (0.1, "▃", "warning"))
_CALM, _GAP = Span("▁", "track"), Span(" ")

#: How late each rank was in each slot of the time axis, as a share of the step, by pid; None if no step ended.
Strips = dict[int, tuple[float | None, ...]]
Row = TypeVar("Row", bound=RankRow)


def rank_columns(
    rows: Sequence[RankRow], width: int, focus: int | None, late: Strips | None = None
) -> list[Column[RankRow]]:
    """The columns that fit: the bar and the line first, then the state, the GPU, the step time, memory.

    ``focus``: the process that all other panes show. ``late``: their course; without it, only the columns that show
    waits.
    """
    wait = _WAIT * any(row.wait_ratio is not None for row in rows)
    bars = 1 if late is None else 2
    room = width - _RANK - _LATE - wait - bars * (GAP + _MIN_BAR) - _MIN_PLACE
    wanted = _wanted(rows)
    if late is None:
        wanted |= {"step": 0, "memory": 0}
    shown, room = fitting_widths(wanted, room)
    more = max(0, min(room // 3, _MAX_BAR - _MIN_BAR))
    bar, course = _MIN_BAR + more, late or {}
    longest_ms = max((row.step_ms or 0.0 for row in rows), default=0.0)

    def lateness(row: RankRow) -> tuple[str, str]:
        if row.late_ms is None or not row.step_ms:
            return ABSENT, _loud(row, "dim")
        return f"~+{ms(row.late_ms)}" if row.late_ms >= 0.02 * row.step_ms else "·", _loud(row, "dim")

    def rank(row: RankRow) -> tuple[str, str]:
        return (f"▸{row.rank}", "key bold") if row.pid == focus else (str(row.rank), _loud(row, "text"))

    def waits(row: RankRow) -> tuple[str, str]:
        text = f"~{percent(row.wait_ratio)}" if row.wait_ratio is not None else ABSENT
        return text, "text" if (row.wait_ratio or 0.0) >= REPORTED else "dim"

    parts = f"a step  {WAIT} waits" if bars == 1 and bar >= 15 else "a step"
    return shown_columns(
        Column("rank", _RANK, rank, ">"),
        Column("late", _LATE, lateness, ">", GAP),
        Column(parts, bar, lambda row: _bar(row, bar, longest_ms)),
        Column("wait", wait, waits, ">"),
        *_shared(rows, shown),
        Column(
            "  over time", (GAP + bar) * (bars > 1), lambda row: line("  ", *strip_line(course.get(row.pid, ()), bar))
        ),
        Column("  at", max(_MIN_PLACE + room - bars * more, 1), lambda row: (f"  {place_text(row)}", "dim")),
    )


def training_columns(rows: Sequence[TrainingRow], width: int) -> list[Column[TrainingRow]]:
    """The columns of trainings side by side that fit."""
    room = width - _RANK - 2 - _MIN_COMMAND - GAP - _MIN_AT
    more = {"ranks": 7 * any(row.ranks > 1 for row in rows), "pid": 9, "steps": 10}
    shown, room = fitting_widths(_wanted(rows) | more, room)
    command = _MIN_COMMAND + min(max(0, room // 2), _MAX_COMMAND - _MIN_COMMAND)
    rest = _MIN_AT + room - (command - _MIN_COMMAND)

    def number(row: TrainingRow) -> tuple[str, str]:
        return (f"▸{row.number}", "key bold") if row.in_focus else (str(row.number), "text")

    return shown_columns(
        Column("", _RANK, number, ">", 2),
        Column("training", command, lambda row: (started_program(row.command), "text")),
        Column("pid", shown["pid"], lambda row: (str(own_id(row.pid)), "text"), ">"),
        Column("ranks", shown["ranks"], lambda row: (str(row.ranks), "text"), ">"),
        Column("steps", shown["steps"], lambda row: (str(row.steps), "text"), ">"),
        *_shared(rows, shown),
        Column("  at", rest + GAP, lambda row: (f"  {place_text(row)}", "dim")),
    )


def _wanted(rows: Sequence[RankRow]) -> dict[str, int]:
    """The widths of the columns that ranks and trainings share, the most important first; 0 if no row needs one."""
    hosts = {row.host or "" for row in rows}
    return {
        "state": _STATE * any(state_span(row).text for row in rows),
        "node": (GAP + min(_MAX_NODE, max(map(cell_len, hosts), default=0))) * (len(hosts) > 1),
        "GPU": 6 * any(row.gpu_ratio is not None for row in rows),
        "step": 10,
        "memory": 9,
    }


def _shared(_rows: Sequence[Row], shown: dict[str, int]) -> list[Column[Row]]:
    return [
        Column("step", shown["step"], lambda row: (ms(row.step_ms), "text"), ">"),
        Column("GPU", shown["GPU"], lambda row: (percent(row.gpu_ratio), "text"), ">"),
        Column("memory", shown["memory"], lambda row: (size(row.memory_bytes), "dim"), ">"),
        Column("  node", shown["node"], lambda row: (f"  {plain(row.host or '')}", "dim")),
        Column("  state", shown["state"], lambda row: (f"  {state_span(row).text}", state_span(row).role)),
    ]


def by_lateness(rows: Sequence[RankRow]) -> list[RankRow]:
    """The ranks that hold the others up first."""
    return sorted(rows, key=_SORTS["late"])


def ranks_lines(rows: Sequence[RankRow], width: int, focus: int | None) -> list[Line]:
    """The names of the columns, and a row for each of these ranks."""
    columns = rank_columns(rows, width, focus)
    return [head_line(columns), *(row_line(columns, row) for row in rows)]


def _loud(row: RankRow, calm: str) -> str:
    very_late = (row.late_ratio or 0.0) >= 0.3
    return "critical bold" if very_late else "warning bold" if row.is_late else calm


def state_span(row: RankRow) -> Span:
    """The state, if something is out of order."""
    text, role = _STATES[row.state]
    if row.state == "training" and row.behind:
        text, role = f"{row.behind} behind", "warning"
    elif row.state == "training" and row.restarts:
        text = f"restarted {row.restarts}×" if row.restarts > 1 else "restarted"
    return Span(text, role)


def place_text(row: RankRow) -> str:
    """The line that a rank is at; empty if it is unknown."""
    return plain(f"{code_place(row.place)} {row.place.source or row.place.function}") if row.place is not None else ""


def _bar(row: RankRow, width: int, longest_ms: float) -> Line:
    """The step, its length relative to the longest: each phase's own part solid, its waits hatched."""
    if not row.phases or not row.step_ms or longest_ms <= 0:
        return (Span(" " * width),)
    scale, parts = row.step_ms / longest_ms, []
    for name, share in row.phases.items():
        wait = min(row.waits.get(name, 0.0), share)
        parts += [((share - wait) * scale, OWN, name), (wait * scale, WAIT, name)]
    return layers([part for part in parts if part[0] * width >= 0.5], width)


def strips(rows: Sequence[RankRow], shown: Sequence[RankRow], axis: Axis, *, ended: bool = False) -> Strips:
    """The time by which the own work of the ``shown`` exceeds the median of all ``rows``, or of a part of them.

    ``ended``: the axis covers all of the run.
    """
    from statistics import median  # noqa: PLC0415  (the first frame has no steps to compare)

    sample, last = rows[:: max(1, -(-len(rows) // _COMPARED))], None if ended else axis.slots + 1
    own = {
        row.pid: _own(row, row.history(last) if row.history else (), axis)
        for row in {row.pid: row for row in (*sample, *shown)}.values()
    }
    slots = zip(*(own[row.pid] for row in sample), strict=True)
    known = [[value for value in slot if value is not None] for slot in slots]
    typical = [median(values) if len(values) > 1 else None for values in known]
    return {
        row.pid: tuple(
            None if mine is None or theirs is None else mine - theirs
            for mine, theirs in zip(own[row.pid], typical, strict=True)
        )
        for row in shown
    }


def _own(row: RankRow, history: Sequence[StepStretch], axis: Axis) -> tuple[float | None, ...]:
    """The share of the step that is the rank's own work, on the time axis."""
    waits = sum(share for phase, share in row.waits.items() if phase != "backward")

    def share(window: StepStretch) -> float | None:
        if not window.steps or not window.total_ns:  # none has ended, or none was timed
            return None
        # the time outside backward less the waits there, or at least the time that the thread was busy
        outside = 1.0 - window.backward_ns / window.total_ns - waits
        return max(outside, 0.0 if row.on_gpu else window.busy_ns / window.total_ns)

    return on_axis([(window.begin_s, window.end_s) for window in history], [*map(share, history)], axis, mean)


def strip_line(late: Sequence[float | None], width: int) -> Line:
    """A rank's cells, in all of the width; neighbours that look alike are one span."""

    values: list[float | None] = spread(late, width, mean)

    def cell(value: float | None) -> Span:
        if value is None:
            return _GAP
        return next((Span(glyph, role) for least, glyph, role in _LEVELS if value >= least), _CALM)

    runs = ((span, len(list(alike))) for span, alike in groupby(map(cell, values)))
    return tuple(Span(span.text * length, span.role) for span, length in runs)


class RanksState(NamedTuple):
    """The state of the pane."""

    rows: tuple[RankRow, ...]
    focus: int | None
    verdict: bool  # True if the first finding, shown above the pane, is that a rank is late
    axis: Axis
    ended: bool  # True if the figures are means of the whole run
    span: str  # the name of the time that they cover
    trainings: tuple[TrainingRow, ...] = ()  # in a run with several: the others if there are ranks to show, else all


class RanksPane(MovingPane[RanksState]):
    """A table of ranks with a cursor that stays on its rank; computes nothing while it is closed."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "app.step_back", "back", key_display="Esc"),
        Binding("enter", "choose", "show in all panes", key_display="Enter"),
        Binding("s", "sort", "sort"),
    ]

    class Picked(Message):
        """The user chose a rank, or another training, for all panes."""

        def __init__(self, pid: int) -> None:
            super().__init__()
            self.pid = pid

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self._sort = "late"
        self._rows: Rows[RankRow] = Rows(lambda row: row.pid)
        self._top = 0  # the first rank in view

    def update_state(self, now: Parts, findings: Sequence[Finding]) -> None:
        """Collect the state, unless the pane is closed."""
        if self.display:
            super().update_state(now, findings)

    def collect(self, now: Parts, findings: Sequence[Finding]) -> RanksState:
        """All ranks of the training in focus, and the run's other trainings; at the end over the whole run."""
        session, ranks, trainings = now.session, compared_ranks(now.view), training_rows(now.session)
        listed = [row for row in trainings if not (ranks and row.in_focus)] if len(trainings) > 1 else []
        return RanksState(
            tuple(with_utilisation(now.view, ranks)),
            session.trainer(),
            bool(findings) and findings[0].rule == "straggler_rank",
            now.axis,
            session.exit is not None,
            now.span_name,
            tuple(with_utilisation(now.view, listed)),
        )

    def draw(self, state: RanksState, width: int, height: int) -> list[Line]:
        """The ranks, and below them the run's other trainings."""
        ranks = sorted(state.rows, key=_SORTS[self._sort])
        self._rows.rows = (*ranks, *state.trainings)
        if not ranks and not state.trainings:
            return [line(("one process trains here: there are no ranks to compare", "dim"))]
        others = self._trainings(state, width, height // 3 if ranks else height)
        if not ranks:
            return others
        gap: list[Line] = [()] if others else []
        above, at = _summary(state, width), self._rows.index
        room = max(height - len(others) - len(gap) - len(above) - 1, 1)  # below the names of the columns
        self._top = scrolled(self._top, min(at, len(ranks) - 1), len(ranks), room)
        shown = ranks[self._top : self._top + room]
        columns = rank_columns(ranks, width, state.focus, strips(ranks, shown, state.axis, ended=state.ended))
        table = [head_line(columns, self._sort), *self._table_rows(columns, shown, self._top)]
        return [*padded([*above, *table], len(above) + 1 + room), *gap, *others]

    def _trainings(self, state: RanksState, width: int, height: int) -> list[Line]:
        """A line for each training, as many as fit; empty if there is only one."""
        number, before = len(state.trainings), len(state.rows)
        if not number or height < 3:  # their title, the names of the columns, one of them
            return []
        columns = training_columns(state.trainings, width)
        top = scrolled(0, max(self._rows.index - before, 0), number, height - 2)
        title = line((f"{number} trainings side by side", "text bold"), (": none waits for another", "text"))
        if before:
            title = line((f"{plural(number, 'other training')} of this run", "text bold"))
        shown = state.trainings[top : top + height - 2]
        return [title, head_line(columns), *self._table_rows(columns, shown, before + top)]

    def _table_rows(self, columns: Sequence[Column[Row]], rows: Sequence[Row], first: int) -> list[Line]:
        """Rows of a table, of which the first has this number among all rows."""
        at = self._rows.index if self.has_focus else -1
        return [row_line(columns, row, cursor=number == at) for number, row in enumerate(rows, first)]

    def heading(self, state: RanksState) -> tuple[Span, ...]:
        """The number of ranks, the time that their figures cover, and the key that leaves."""
        if not state.rows:
            return line(("Trainings", "text bold"), (f" · {state.span} · Esc closes", "dim"))
        live = sum(row.state != "lost" for row in state.rows)
        gone = f", {len(state.rows) - live} lost" if live < len(state.rows) else ""
        hosts = len({row.host for row in state.rows})
        nodes = f" on {hosts} nodes" if hosts > 1 else ""
        return line(
            ("Ranks", "text bold"), (f" · {live}{nodes}{gone} · {state.span} · by {self._sort} · Esc closes", "dim")
        )

    # -- keys

    def action_move(self, rows_down: int) -> None:
        self._rows.move(rows_down)
        self.redraw(force=True)

    def action_sort(self) -> None:
        names = list(_SORTS)
        self._sort = names[(names.index(self._sort) + 1) % len(names)]
        self.redraw(force=True)

    def action_choose(self) -> None:
        """Show the rank under the cursor in all panes."""
        row = self._rows.selected
        if row is not None:
            self.post_message(self.Picked(row.pid))


def _summary(state: RanksState, width: int) -> list[Line]:
    """The legend; and the late rank, unless the verdict above names it."""
    phases = next((row.phases for row in state.rows if row.phases), {})
    left = [Span(f"{OWN} {name}  ", name) for name in phases]
    steps = line((f"{max((row.steps for row in state.rows), default=0)} steps", "dim"))
    if any(row.wait_ratio is not None for row in state.rows):
        room = width - line_width(left) - line_width(steps) - 5
        left.append(Span(f"{WAIT * 2} {'waits for other ranks' if room >= 21 else 'waits'}", "dim"))
    legend = justified(clip(left, width), steps, width)
    if state.verdict:
        return [legend]
    late = max(state.rows, key=lambda row: row.late_ratio if row.late_ratio is not None else -1.0)
    if late.late_ratio is None:
        return [line(("No rank has made a step yet.", "dim"))]
    if not late.is_late:
        calm = line(("Nobody is late", "benign bold"), (": the ranks' own work takes about the same time.", "text"))
        return [calm, legend]
    return [line((f"Rank {late.rank} may be late: its own work takes longer than the others'.", "warning")), legend]
