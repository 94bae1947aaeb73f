"""The Phases pane: where a step's time goes, and how the step time developed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from tuimon.diagnosis.evidence.gpu_steps import BUSY_IDLE
from tuimon.diagnosis.threshold import MOST
from tuimon.node_ids import own_id
from tuimon.session.gpu_time import GpuTimeRow, LeadRow
from tuimon.session.phase_table import PhaseTable, RangeRow
from tuimon.session.ranks import which_training
from tuimon.session.stacks.samples import HotLine
from tuimon.session.steps import STACKED, StepSummary
from tuimon.views.format import ABSENT, advice, duration, ms, percent, phase_name, plain, timed_steps
from tuimon.views.gpu_text import UNKNOWN, idle_share_text, idle_text, steps_on_gpu
from tuimon.views.report_types import Phase
from tuimon.views.scale import ceiling
from tuimon.views.tui.drawing.canvas import Pane
from tuimon.views.tui.drawing.charts import WIDEST_CHART, bar, layers, stacked
from tuimon.views.tui.drawing.lines import (
    Column,
    Line,
    Span,
    clip,
    clipped,
    column,
    columns_of,
    head_line,
    justified,
    line,
    notes_lines,
    row_line,
    that_fit,
)
from tuimon.views.tui.panes.gpu_figures import fitting
from tuimon.views.tui.panes.threads_pane import hot_lines

if TYPE_CHECKING:
    from tuimon.diagnosis.finding import Finding
    from tuimon.session.session import Session

_CALM_CHART = 13  # rows, with its caption; further rows go to the hottest lines first
_HOT = 12
_TWO_LINES = 11  # rows from which the GPU's lead gets two lines

_MAIN = "backward begin"
#: Launch lead in microseconds below which the GPU waits for the CPU: our choice, ten launches of 5 to 10; with a
#: smaller lead, the GPU catches up as soon as the CPU pauses.
_SMALL_LEAD_US = 100.0
_LEAST_GAUGE, _MOST_GAUGE = 6, 24

#: (name, filled parts as (ratio, glyph, role), the texts to choose from beside it, the longest first).
_Gauge = tuple[str, list[tuple[float, str, str]], list[str]]
NAME = 10
_MS, _SHARE, _ERROR = 10, 7, 7
_GPU, _IDLE = 11, 15
#: Least cells of a bar; columns beyond ms and share (the GPU's, an estimate's error) must leave them.
_LEAST_BAR = 14


def phase_rows(phases: Sequence[Phase], ranges: Sequence[RangeRow], width: int, *, with_gpu: bool = True) -> list[Line]:
    """Each phase followed by the ranges whose outermost range lies mostly in it; heads above the GPU's columns."""
    known = {phase.name for phase in phases}
    last = phases[-1].name if phases else ""
    home: dict[str, str] = {}
    for each in ranges:
        home.setdefault(each.path.split("/", 1)[0], each.phase if each.phase in known else last)
    gpu = with_gpu and any(phase.gpu_ms_per_step is not None for phase in phases)
    error = any(_error(phase) for phase in phases)
    room = width - NAME - _MS - _SHARE - 1 - _LEAST_BAR
    shown, room = that_fit({"gpu": _GPU * gpu, "error": _ERROR * error, "idle": _IDLE * gpu}, room)
    bar_cells = max(room + _LEAST_BAR, 0)
    most = max((phase.share or 0.0 for phase in phases if phase.name != "eval"), default=0.0) or 1.0

    def role(phase: Phase, name: str) -> str:
        return "dim" if phase.share < 0.005 else name

    def taken(phase: Phase) -> str:
        return "~" * bool(phase.estimated and phase.ms_per_step is not None) + ms(phase.ms_per_step)

    columns: list[Column[Phase]] = columns_of(
        Column("", NAME, lambda phase: (phase.name, role(phase, f"{phase.name} bold"))),
        Column("", bar_cells, lambda phase: (_bar(phase, bar_cells, most),)),
        Column("CPU", 1 + _MS, lambda phase: (taken(phase), role(phase, "text")), ">"),
        Column(
            "",
            _SHARE,
            lambda phase: (f"{'~' * bool(phase.estimated)}{percent(phase.share)}", role(phase, "strong")),
            ">",
        ),
        Column("", shown["error"], lambda phase: (_error(phase), "dim")),
        Column("GPU span", shown["gpu"], lambda phase: (ms(phase.gpu_ms_per_step), role(phase, "text")), ">"),
        Column("GPU idle", shown["idle"], lambda phase: (idle_text(phase) or ABSENT, role(phase, "text")), ">"),
    )
    rows: list[Line] = [head_line(columns)] if shown["gpu"] else []
    for phase in phases:
        rows.append(row_line(columns, phase))
        rows += [range_line(row, NAME + bar_cells) for row in ranges if home[row.path.split("/", 1)[0]] == phase.name]
    return rows


