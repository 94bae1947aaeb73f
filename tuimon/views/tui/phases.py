"""The Phases pane: where a step's time goes, and how the step time developed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from rich.cells import cell_len

from tuimon.session.rows import HotLine, PhaseRow, PhaseTable, RangeRow, StepSummary
from tuimon.session.steps import STACKED
from tuimon.views.format import duration, ms, percent, place, plain
from tuimon.views.tui.charts import bar, ceiling, stacked
from tuimon.views.tui.lines import Line, Span, clip, clipped, column, justified, line
from tuimon.views.tui.pane import Pane

if TYPE_CHECKING:
    from tuimon.diagnosis.finding import Finding
    from tuimon.session.session import Session

_NAME, _MS, _SHARE = 10, 9, 7
_CALM_CHART = 13  # rows with caption; what is more goes to the hottest lines first
_HOT = 12
_HISTORY = 512  # values that the widest chart can show


class PhasesPicture(NamedTuple):
    """What the pane shows."""

    table: PhaseTable | None
    steps: StepSummary | None
    history: tuple[tuple[float, ...] | None, ...]  # ms per step, split as STACKED
    ranks: int
    interval_s: float  # between two values of the history
    hot: tuple[HotLine, ...]
    notes: tuple[str, ...]


class PhasesPane(Pane[PhasesPicture]):
    """Bars, milliseconds and shares of the phases; user ranges; step-time history."""

    def collect(self, session: Session, findings: Sequence[Finding]) -> PhasesPicture:
        """The focused trainer's table and history."""
        pid = session.trainer()
        if pid is None:
            return PhasesPicture(None, None, (), 0, 1.0, (), _notes(session, None))
        steps = session.steps(pid)
        return PhasesPicture(
            session.phases(pid),
            steps,
            tuple(session.phase_history(pid, _HISTORY)),
            len(session.trainers()),
            session.header.interval_s if session.header else 1.0,
            tuple(session.hot_lines(pid)[:_HOT]) if self.size.height > _CALM_CHART + 10 else (),
            _notes(session, steps),
        )

    def draw(self, picture: PhasesPicture, width: int, height: int) -> list[Line]:
        """The content's lines."""
        return phases_lines(picture, width, height)

    def heading(self, picture: PhasesPicture) -> tuple[Span, ...]:
        """How much time and how many steps the table rests on."""
        table = picture.table
        spans = [Span("1 ", "key"), Span("Phases", "text bold")]
        if table is None:
            return tuple(spans)
        about = f"last {duration(table.window_s)}" if table.window_s else ""
        if picture.ranks > 1:
            about += f" · pid {table.pid}, 1 of {picture.ranks} ranks"
        if table.inferred:
            about += " · inferred from stack samples"
        hidden = len(table.ranges) - len(ranges_that_fit(table, self.content_size.height, len(picture.notes)))
        if hidden:
            about += f" · +{hidden} ranges (z)"
        return (*spans, Span(f" · {about.removeprefix(' · ')}", "dim"))


def rows_wanted(table: PhaseTable | None) -> int:
    """Rows of content that the pane could fill well."""
    return 12 if table is None else len(table.rows) + min(len(table.ranges), 12) + 7


def phases_lines(picture: PhasesPicture, width: int, height: int) -> list[Line]:
    """Phase rows with their ranges, the chart, the hottest lines where there is much room, notes at the bottom."""
    table = picture.table
    notes = [line((clipped(note, width), "dim")) for note in picture.notes[: 1 if height < 14 else 3]]
    if table is None:
        return [*_waiting(picture.steps), *notes][:height]
    room = height - len(notes)
    rows = _rows(table, ranges_that_fit(table, height, len(notes)), width)[:room]
    left = room - len(rows)
    hot = _hot(picture.hot, width, left - _CALM_CHART)
    rows += history_lines(picture, width, left - len(hot))
    rows += hot
    return [*rows, *[()] * (room - len(rows)), *notes]


def _waiting(steps: StepSummary | None) -> list[Line]:
    rows = [line(("No step has ended yet.", "text"))]
    if steps is not None and steps.open_phase:
        rows.append(
            line(
                ("Now in ", "dim"),
                (steps.open_phase, steps.open_phase),
                (f" for {duration(steps.open_for_s)}", "dim"),
            )
        )
    return rows


def ranges_that_fit(table: PhaseTable, height: int, notes: int = 0) -> tuple[RangeRow, ...]:
    """The ranges down to the depth that fits beside phases and chart; else the longest of the outermost."""
    ranges = table.ranges
    room = height - len(table.rows) - notes - (4 if height >= 16 else 1)
    if len(ranges) <= room:
        return ranges
    for depth in range(max((row.depth for row in ranges), default=0), -1, -1):
        kept = tuple(row for row in ranges if row.depth <= depth)
        if len(kept) <= room:
            return kept
    longest = sorted((row for row in ranges if row.depth == 0), key=lambda row: -row.ms_per_step)
    keep = {row.path for row in longest[: max(room, 0)]}
    return tuple(row for row in ranges if row.path in keep)


