"""Hot lines as a table: own and total share of each line, and what is done there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from rich.cells import cell_len

from tuimon.records import Place
from tuimon.session.stacks.activity import Activity
from tuimon.session.stacks.samples import LineShare, LineTable, Samples
from tuimon.views.format import code, percent, plain
from tuimon.views.tui.drawing.charts import bar
from tuimon.views.tui.drawing.lines import (
    Column,
    Line,
    Span,
    cells,
    clipped_left,
    columns_of,
    filled,
    head_line,
    line,
    place_column,
    places_width,
    row_line,
)
from tuimon.views.tui.drawing.moving import Rows
from tuimon.views.tui.sheets.sheet import Code, code_lines, no_code

#: Ways to sort, cycled by ``s``.
SORTS = ("self", "total")
#: Cells of a line's code that its place leaves.
_LEAST_CODE = 12
#: Rows from which the code around the chosen line is shown, and how many lines before and after it.
_CODE_FROM, _AROUND = 16, 3
#: activity -> (word, role).
_ACTIVITIES: dict[Activity, tuple[str, str]] = {
    "data": ("waits for data", "data"),
    "lock": ("waits for lock", "warning"),
    "ranks": ("waits for ranks", "warning"),
    "sync": ("GPU sync", "critical"),
    "transfer": ("transfer", "warning"),
    "torch": ("launching", "forward"),
    "compile": ("compiling", "info"),
    "import": ("importing", "info"),
    "io": ("I/O", "warning"),
    "sleep": ("sleeps", "dim"),
    "idle": ("idle", "faint"),
    "python": ("Python", "text"),
}
#: Without a GPU, torch does the work where it is called.
_ON_CPU = ("torch", "sync", "transfer")


def _columns(rows: Sequence[LineShare], samples: int, width: int, *, on_gpu: bool) -> list[Column[LineShare]]:
    """The columns that these rows need, within the screen."""
    gauge = 12 if width >= 110 else 8 if width >= 90 else 5
    doing = 17 if width >= 90 else 16 if width >= 66 else 0
    rest = max(width - 6 - gauge - 8 - doing, 0)
    spot = places_width((row.key[:2] for row in rows), max(rest - _LEAST_CODE, rest // 2))

    def own(row: LineShare) -> float:
        return row.own / samples if samples else 0.0

    def weight(row: LineShare) -> str:
        return "strong" if own(row) >= 0.1 else "text"

    def activity(row: LineShare) -> Span:
        return _activity_span(row.activity, on_gpu=on_gpu)

    return columns_of(
        Column("self", 6, lambda row: (percent(own(row)) if row.own else "", weight(row)), ">"),
        Column("", gauge, lambda row: (f" {bar(own(row), gauge - 2)}", activity(row).role if row.own else "track")),
        Column("total", 7, lambda row: (percent(row.total / samples if samples else 0.0), "dim"), ">", 1),
        Column("doing", doing, lambda row: activity(row)._replace(text=activity(row).text if row.own else "")),
        Column("line", spot, lambda row: (place_column(row.place.file, row.place.line, spot), "key")),
        Column(
            "code",
            rest - spot,
            lambda row: (code(row.place.source, row.place.function), weight(row) if row.user else "dim"),
        ),
    )


def doing_line(table: LineTable, width: int, *, on_gpu: bool) -> Line:
    """All samples by what was being done, most first: ``waits for data 62 %  torch 30 %``."""
    merged: Counter[Span] = Counter()
    for activity, count in table.activities:
        merged[_activity_span(activity, on_gpu=on_gpu)] += count
    spans: list[Span] = []
    room = width
    for name, count in merged.most_common():
        share = f" {percent(count / table.samples)}  "
        room -= cell_len(name.text) + len(share) + 2
        if room < 0:
            break
        spans += [Span("● ", name.role), Span(name.text, "text"), Span(share, "strong")]
    return tuple(spans)


def detail_line(row: LineShare, samples: int, width: int) -> Line:
    """The line under the cursor, whole."""
    share = f"{percent(row.own / samples, 1)} self, {percent(row.total / samples, 1)} total" if samples else ""
    head = line((f"{plain(row.place.function)}()", "strong"), "  ", (share, "text"), "  ")
    spot = clipped_left(f"{plain(row.place.file)}:{row.place.line}", width - cells(head))
    return (*head, Span(spot, "key"))


class LinesView:
    """The table with its cursor, which stays on its line."""

    HEAD_LINES = 3  # above the rows: what is done, a blank, the names of the columns

    def __init__(self) -> None:
        self.libraries = False
        self.sort = 0
        self.rows: Rows[LineShare] = Rows(lambda row: row.key)
        self.pointed: Place | None = None  # the line that the cursor goes to once it is listed

    def draw(
        self,
        samples: Samples,
        phase: str | None,
        width: int,
        height: int,
        *,
        on_gpu: bool,
        code_of: Callable[[Place], Code] = no_code,
    ) -> list[Line]:
        """Exactly ``height`` lines; below the table the code around the chosen line, as far as it is known."""
        table = samples.table(phase, libraries=self.libraries)
        self.rows.rows = table.lines  # those with samples of their own first
        if SORTS[self.sort] == "total":
            self.rows.rows = sorted(table.lines, key=lambda row: (-row.total, -row.own, row.place))
        spot = self.pointed
        pointed = next((r for r in self.rows.rows if spot is not None and r.key[:2] == (spot.file, spot.line)), None)
        if pointed is not None:
            self.rows.select(pointed)
            self.pointed = None
        chosen = self.rows.selected
        code: list[Line] = []
        if chosen is not None and height >= _CODE_FROM:
            number = chosen.place.line
            near = [(n, text) for n, text in code_of(chosen.place) if abs(n - number) <= _AROUND]
            code = [(), *code_lines(near, number)] if near else []
        shown = self.rows.in_view(max(height - self.HEAD_LINES - 1 - len(code), 1))
        columns = _columns([row for row, _ in shown], table.samples, width, on_gpu=on_gpu)
        lines = [doing_line(table, width, on_gpu=on_gpu), (), head_line(columns, SORTS[self.sort])]
        lines += [row_line(columns, row, cursor=cursor) for row, cursor in shown]
        below = detail_line(chosen, table.samples, width) if chosen is not None else ()
        return [*filled([*lines, *code], height - 1), below]


def _activity_span(activity: Activity, *, on_gpu: bool) -> Span:
    """The word for an activity, in its colour; ``on_gpu``: whether this run uses one."""
    if not on_gpu and activity in _ON_CPU:
        return Span("torch", "forward")
    return Span(*_ACTIVITIES[activity])