def ranges_that_fit(table: PhaseTable, height: int, below: int = 0) -> tuple[RangeRow, ...]:
    """The ranges down to the depth that fits beside phases, chart and ``below``; else the longest outermost ones."""
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


def _bar(phase: Phase, width: int, most: float) -> Span:
    """A phase's bar; for evaluation a text, as its share is of the loop's time and not of a step."""
    if phase.name != "eval":
        return Span(bar(phase.share / most, width), phase.name)
    texts = ("beside the steps; share of the loop's time", "share of the loop's time", "")
    return Span(column(next(text for text in texts if len(text) <= width), width), "dim")


def _error(phase: Phase) -> str:
    return f" ±{percent(phase.error)}" if phase.estimated and phase.error is not None else ""


def range_line(row: RangeRow, name_width: int) -> Line:
    """A user range under its phase, in the same columns: name, how often a step, its own time."""
    often = "" if 0.95 <= row.per_step <= 1.05 else f" ×{row.per_step:.3g}"
    name = "  " * row.depth + " └ " + plain(row.name)
    return line(
        (column(clipped(name, name_width - len(often)) + often, name_width), "dim"),
        " ",
        (column(ms(row.ms_per_step), _MS, ">") + column(percent(row.share), _SHARE, ">"), "dim"),
    )


class PhasesState(NamedTuple):
    """The state of the pane."""

    table: PhaseTable | None
    steps: StepSummary | None
    history: tuple[tuple[float, ...] | None, ...]  # ms per step, split as STACKED
    interval_s: float  # between two values of the history
    hot: tuple[HotLine, ...]
    notes: tuple[str, ...]
    gpu: GpuTimeRow | None = None
    phases: tuple[Phase, ...] = ()  # of the table, with the GPU's idle time that the verdict uses
    whose: str = ""  # "rank 3 of 8"; "" for the only process
    ended: bool = False


class PhasesPane(Pane[PhasesState]):
    """Bars, milliseconds and shares of the phases; user ranges; step-time history."""

    def collect(self, session: Session, findings: Sequence[Finding]) -> PhasesState:
        """The focused trainer's table, of the last 30 s or, once the run has ended, of all of it; and its history."""
        pid, run = session.trainer(), session.shown()
        if pid is None:
            return PhasesState(None, None, (), 1.0, (), _notes(session, None), ended=session.exit is not None)
        steps = run.steps(pid)
        phases, gpu = steps_on_gpu(run, pid)
        process, stats = session.process(pid), session.step_stats.get(pid)
        rows = stats.windows(WIDEST_CHART if session.exit is None else None) if stats is not None else []
        between = run.between_parts(pid)
        return PhasesState(
            run.phases(pid),
            steps,
            tuple(row.stacked_ms(between) for row in rows),
            (rows[-1].end_s - rows[0].begin_s) / len(rows) if rows else 1.0,
            tuple(run.samples(pid).without_imports.lines()[:_HOT]) if self.size.height > _CALM_CHART + 6 else (),
            _notes(session, steps),
            gpu,
            tuple(phases),
            which_training(session).text_of_rank(process.rank if process is not None else None),
            session.exit is not None,
        )

    def draw(self, state: PhasesState, width: int, height: int) -> list[Line]:
        """The content's lines."""
        return phases_lines(state, width, height)

    def heading(self, state: PhasesState) -> tuple[Span, ...]:
        """How much time and how many steps the table rests on."""
        table = state.table
        spans = [Span("1 ", "key"), Span("Step", "text bold")]
        if table is None:
            return tuple(spans)
        parts_ms = [row.ms_per_step for row in table.rows if row.name != "eval"]
        known_ms = [part for part in parts_ms if part is not None]
        if known_ms and len(known_ms) == len(parts_ms):
            spans += [Span(" · mean ", "dim"), Span(ms(sum(known_ms)), "strong")]
        span = "whole run," if state.ended else "last"
        about = f"{span} {duration(table.window_s)}" if table.window_s else ""
        if state.whose:
            about += f" · {state.whose}, pid {own_id(table.pid)}"
        if table.inferred:
            about += " · inferred from stack samples"
        width, height = self.content_size
        below = len(state.notes) + len(_gpu(state, width, height))
        hidden = len(table.ranges) - len(ranges_that_fit(table, height, below))
        if hidden:
            about += f" · +{hidden} ranges (z)"
        return (*spans, Span(f" · {about.removeprefix(' · ')}", "dim"))


