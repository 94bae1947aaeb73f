"""The Ranks pane: who holds the others up, a row a rank; it takes the place of all panes while it is open."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from textual.binding import Binding, BindingType
from textual.message import Message

from tuimon.session.ranks import RankRow, TrainingRow, rank_rows, training_rows, with_utilisation
from tuimon.views.tui.drawing.lines import Line, Span, clip, filled, justified, line, with_cursor
from tuimon.views.tui.drawing.moving import MOVE_KEYS, Moving, RowCursor, scrolled
from tuimon.views.tui.drawing.pane import Pane
from tuimon.views.tui.drawing.table import row_line
from tuimon.views.tui.panes.rank_lines import LATE, OWN, WAIT, rank_columns, ranks_head, strips, training_lines

if TYPE_CHECKING:
    from tuimon.diagnosis.finding import Finding
    from tuimon.session.session import Session

Sort = str
_ALARMS = {"lost": 0, "stopped": 1, "silent": 2, "starting": 4, "ended": 5}
_SORTS: dict[Sort, Callable[[RankRow], tuple[float, ...]]] = {
    "late": lambda row: (_ALARMS.get(row.state, 3), -round((row.late_ratio or 0.0) / 0.05), row.rank),
    "rank": lambda row: (row.rank,),
    "wait": lambda row: (-(row.wait_ratio or 0.0), row.rank),
    "step": lambda row: (-(row.step_ms or 0.0), row.rank),
}
#: Other trainings take at most one row in so many of the pane's height.
_TRAININGS_PART = 3
#: Rows that other trainings need: their title, the names of the columns, one of them.
_LEAST_TRAININGS = 3


class RanksState(NamedTuple):
    """The state of the pane."""

    rows: tuple[RankRow, ...]
    focus: int | None
    verdict: bool  # True if the first finding, which is shown above, is that a rank is late
    now_s: float
    ended: bool  # then the figures are means of the whole run
    trainings: tuple[TrainingRow, ...] = ()  # of a run with several: beside ranks the others, else all


class RanksPane(Moving, Pane[RanksState]):
    """A table of ranks with a cursor that stays on its rank; computes nothing while it is closed."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *MOVE_KEYS,
        Binding("enter", "choose", show=False),
        Binding("escape,r", "back", show=False),
        Binding("s", "sort", show=False),
    ]

    class Closed(Message):
        """The user closed the pane."""

    class Chosen(Message):
        """The user chose a rank, or another training, for all panes."""

        def __init__(self, pid: int) -> None:
            super().__init__()
            self.pid = pid

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self._sort: Sort = "late"
        self._cursor: RowCursor[int] = RowCursor()

    def open(self, session: Session, findings: Sequence[Finding]) -> None:
        """Show the ranks as they are now."""
        self.state = self.collect(session, findings)
        self.redraw(force=True)

    def update_state(self, session: Session, findings: Sequence[Finding]) -> None:
        """Collect the state, unless the pane is closed."""
        if self.display:
            super().update_state(session, findings)

    def collect(self, session: Session, findings: Sequence[Finding]) -> RanksState:
        """All ranks of the training in focus, and the run's other trainings; at the end over the whole run."""
        verdict = bool(findings) and findings[0].rule == "straggler_rank"
        now = session.shown()
        ranks, trainings = rank_rows(now), training_rows(session)
        listed = [row for row in trainings if not (ranks and row.in_focus)] if len(trainings) > 1 else []
        firsts = with_utilisation(now, [row.first for row in listed])
        return RanksState(
            tuple(with_utilisation(now, ranks)),
            session.trainer(),
            verdict,
            session.now_s,
            session.exit is not None,
            tuple(row._replace(first=first) for row, first in zip(listed, firsts, strict=True)),
        )

    def sorted_rows(self) -> list[RankRow]:
        """The ranks in the order shown."""
        return sorted(self.state.rows, key=_SORTS[self._sort]) if self.state is not None else []

    def _keys(self) -> list[int]:
        """The processes of all rows: of the ranks, and the first of each training that is listed."""
        trainings = self.state.trainings if self.state is not None else ()
        return [row.pid for row in self.sorted_rows()] + [row.first.pid for row in trainings]

    def draw(self, state: RanksState, width: int, height: int) -> list[Line]:
        """The ranks, and below them the run's other trainings."""
        if not state.rows:
            alone = [line(("one process trains here: there are no ranks to compare", "dim"))]
            return filled(self._trainings(state, width, height) or alone, height)
        others = self._trainings(state, width, height // _TRAININGS_PART)
        gap: list[Line] = [()] if others else []
        return [*self._ranks(state, width, height - len(others) - len(gap)), *gap, *others]

    def _trainings(self, state: RanksState, width: int, height: int) -> list[Line]:
        """A line for each training, as many as fit; nothing where there is one."""
        if not state.trainings or height < _LEAST_TRAININGS:
            return []
        number, keys = len(state.trainings), self._keys()
        current = keys[self._cursor.index(keys)]
        at = next((i for i, row in enumerate(state.trainings) if row.first.pid == current), None)
        head, drawn = training_lines(state.trainings, width)
        if at is not None and self.has_focus:
            drawn[at] = with_cursor(drawn[at])
        top = scrolled(0, at or 0, number, height - 2)
        return [_trainings_title(number, others=bool(state.rows)), head, *drawn[top : top + height - 2]]

    def _ranks(self, state: RanksState, width: int, height: int) -> list[Line]:
        """Who is late, and the rows around the cursor."""
        above, rows, keys = _summary(state, width), self.sorted_rows(), self._keys()
        room = max(height - len(above) - 1, 1)  # below the names of the columns
        at = self._cursor.index(keys)
        top = self._cursor.top = scrolled(self._cursor.top, min(at, len(rows) - 1), len(rows), room)
        shown = rows[top : top + room]
        columns = rank_columns(rows, width, state.focus, partial(strips, rows, shown, state.now_s))
        drawn = [row_line(columns, row, cursor=self.has_focus and row.pid == keys[at]) for row in shown]
        return filled([*above, ranks_head(columns, self._sort), *drawn], height)

    def heading(self, state: RanksState) -> tuple[Span, ...]:
        """How many there are, how far back they go, and how to leave."""
        span = "whole run" if state.ended else "last 30 s"
        if not state.rows:
            return (Span("Trainings", "text bold"), Span(f" · {span} · Esc closes", "dim"))
        live = sum(row.state != "lost" for row in state.rows)
        gone = f", {len(state.rows) - live} lost" if live < len(state.rows) else ""
        hosts = len({row.host for row in state.rows})
        nodes = f" on {hosts} nodes" if hosts > 1 else ""
        return (
            Span("Ranks", "text bold"),
            Span(f" · {live}{nodes}{gone} · {span} · by {self._sort} · Esc closes", "dim"),
        )

    # -- keys

    def action_move(self, rows_down: int) -> None:
        """Move the cursor."""
        self._cursor.move(self._keys(), rows_down)
        self.redraw(force=True)

    def action_sort(self) -> None:
        """Sort by the next column."""
        names = list(_SORTS)
        self._sort = names[(names.index(self._sort) + 1) % len(names)]
        self.redraw(force=True)

    def action_choose(self) -> None:
        """Show the rank under the cursor in all panes."""
        keys = self._keys()
        if keys:
            self.post_message(self.Chosen(keys[self._cursor.index(keys)]))

    def action_back(self) -> None:
        """Back to the panes."""
        self.post_message(self.Closed())


def _trainings_title(number: int, *, others: bool) -> Line:
    if others:
        return line((f"{number} other training{'s' * (number > 1)} of this run", "text bold"))
    title = f"{number} trainings side by side"
    return line((title, "text bold"), (": none waits for another", "text"))


def _summary(state: RanksState, width: int) -> list[Line]:
    """The legend; and who is late, if the verdict above does not say it."""
    legend = _legend(state, width)
    if state.verdict:
        return [legend]
    known = [row for row in state.rows if row.late_ratio is not None]
    late = max(known, key=lambda row: row.late_ratio or 0.0, default=None)
    if late is None:
        return [line(("No rank has made a step yet.", "dim"))]
    if (late.late_ratio or 0.0) < LATE:
        calm = line(("Nobody is late", "benign bold"), (": the ranks' own work takes about the same time.", "text"))
        return [calm, legend]
    return [line((f"Rank {late.rank} may be late: its own work takes longer than the others'.", "warning")), legend]


def _legend(state: RanksState, width: int) -> Line:
    names = [name for name, _ in next((row.phases for row in state.rows if row.phases), ())]
    left = [Span(f"{OWN} {name}  ", name) for name in names]
    if any(row.wait_ratio is not None for row in state.rows):
        left.append(Span(f"{WAIT * 2} waits for other ranks", "dim"))
    steps = max((row.steps for row in state.rows), default=0)
    return justified(clip(left, width), (Span(f"{steps} steps", "dim"),), width)
