"""The Phases pane: where a step's time goes, and how the step time developed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from tuimon.node_ids import own_id
from tuimon.session.rank_list import which_training
from tuimon.session.rows import GpuTimeRow, HotLine, PhaseTable, StepSummary
from tuimon.session.step_sums import STACKED
from tuimon.views.format import advice, code, duration, ms, percent, phase_name, timed_steps
from tuimon.views.gpu_idle import with_idle_bounds
from tuimon.views.tui.drawing.charts import WIDEST_CHART, ceiling, stacked
from tuimon.views.tui.drawing.lines import (
    Line,
    Span,
    clip,
    column,
    justified,
    line,
    notes_lines,
    place_column,
    places_width,
)
from tuimon.views.tui.drawing.pane import Pane
from tuimon.views.tui.panes.phase_rows import NAME, phase_rows, ranges_that_fit

if TYPE_CHECKING:
    from tuimon.diagnosis.finding import Finding
    from tuimon.session.session import Session

_CALM_CHART = 13  # rows with caption; what is more goes to the hottest lines first
_HOT = 12
_TWO_LINES = 11  # rows from which the GPU's lead gets two lines


class PhasesState(NamedTuple):
    """The state of the pane."""

    table: PhaseTable | None
    steps: StepSummary | None
    history: tuple[tuple[float, ...] | None, ...]  # ms per step, split as STACKED
    interval_s: float  # between two values of the history
    hot: tuple[HotLine, ...]
    notes: tuple[str, ...]
    gpu: GpuTimeRow | None = None
    whose: str = ""  # "rank 3 of 8"; "" for the only process
    ended: bool = False


class PhasesPane(Pane[PhasesState]):
    """Bars, milliseconds and shares of the phases; user ranges; step-time history."""

    def collect(self, session: Session, findings: Sequence[Finding]) -> PhasesState:
        """The focused trainer's table, of the last 30 s or at the end of the whole run, and its history."""
        pid, run = session.trainer(), session.shown()
        if pid is None:
            return PhasesState(None, None, (), 1.0, (), _notes(session, None), ended=session.exit is not None)
        steps = run.steps(pid)
        table, gpu = with_idle_bounds(run, pid)
        return PhasesState(
            table,
            steps,
            tuple(run.phase_history(pid, WIDEST_CHART if session.exit is None else None)),
            run.history_interval_s(pid),
            tuple(run.samples(pid).without_imports.lines()[:_HOT]) if self.size.height > _CALM_CHART + 6 else (),
            _notes(session, steps),
            gpu,
            _whose(session, pid),
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
        return [*_without_steps(state.steps, ended=state.ended), *notes][:height]
    room = height - len(notes)
    gpu = _gpu(state, width, height)
    ranges = ranges_that_fit(table, height, len(notes) + len(gpu))
    roomy = room > len(table.rows) + len(ranges) + len(gpu)
    phases = phase_rows(table, ranges, width, with_gpu=roomy)
    rows = [*phases, *gpu][:room]
    left = room - len(rows)
    hot = _hot(state.hot, width, left - _CALM_CHART)
    rows += history_lines(state, width, left - len(hot))
    rows += hot
    return [*rows, *[()] * (room - len(rows)), *notes]


def _gpu(state: PhasesState, width: int, height: int) -> list[Line]:
    """How far launches run ahead and how long the GPU idles: a line; two where there is room."""
    if state.gpu is None:
        return []
    from tuimon.views.tui.panes.gpu_lead import lead_lines  # noqa: PLC0415  (the first frame shows no times of a GPU)

    step_ms = state.steps.median_ms if state.steps is not None else None
    return lead_lines(state.gpu, step_ms, width, 1 if height < _TWO_LINES else 2)


def _without_steps(steps: StepSummary | None, *, ended: bool) -> list[Line]:
    rows = [line((f"No step has ended{'' if ended else ' yet'}.", "text"))]
    if steps is not None and steps.open_phase:
        rows.append(
            line(
                ("It ended in " if ended else "Now in ", "dim"),
                (phase_name(steps.open_phase), steps.open_phase),
                (f"{', after' if ended else ' for'} {duration(steps.open_for_s)}", "dim"),
            )
        )
    return rows


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


def _hot(hot: Sequence[HotLine], width: int, height: int) -> list[Line]:
    """The user's lines with most samples of the training thread."""
    if height < 4 or not hot:
        return []
    lines: list[Line] = [(), line(("hottest lines", "text"), (" · training thread, share of samples", "dim"))]
    wide = places_width(((row.place.file, row.place.line) for row in hot), max(width // 2, 20))
    for row in hot[: height - 2]:
        spot = place_column(row.place.file, row.place.line, wide)
        source = code(row.place.source, row.place.function)
        head = line((column(percent(row.share), 5, ">"), "strong"), "  ", (spot, "key"))
        lines.append(clip((*head, Span(source, "text")), width))
    return lines


def _whose(session: Session, pid: int) -> str:
    """Whose figures these are, of several: ``rank 3 of 8``, ``training 2 of 4``."""
    process = session.process(pid)
    return which_training(session).text_of_rank(process.rank if process is not None else None)


def _notes(session: Session, steps: StepSummary | None) -> tuple[str, ...]:
    """Missing and lost figures, in words."""
    notes = []
    if steps is not None and steps.dropped:
        notes.append(f"{steps.dropped} markers lost: figures rest on the rest")
    if steps is not None and (timed := timed_steps(steps.timed_ratio)):
        notes.append(f"{timed}, all counted")
    notice = session.notices.get("markers")
    if notice is not None and notice.level != "ok":
        notes.append(advice(notice.message, notice.hint))
    return tuple(notes)