def phase_rows_wanted(table: PhaseTable | None) -> int:
    """Rows of content that the pane could fill well."""
    if table is None:
        return 12
    gpu = 3 * any(row.gpu_ms_per_step is not None for row in table.rows)
    return len(table.rows) + min(len(table.ranges), 12) + 7 + gpu


def phases_lines(state: PhasesState, width: int, height: int) -> list[Line]:
    """Phase rows with their ranges, the chart, the hottest lines where there is much room, notes at the bottom."""
    table = state.table
    notes = notes_lines(state.notes, width, height)
    if table is None:
        above = [line((f"No step has ended{'' if state.ended else ' yet'}.", "text"))]
        if state.steps is not None and state.steps.open_phase:
            above.append(
                line(
                    ("It ended in " if state.ended else "Now in ", "dim"),
                    (phase_name(state.steps.open_phase), state.steps.open_phase),
                    (f"{', after' if state.ended else ' for'} {duration(state.steps.open_for_s)}", "dim"),
                )
            )
        return [*above, *notes][:height]
    room = height - len(notes)
    gpu = _gpu(state, width, height)
    ranges = ranges_that_fit(table, height, len(notes) + len(gpu))
    roomy = room > len(table.rows) + len(ranges) + len(gpu)
    drawn = phase_rows(state.phases, ranges, width, with_gpu=roomy)
    rows = [*drawn, *gpu][:room]
    left = room - len(rows)
    hot: list[Line] = []
    if state.hot and left - _CALM_CHART >= 4:
        title = line(("hottest lines", "text"), (" · training thread, share of samples", "dim"))
        hot = [(), title, *(clip(row, width) for row in hot_lines(state.hot, width)[: left - _CALM_CHART - 2])]
    rows += history_lines(state, width, left - len(hot))
    rows += hot
    return [*rows, *[()] * (room - len(rows)), *notes]


def _gpu(state: PhasesState, width: int, height: int) -> list[Line]:
    """How far launches run ahead and how long the GPU idles: a line; two where there is room."""
    if state.gpu is None:
        return []

    step_ms = state.steps.median_ms if state.steps is not None else None
    return lead_lines(state.gpu, step_ms, width, 1 if height < _TWO_LINES else 2)


def history_lines(state: PhasesState, width: int, height: int) -> list[Line]:
    """The step time, one column a window, in the colours of its phases; one row where room is short."""
    room = width if height >= 3 else width - NAME
    first = next((at for at, value in enumerate(state.history) if value is not None), 0)
    seen = state.history[first:] if state.ended else state.history[max(first, len(state.history) - room) :]
    totals = [None if value is None else sum(value) for value in seen]
    if height < 1 or not any(totals):
        return []
    hi, peak = ceiling(totals), max(value for value in totals if value is not None)
    if height < 3:
        plot = stacked(seen, STACKED, room, height, hi, whole=state.ended)
        return [(Span(column("step time" if y == 0 else "", NAME), "dim"), *row) for y, row in enumerate(plot)]
    right = [Span(f"0 – {hi:g} ms" if hi < 10_000 else f"0 – {ms(hi)}", "dim")]
    if peak > hi:
        right = [Span(f"peak {ms(peak)}  ", "warning"), *right]
    whole = state.ended
    span = Span(f" · {'all steps,' if whole else 'last'} {duration(len(seen) * state.interval_s)}", "dim")
    caption = justified(line(("step time", "text"), span), right, width)
    gap: list[Line] = [()] if height > 6 else []
    return [*gap, caption, *stacked(seen, STACKED, width, height - 1 - len(gap), hi, whole=state.ended)]