def _rows(table: PhaseTable, ranges: Sequence[RangeRow], width: int) -> list[Line]:
    """Each phase followed by the ranges whose outermost range lies mostly in it."""
    home = _homes(table, ranges)
    rows: list[Line] = []
    for phase in table.rows:
        rows.append(phase_line(phase, width))
        rows += [range_line(row, width) for row in ranges if home[row.path.split("/", 1)[0]] == phase.name]
    return rows


def _homes(table: PhaseTable, ranges: Sequence[RangeRow]) -> dict[str, str]:
    known = {row.name for row in table.rows}
    last = table.rows[-1].name if table.rows else ""
    homes: dict[str, str] = {}
    for row in ranges:
        homes.setdefault(row.path.split("/", 1)[0], row.phase if row.phase in known else last)
    return homes


def phase_line(phase: PhaseRow, width: int) -> Line:
    """``data  ███████▌   41.5 ms   62 %``; estimated figures carry ``~`` and, where there is room, their error."""
    mark = "~" if phase.estimated else ""
    share = f"{mark}{percent(phase.share)}"
    error = ""
    if width >= 64 and phase.estimated and phase.error is not None:
        error = column(f" ±{percent(phase.error)}", 7)
    room = width - _NAME - _MS - 1 - _SHARE - len(error) - 1
    quiet = phase.share < 0.005
    return line(
        (column(phase.name, _NAME), "dim" if quiet else f"{phase.name} bold"),
        (bar(phase.share, max(room, 0)), phase.name),
        " ",
        (
            column(mark * (phase.ms_per_step is not None) + ms(phase.ms_per_step), _MS + 1, ">"),
            "dim" if quiet else "text",
        ),
        (column(share, _SHARE, ">"), "dim" if quiet else "strong"),
        (error, "dim"),
    )


def range_line(row: RangeRow, width: int) -> Line:
    """A user range under its phase: name, how often a step, its own time."""
    name_width = max(_NAME, width - _MS - 1 - _SHARE - 1)
    often = "" if 0.95 <= row.per_step <= 1.05 else f" ×{row.per_step:.3g}"
    name = "  " * row.depth + " └ " + plain(row.name)
    return line(
        (column(clipped(name, name_width - len(often)) + often, name_width), "dim"),
        " ",
        (column(ms(row.ms_per_step), _MS + 1, ">"), "dim"),
        (column(percent(row.share), _SHARE, ">"), "dim"),
    )


def history_lines(picture: PhasesPicture, width: int, height: int) -> list[Line]:
    """The step time, one column a window, in the colours of its phases; one row where room is short."""
    seen = picture.history[-width:] if height >= 3 else picture.history[-(width - _NAME) :]
    totals = [None if value is None else sum(value) for value in seen]
    if height < 1 or not any(totals):
        return []
    hi, peak = ceiling(totals), max(value for value in totals if value is not None)
    if height < 3:
        plot = stacked(seen, STACKED, width - _NAME, height, hi)
        return [(Span(column("history" if y == 0 else "", _NAME), "dim"), *row) for y, row in enumerate(plot)]
    right = [Span(f"0 – {hi:g} ms" if hi < 10_000 else f"0 – {ms(hi)}", "dim")]
    if peak > hi:
        right = [Span(f"peak {ms(peak)}  ", "warning"), *right]
    span = Span(f" · last {duration(len(seen) * picture.interval_s)}", "dim")
    caption = justified(line(("step time", "text"), span), right, width)
    gap: list[Line] = [()] if height > 6 else []
    return [*gap, caption, *stacked(seen, STACKED, width, height - 1 - len(gap), hi)]


def _hot(hot: Sequence[HotLine], width: int, height: int) -> list[Line]:
    """The user's lines with most samples of the training thread."""
    if height < 4 or not hot:
        return []
    lines: list[Line] = [(), line(("hottest lines", "text"), (" · training thread, share of samples", "dim"))]
    spot_width = min(max(cell_len(place(h.place.file, h.place.line)) for h in hot), 28) + 2
    for row in hot[: height - 2]:
        spot = column(place(row.place.file, row.place.line), spot_width)
        source = plain(row.place.source).strip() or f"{plain(row.place.function)}()"
        head = line((column(percent(row.share), 5, ">"), "strong"), "  ", (spot, "key"))
        lines.append(clip((*head, Span(source, "text")), width))
    return lines


def _notes(session: Session, steps: StepSummary | None) -> tuple[str, ...]:
    """What is missing or was lost, in words."""
    notes = []
    if steps is not None and steps.dropped:
        notes.append(f"{steps.dropped} markers lost: figures rest on the rest")
    notice = session.notices.get("markers")
    if notice is not None and notice.level != "ok":
        notes.append(plain(notice.message) + (f" – {plain(notice.hint)}" if notice.hint else ""))
    return tuple(notes)
