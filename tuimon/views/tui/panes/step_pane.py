"""The Step pane: the phases of a step, the rank that holds the others up, and the course of the step time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tuimon.node_ids import own_id
from tuimon.records import STEP_PHASES
from tuimon.session.gpu_time import GpuTimeRow
from tuimon.session.phase_table import PhaseTable, RangeRow
from tuimon.session.ranks import RankRow
from tuimon.session.stacks.samples import HotLine
from tuimon.session.steps import StepSummary
from tuimon.threshold import BUSY_IDLE, MOST
from tuimon.views.format import ABSENT, advice, duration, ms, percent, phase_name, plain, timed_steps
from tuimon.views.report.report import compared_ranks
from tuimon.views.report_types import Phase
from tuimon.views.run_text import UNKNOWN, idle_share_text, idle_text
from tuimon.views.scale import ceiling, means, on_axis
from tuimon.views.tui.drawing.canvas import Pane
from tuimon.views.tui.drawing.charts import bar, chart, layers, stacked, tinted
from tuimon.views.tui.drawing.lines import (
    NAME,
    Column,
    Line,
    Span,
    clip,
    clipped,
    column,
    fitting_widths,
    head_line,
    justified,
    line,
    notes_lines,
    row_line,
    shown_columns,
)
from tuimon.views.tui.panes.ranks_pane import WAIT, by_lateness, ranks_lines
from tuimon.views.tui.panes.threads_pane import hot_lines

if TYPE_CHECKING:
    from tuimon.diagnosis.finding import Finding
    from tuimon.records import Notice
    from tuimon.session.session import ProcessView
    from tuimon.views.report.report import Parts

_CALM_CHART = 13  # rows, with its caption; further rows go to the hottest lines first
#: Ranks that the pane shows, the latest ones; with fewer rows than that of one and the names of the columns, none.
_RANKS, _MIN_RANKS = 4, 2

_MAIN = "backward begin"
#: Launch lead in microseconds below which the GPU waits for the CPU: our choice, ten launches of 5 to 10; with a
#: smaller lead, the GPU catches up as soon as the CPU pauses.
_SMALL_LEAD_US = 100.0
_MIN_GAUGE, _MAX_GAUGE = 6, 24
_MS, _SHARE, _ERROR = 11, 7, 7
_IDLE = 15
#: Least cells of a bar; columns beyond ms and share (the GPU's, an estimate's error) must leave them.
_MIN_BAR = 14


def phase_rows(state: StepState, ranges: Sequence[RangeRow], width: int, *, with_gpu: bool = True) -> list[Line]:
    """Each phase followed by the ranges whose outermost range lies mostly in it; heads where there are GPU times.

    If the GPU limits the step, its time comes first: the CPU mostly waits during it.
    """
    phases, waits = state.phases, state.waits
    known = {phase.name for phase in phases}
    last = phases[-1].name if phases else ""
    home: dict[str, str] = {}
    for each in ranges:
        home.setdefault(each.path.split("/", 1)[0], each.phase if each.phase in known else last)
    gpu_ms = sum(phase.gpu_ms_per_step or 0.0 for phase in phases) if with_gpu else 0.0
    on_gpu = gpu_ms > 0.0 and is_busy(state.gpu)
    error = any(_error(phase) for phase in phases) and not on_gpu
    room = width - NAME - _MS - _SHARE - _MIN_BAR
    wanted = {"other": _MS * (gpu_ms > 0.0), "error": _ERROR * error, "idle": _IDLE * (gpu_ms > 0.0 and not on_gpu)}
    shown, room = fitting_widths(wanted, room)
    bar_cells = max(room + _MIN_BAR, 0)

    def share(phase: Phase) -> float:
        return (phase.gpu_ms_per_step or 0.0) / gpu_ms if on_gpu and phase.name != "eval" else phase.share

    def role(phase: Phase, name: str) -> str:
        return "dim" if share(phase) < 0.005 else name

    def taken(phase: Phase) -> str:
        return "~" * bool(phase.estimated and phase.ms_per_step is not None) + ms(phase.ms_per_step)

    def times(clock: tuple[str, Callable[[Phase], str]], width: int) -> Column[Phase]:
        return Column(clock[0], width, lambda phase: (clock[1](phase), role(phase, "text")), ">")

    clocks = (("CPU", taken), ("GPU span", lambda phase: ms(phase.gpu_ms_per_step)))
    one, other = clocks[::-1] if on_gpu else clocks
    most = max((share(phase) for phase in phases if phase.name != "eval"), default=0.0) or 1.0
    estimated = "" if on_gpu else "~"
    columns: list[Column[Phase]] = shown_columns(
        Column("", NAME, lambda phase: (phase.name, role(phase, f"{phase.name} bold"))),
        Column(
            "", bar_cells, lambda phase: _bar(phase, bar_cells, share(phase) / most, waits.get(phase.name, 0.0) / most)
        ),
        times(one, _MS),
        Column(
            "", _SHARE, lambda phase: (estimated * phase.estimated + percent(share(phase)), role(phase, "strong")), ">"
        ),
        Column("", shown["error"], lambda phase: (_error(phase), "dim")),
        times(other, shown["other"]),
        Column("GPU idle", shown["idle"], lambda phase: (idle_text(phase) or ABSENT, role(phase, "text")), ">"),
    )
    rows: list[Line] = [head_line(columns)] if gpu_ms else []
    before = NAME + bar_cells + (_MS + _SHARE) * on_gpu
    for phase in phases:
        rows.append(row_line(columns, phase))
        own = [row for row in ranges if home[row.path.split("/", 1)[0]] == phase.name]
        rows += [range_line(row, before, has_share=not on_gpu) for row in own]
    return rows


def ranges_that_fit(table: PhaseTable, height: int, below: int = 0) -> tuple[RangeRow, ...]:
    """The ranges down to the depth that fits next to phases, chart and ``below``; else the longest outermost ones."""
    ranges = table.ranges
    room = height - len(table.rows) - below - (4 if height >= 16 else 1)
    if len(ranges) <= room:
        return ranges
    for depth in range(max((row.depth for row in ranges), default=0), -1, -1):
        kept = tuple(row for row in ranges if row.depth <= depth)
        if len(kept) <= room:
            return kept
    longest = sorted((row for row in ranges if row.depth == 0), key=lambda row: -row.ms_per_step)
    keep = {row.path for row in longest[: max(room, 0)]}
    return tuple(row for row in ranges if row.path in keep)


def _bar(phase: Phase, width: int, ratio: float, waits: float) -> Line:
    """A phase's bar, hatched where it waits for other ranks; for evaluation a text: its share is of the loop's time."""
    if phase.name != "eval":
        text = bar(ratio, width)
        filled = len(text.rstrip())
        own = max(filled - round(waits * width), 0)
        return line((text[:own] + WAIT * (filled - own) + text[filled:], phase.name))
    texts = ("outside the steps; share of the loop's time", "share of the loop's time", "")
    return line((column(next(text for text in texts if len(text) <= width), width), "dim"))


def _error(phase: Phase) -> str:
    return f" ±{percent(phase.error)}" if phase.estimated and phase.error is not None else ""


def range_line(row: RangeRow, name_width: int, *, has_share: bool) -> Line:
    """A user range under its phase, in the same columns: name, how often a step, its own time."""
    often = "" if 0.95 <= row.per_step <= 1.05 else f" ×{row.per_step:.3g}"
    name = "  " * row.depth + " └ " + plain(row.name)
    return line(
        (column(clipped(name, name_width - len(often)) + often, name_width), "dim"),
        (column(ms(row.ms_per_step), _MS, ">") + column(percent(row.share), _SHARE, ">") * has_share, "dim"),
    )


class StepState(NamedTuple):
    """The state of the pane."""

    table: PhaseTable
    open_phase: tuple[str, float | None] | None  # that the trainer is in, and for how long; while the table is empty
    history: tuple[tuple[float, ...] | None, ...]  # ms per step, split as STEP_PHASES
    span_s: float  # of the history
    hot: tuple[HotLine, ...]
    notes: tuple[str, ...]
    gpu: GpuTimeRow | None = None
    phases: tuple[Phase, ...] = ()  # of the table, with the GPU's idle time that the verdict uses
    whose: str = ""  # "rank 3 of 8"; "" for the only process
    ranks: tuple[RankRow, ...] = ()  # the latest of several
    waits: Mapping[str, float] = {}  # share of the step that it waits for other ranks, by phase
    ended: bool = False


class StepPane(Pane[StepState]):
    """Bars, milliseconds and shares of the phases; user ranges; step-time history."""

    sources = ("markers",)

    _compared: tuple[bool, float, Sequence[RankRow]] = (False, -math.inf, ())  # of the whole run, when, and the ranks

    def collect(self, now: Parts, findings: Sequence[Finding]) -> StepState:
        """The focused trainer's table, of the last 30 s or, once the run has ended, of all of it; and its history."""
        own, axis, has_ended = now.own, now.axis, now.session.exit is not None
        table, latest = own.phases, own.stats.latest
        rows = own.stats.windows(axis.slots + 1 if not has_ended else None)
        # a step covers all of its time, also windows in which none ended
        spans = [(min(row.begin_s, row.end_s - (row.mean_ms or 0.0) / 1e3), row.end_s) for row in rows]
        history = on_axis(spans, [row.stacked_ms(own.split.parts) for row in rows], axis, means)
        height, ranks = self.size.height, self._ranks(own)
        return StepState(
            table,
            (latest.open_phase, latest.open_for_s) if not table and latest and latest.open_phase else None,
            history,
            axis.span_s,
            tuple(own.samples.without_imports.lines()[:12]) if not rows or height > _CALM_CHART + 6 else (),
            _notes(self.notices(now), own.steps),
            now.gpu_time,
            tuple(now.phases),
            now.phases_of,
            tuple(ranks[:_RANKS]),
            next((row.waits for row in ranks if row.pid == own.pid), {}),
            has_ended,
        )

    def _ranks(self, own: ProcessView) -> Sequence[RankRow]:
        """The ranks, the latest first; many ranks are compared only every few seconds, because each takes 0.1 ms."""
        run, (is_whole, then_s, rows) = own.view, self._compared
        is_recent = 0.0 <= run.now_s - then_s < len(rows) / 20  # 20 a second are compared: our choice, 0.2 % of a core
        if not is_recent or is_whole is not run.is_whole or own.pid not in [row.pid for row in rows]:
            rows = by_lateness(compared_ranks(run))
            self._compared = run.is_whole, run.now_s, rows
        return rows

    def draw(self, state: StepState, width: int, height: int) -> list[Line]:
        return phases_lines(state, width, height)

    def rows_wanted(self, width: int, most: int) -> int:
        if self.state is None or not self.state.table:
            return 12
        state = self.state
        gpu = 2 * any(row.gpu_ms_per_step is not None for row in state.phases)
        ranks = len(state.ranks) + 2 * bool(state.ranks)
        return len(state.table.rows) + min(len(state.table.ranges), 12) + 7 + gpu + ranks

    def rank_rows(self) -> int:
        """Rows of the phases and of the ranks below them; 0 without ranks."""
        return len(self.state.phases) + 1 + len(self.state.ranks) if self.state is not None and self.state.ranks else 0

    def heading(self, state: StepState) -> tuple[Span, ...]:
        """The time and the number of steps that the table covers."""
        table = state.table
        spans = [Span("1 ", "key"), Span("Step", "text bold")]
        if not table:
            return tuple(spans)
        if table.mean_ms is not None:
            spans += [Span(" · mean ", "dim"), Span(ms(table.mean_ms), "strong")]
        span = "whole run," if state.ended else "last"
        about = f"{span} {duration(table.window_s)}" if table.window_s else ""
        if state.whose:
            about += f" · {state.whose}, pid {own_id(table.pid)}"
        if table.inferred:
            about += " · inferred from stack samples"
        height = self.content_size[1]
        below = len(state.notes) + (state.gpu is not None)
        hidden = len(table.ranges) - len(ranges_that_fit(table, height, below))
        if hidden:
            about += f" · +{hidden} ranges (z)"
        return (*spans, Span(f" · {about.removeprefix(' · ')}", "dim"))