def _notes(session: Session, steps: StepSummary | None) -> tuple[str, ...]:
    """Missing and lost figures, in words."""
    notes = []
    if steps is not None and steps.dropped:
        notes.append(f"{steps.dropped} markers lost: figures come from the others")
    if steps is not None and (timed := timed_steps(steps.timed_ratio)):
        notes.append(f"{timed}, all counted")
    notice = session.notices.get("markers")
    if notice is not None and notice.level != "ok":
        notes.append(advice(notice.message, notice.hint))
    return tuple(notes)


def lead_lines(times: GpuTimeRow, step_ms: float | None, width: int, most: int) -> list[Line]:
    """One line, or two: the lead, and the idle share."""
    main, idle = main_lead(times), idle_share_text(times)
    lead: list[tuple[float, str, str]] = []
    if main is not None and main.median_us is not None and step_ms:  # against the length of a step
        ahead = min(max(main.median_us, 0.0) / 1000 / step_ms, 1.0)
        lead = [(ahead, "━", "warning" if is_behind(main) else "benign")]
    room = width - NAME - 2
    words = lead_words(times)
    if most < 2:
        offers = [f"{words} · GPU idle {idle}", f"{words} · idle {idle}", *_shorter(words)]
        return _gauges([("lead", lead, offers)], room)
    ran_dry = main.stream_idle_ratio if main is not None else 0.0
    dry = f" · ran dry {percent(ran_dry)} of the time" if ran_dry >= 0.005 else ""
    role = "warning" if times.idle_ratio >= BUSY_IDLE else "text"
    idles = [(min(times.idle_ratio, 1.0), "━", role), (min(times.maybe_idle_ratio, 1.0 - times.idle_ratio), "┄", role)]
    rows = [
        ("lead", lead, [words + dry, *_shorter(words)]),
        ("GPU idle", idles, [f"{idle} of its time" if idle != UNKNOWN else idle, idle]),
    ]
    return _gauges(rows, room)


def main_lead(times: GpuTimeRow) -> LeadRow | None:
    """The lead that is shown: where backward begins, else at the boundary seen most often."""
    seen = [lead for lead in times.leads if lead.seen]
    at_backward = next((lead for lead in seen if lead.boundary == _MAIN), None)
    return at_backward or max(seen, key=lambda lead: lead.seen, default=None)


def lead_words(times: GpuTimeRow) -> str:
    """One sentence on who waits for whom."""
    lead = main_lead(times)
    if lead is None or (lead.median_us is None and lead.stream_idle_ratio < MOST):
        error = f" (clocks ±{_ms(times.lead_error_us)})" if times.lead_error_us is not None else ""
        return f"lead not known{error}"
    if not is_behind(lead):
        return f"launches run {_ms(lead.median_us)} ahead"
    ahead = f" ({_ms(lead.median_us)} ahead)" if lead.median_us is not None else ""
    is_busy = times.idle_ratio + times.maybe_idle_ratio < BUSY_IDLE  # busy although the CPU lets nothing queue up
    return f"the CPU waits for the GPU{ahead}" if is_busy else f"the GPU waits for the CPU{ahead}"


def is_behind(lead: LeadRow) -> bool:
    """True if the GPU mostly has nothing queued when the CPU comes to this boundary."""
    return lead.stream_idle_ratio >= MOST or (lead.median_us is not None and lead.median_us < _SMALL_LEAD_US)


def _shorter(words: str) -> list[str]:
    return [
        words,
        words.removeprefix("the ").removeprefix("lead "),
        words.partition(" (")[0],
        words.removeprefix("launches run "),
    ]


def _gauges(rows: Sequence[_Gauge], room: int) -> list[Line]:
    """``lead  ━━━━────  launches run 38 ms ahead``, all gauges alike: the longest texts that leave room for one."""
    texts = [next((text for text in offers if len(text) <= room - _LEAST_GAUGE), None) for _, _, offers in rows]
    known = [text for text in texts if text is not None]
    if len(known) < len(texts):
        fits = [[line((column(name, NAME), "dim"), (text, "text")) for text in offers] for name, _, offers in rows]
        return [fitting(variants, room + NAME + 2) for variants in fits]
    width = min(room - max(map(len, known)), _MOST_GAUGE)
    return [
        (Span(column(name, NAME), "dim"), *layers(parts, width), *line("  ", (text, "text")))
        for (name, parts, _), text in zip(rows, known, strict=True)
    ]


def _ms(value_us: float | None) -> str:
    return ms(None if value_us is None else value_us / 1000)
