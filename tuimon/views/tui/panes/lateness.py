"""How late each rank was over time: a strip of cells, each a few windows long."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tuimon.session.rank_list import RankRow
from tuimon.session.step_sums import StepStretch
from tuimon.views.tui.drawing.charts import spread
from tuimon.views.tui.drawing.lines import Line, Span

#: How many windows of a rank the strip can show.
_HISTORY = 256
#: Seconds that a cell may stand for.
_CELLS_S = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800)
#: The median is taken of so many ranks, evenly chosen: of a thousand it is the same, and costs a twentieth.
_COMPARED = 64
#: Lateness as a share of the step from which a cell is drawn so: below the first it is nobody's fault.
_LEVELS = ((0.6, "█", "critical"), (0.4, "▇", "critical"), (0.2, "▅", "warning"), (0.1, "▃", "warning"))
_CALM, _GAP = Span("▁", "track"), Span(" ")


#: How late each rank was in each cell, as a share of the step: by pid, oldest first, as far as any is known.
Strips = dict[int, tuple[float | None, ...]]


def strips(rows: Sequence[RankRow], shown: Sequence[RankRow], now_s: float, cells: int) -> Strips:
    """Strips of the ``shown`` ones of all ``rows``, in so many cells; None where no step ended."""
    sample = rows[:: max(1, -(-len(rows) // _COMPARED))]
    histories = {row.pid: row.history(_HISTORY) for row in (*sample, *shown)}
    known_s = _known_s(histories.values(), now_s)
    cell_s = next((float(s) for s in _CELLS_S if s * cells >= known_s), float(_CELLS_S[-1]))
    last = int(now_s // cell_s)
    first = last - cells + 1
    own = {
        row.pid: _own(row, histories[row.pid], first, cells, cell_s)
        for row in {r.pid: r for r in (*sample, *shown)}.values()
    }
    columns = list(zip(*(own[row.pid] for row in sample), strict=True))
    from statistics import median  # noqa: PLC0415  (the first frame has no steps to compare)

    typical = [median(known) if len(known := [v for v in column if v is not None]) > 1 else None for column in columns]
    late = {row.pid: _late(own[row.pid], typical) for row in shown}
    begin = min((_first_known(each) for each in late.values()), default=0)
    end = cells - min((_first_known(each[::-1]) for each in late.values()), default=0)
    return {pid: each[begin:end] for pid, each in late.items()}


def _first_known(late: Sequence[float | None]) -> int:
    return next((at for at, value in enumerate(late) if value is not None), len(late))


def strip_line(late: Sequence[float | None], width: int) -> Line:
    """A rank's cells, in all of the width; neighbours that look alike are one span."""
    spans: list[Span] = []
    for value in spread(late, width, max):
        cell = _GAP if value is None else _cell(value)
        if spans and spans[-1].role == cell.role:
            spans[-1] = Span(spans[-1].text + cell.text, cell.role)
        else:
            spans.append(cell)
    return tuple(spans)


def _cell(value: float) -> Span:
    return next((Span(glyph, role) for least, glyph, role in _LEVELS if value >= least), _CALM)


def _late(own: Sequence[float | None], typical: Sequence[float | None]) -> tuple[float | None, ...]:
    return tuple(
        None if mine is None or theirs is None else mine - theirs for mine, theirs in zip(own, typical, strict=True)
    )


def _known_s(histories: Iterable[Sequence[StepStretch]], now_s: float) -> float:
    """How far the ranks' histories go back, so that the strip holds it all, and does not creep."""
    known = [history for history in histories if history]
    longest_s = max((history[-1].end_s - history[-1].begin_s for history in known), default=1.0)
    return min(now_s - min((history[0].end_s for history in known), default=now_s), _HISTORY * longest_s)


def _own(row: RankRow, history: Sequence[StepStretch], first: int, cells: int, cell_s: float) -> list[float | None]:
    """Share of the step that is the rank's own work, by cell."""
    waits = sum(share for phase, share in row.waits if phase != "backward")
    sums, times = [0.0] * cells, [0.0] * cells
    for window in reversed(history):
        end = int(window.end_s // cell_s) - first
        if end < 0:
            break
        if not window.steps:
            continue
        own, window_s = _own_share(window, waits, on_gpu=row.on_gpu), window.end_s - window.begin_s
        begin = int(window.begin_s // cell_s) - first + 1
        for cell in range(max(min(begin, end), 0), min(end, cells - 1) + 1):
            sums[cell] += own * window_s
            times[cell] += window_s
    return [total / s if s else None for total, s in zip(sums, times, strict=True)]


def _own_share(window: StepStretch, waits: float, *, on_gpu: bool) -> float:
    """Own share of a window's steps: what is outside backward without waits there, or how long the thread was busy."""
    outside = 1.0 - window.backward_ns / window.total_ns - waits
    return max(outside, 0.0 if on_gpu else window.busy_ns / window.total_ns)