def phases_lines(state: StepState, width: int, height: int) -> list[Line]:
    """Phase rows with their ranges, the chart, the hottest lines where there is much room, notes at the bottom."""
    table = state.table
    notes = notes_lines(state.notes, width, height)
    if not table:
        above = [line((f"No step has ended{'' if state.ended else ' yet'}.", "text"))]
        if state.open_phase is not None:
            name, for_s = state.open_phase
            verb, since = ("It ended in ", ", after") if state.ended else ("Now in ", " for")
            above.append(line((verb, "dim"), (phase_name(name), name), (f"{since} {duration(for_s)}", "dim")))
        return [*above, *notes][:height]
    room = height - len(notes)
    gpu = [idle_line(state.gpu, width)] if state.gpu is not None else []
    ranges = ranges_that_fit(table, height, len(notes) + len(gpu))
    roomy = room > len(table.rows) + len(ranges) + len(gpu)
    rows = [*phase_rows(state, ranges, width, with_gpu=roomy), *gpu][:room]
    left = room - len(rows)
    ranks: list[Line] = []
    if state.ranks and left >= _MIN_RANKS:
        gap: list[Line] = [()] if left > len(state.ranks) + 5 else []
        ranks = [*gap, *ranks_lines(state.ranks, width, table.pid)][:left]
        left -= len(ranks)
    hot: list[Line] = []
    calm = _CALM_CHART * any(state.history)
    if state.hot and left - calm >= 4:
        title = line(("hottest lines", "text"), (" · training thread, share of samples", "dim"))
        hot = [(), title, *(clip(row, width) for row in hot_lines(state.hot, width)[: left - calm - 2])]
    rows += [*ranks, *history_lines(state, width, min(left - len(hot), _CALM_CHART)), *hot]
    return [*rows, *[()] * (room - len(rows)), *notes]


def history_lines(state: StepState, width: int, height: int) -> list[Line]:
    """The step time, one column a window, in the colours of its phases; one row where room is short."""
    room = width if height >= 3 else width - NAME
    totals = [None if value is None else sum(value) for value in state.history]
    if height < 1 or not any(totals):
        return []
    hi, peak = ceiling(totals), max(value for value in totals if value is not None)

    def plot(width: int, height: int) -> list[Line]:
        if is_busy(state.gpu):  # then the CPU's phases are mostly waiting for it
            return tinted(chart(totals, width, height, 0.0, hi), "gpu")
        return stacked(state.history, STEP_PHASES, width, height, hi)

    if height < 3:
        return [
            (Span(column("step time" if y == 0 else "", NAME), "dim"), *row) for y, row in enumerate(plot(room, height))
        ]
    right = [Span(f"0 – {hi:g} ms" if hi < 10_000 else f"0 – {ms(hi)}", "dim")]
    if peak > hi:
        right = [Span(f"peak {ms(peak)}  ", "warning"), *right]
    gap = " · gap: outside steps" * (None in totals)
    span = Span(f" · {'all steps,' if state.ended else 'last'} {duration(state.span_s)}{gap}", "dim")
    caption = justified(line(("step time", "text"), span), right, width)
    above: list[Line] = [()] if height > 6 else []
    return [*above, caption, *plot(width, height - 1 - len(above))]


def _notes(notices: Iterable[Notice], steps: StepSummary | None) -> tuple[str, ...]:
    """Missing and lost figures, in words."""
    notes = []
    if steps is not None and steps.dropped:
        notes.append(f"{steps.dropped} markers lost: figures come from the others")
    if steps is not None and (timed := timed_steps(steps.timed_ratio)):
        notes.append(f"{timed}, to keep the cost low; all are counted")
    return (*notes, *(advice(notice.message, notice.hint) for notice in notices))


def idle_line(times: GpuTimeRow, width: int) -> Line:
    """``GPU idle  ━━━━━┄──  31–44 % of its time: it waits for the CPU``: as long as leaves room for a gauge."""
    idle, who = idle_share_text(times), who_waits(times)
    role = "warning" if times.idle.low >= BUSY_IDLE else "text"
    parts = [(times.idle.low, "━", role), (times.idle.width, "┄", role)]
    room = width - NAME - 2
    share = f"{idle} of its time" if idle != UNKNOWN else idle
    offers = [f"{share}: {who}", f"{idle}: {who}", idle] if who else [share, idle]
    head = Span(column("GPU idle", NAME), "dim")
    text = next((text for text in offers if len(text) <= room - _MIN_GAUGE), None)
    if text is None:
        return clip((head, Span(idle, "text")), width)
    return (head, *layers(parts, min(room - len(text), _MAX_GAUGE)), *line("  ", (text, "text")))


def who_waits(times: GpuTimeRow) -> str:
    """The side that waits when backward begins; empty if the launch lead is unknown."""
    # without a backward pass at the boundary that was seen most often
    seen = sorted((lead for lead in times.leads if lead.seen), key=lambda lead: (lead.boundary != _MAIN, -lead.seen))
    lead, error_us = next(iter(seen), None), times.lead_error_us
    if lead is None or (lead.median_us is None and lead.stream_idle_ratio < MOST):
        return f"clocks known to ±{ms(error_us / 1000)}" if error_us is not None else ""
    is_behind = lead.median_us is None or lead.median_us < _SMALL_LEAD_US  # the GPU mostly has nothing queued
    if not is_behind and lead.stream_idle_ratio < MOST:
        return f"launches run {ms((lead.median_us or 0.0) / 1000)} ahead"
    return "the CPU waits for it" if is_busy(times) else "it waits for the CPU"


def is_busy(times: GpuTimeRow | None) -> bool:
    """True if the GPU is known to be busy all the time."""
    return times is not None and times.idle.high < BUSY_IDLE
