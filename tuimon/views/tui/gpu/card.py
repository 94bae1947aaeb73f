"""One GPU as a card: charts on a scale of 0 to 100 %, figures below; where rows are short the least important go."""

from __future__ import annotations

from typing import NamedTuple

from tuimon.session.rows import GpuRow
from tuimon.views.format import percent
from tuimon.views.tui.drawing.charts import chart, tinted
from tuimon.views.tui.drawing.lines import Line, cells, line
from tuimon.views.tui.gpu.figures import (
    LABEL,
    VALUE,
    GpuView,
    heat_line,
    label,
    memory_line,
    power_gauge,
    power_line,
    process_lines,
    rates_lines,
    slowed_line,
    stale_badge,
    torch_line,
    value,
)
from tuimon.views.tui.gpu.names import alarm_lines

_PROCESSES = 4
_LEAST_CHART = 10  # cells
#: The parts by importance (where rows are short the last go first) and from top to bottom; "charts" are those of SM,
#: tensor and DRAM below the utilisation.
_IMPORTANCE = ("alarms", "stale", "memory", "slowed", "power", "torch", "charts", "processes", "rates")
_ORDER = ("alarms", "stale", "charts", "memory", "torch", "power", "slowed", "rates", "processes")
#: Rows of the utilisation's chart and of each chart below it: the first that fit.
_CHART_ROWS = ((24, 8), (18, 6), (13, 5), (11, 4), (9, 3), (7, 2), (5, 2), (4, 1), (3, 1), (2, 1), (1, 1))


class Activity(NamedTuple):
    """How busy a GPU, or a part of it, is over the steps, and how that developed."""

    name: str
    ratio: float | None
    history: tuple[float | None, ...]


def activities(gpu: GpuRow) -> list[Activity]:
    """How busy the GPU's parts are; nothing before Hopper."""
    figures = gpu.figures
    rows = (
        Activity("SM", figures.sm_ratio, gpu.history("sm_ratio")),
        Activity("tensor", figures.tensor_ratio, gpu.history("tensor_ratio")),
        Activity("DRAM", figures.dram_ratio, gpu.history("dram_ratio")),
    )
    return [row for row in rows if _is_known(row)]


def gpu_card(view: GpuView, width: int, height: int, head: Line | None = None) -> list[Line]:
    """One GPU in at most ``height`` lines; the charts take what the figures leave.

    A ``head`` shows what is wrong as well: cards side by side stay aligned.
    """
    heads = [head] if head is not None else []
    parts = _parts(view, width)
    if head is not None:
        parts |= {"alarms": [], "stale": [], "slowed": []}
    room = height - len(heads) - len(_utilisation(view))
    kept = set()
    for name in _IMPORTANCE:
        if len(parts[name]) > room:
            break
        kept.add(name)
        room -= len(parts[name])
    gauge = power_gauge(view, width)
    if gauge is not None and room >= 2 and "power" in kept:
        parts["power"] = [gauge, heat_line(view, width)]
        room -= 1
    parts["charts"] = _charts(view, width, room, below="charts" in kept)
    return [*heads, *(row for name in _ORDER if name in kept or name == "charts" for row in parts[name])][:height]


def card_rows_wanted(view: GpuView) -> int:
    """Rows of a card without a head that shows all there is, the utilisation two rows high."""
    parts = _parts(view, 80)
    gauge = power_gauge(view, 80)
    return sum(map(len, parts.values())) + 2 * len(_utilisation(view)) + (gauge is not None)


def _parts(view: GpuView, width: int) -> dict[str, list[Line]]:
    """All parts as lines; of the charts only how many there are."""
    row, gpu = view.gpu, view.gpu.latest
    torch, slowed, badge = torch_line(view, width), slowed_line(row, width), stale_badge(view, width)
    unknown = gpu.parent_uuid is not None and gpu.power_w is None and gpu.temperature_c is None
    return {
        "alarms": alarm_lines(row, width),
        "stale": [badge] if badge else [],
        "charts": [() for _ in activities(row)],
        "memory": [memory_line(view, width)],
        "torch": [torch] if torch else [],
        "power": [] if unknown else [power_line(view, width)],
        "slowed": [slowed] if slowed else [],
        "rates": rates_lines(view, width),
        "processes": process_lines(view, width, _PROCESSES),
    }


def _utilisation(view: GpuView) -> list[Activity]:
    """One row, or none for a MIG instance, for which the driver does not report it."""
    util = Activity("util", view.gpu.figures.util_ratio, view.gpu.history("util_ratio"))
    return [] if view.gpu.latest.parent_uuid is not None and not _is_known(util) else [util]


def _charts(view: GpuView, width: int, free: int, *, below: bool) -> list[Line]:
    """Utilisation, and SM, tensor and DRAM under it on the same scale; else these beside it as figures."""
    util, others = _utilisation(view), activities(view.gpu) if below else []
    room = free + len(util) + len(others)
    util_rows, other_rows = next(
        (rows for rows in _CHART_ROWS if rows[0] * len(util) + rows[1] * len(others) <= room), (1, 1)
    )
    beside = () if below else _beside(view, width)
    rows = [row for activity in util for row in _chart(activity, view, width, util_rows, beside)]
    return rows + [row for activity in others for row in _chart(activity, view, width, other_rows)]


def _chart(activity: Activity, view: GpuView, width: int, height: int, beside: Line = ()) -> list[Line]:
    plot = tinted(
        chart(activity.history, width - LABEL - VALUE - cells(beside), height, 0.0, 1.0, whole=view.whole), "gpu"
    )
    head = (label(activity.name), value(percent(activity.ratio), view.strong))
    under = line(" " * (LABEL + VALUE))
    return [(*head, *row, *beside) if y == 0 else (*under, *row) for y, row in enumerate(plot)]


def _beside(view: GpuView, width: int) -> Line:
    """``  SM 71 %  tensor 12 %  DRAM 44 %``, the tensor cores to stay longest, as far as a chart stays."""
    known = [activity for activity in activities(view.gpu) if activity.ratio is not None]
    for names in (("SM", "tensor", "DRAM"), ("SM", "tensor"), ("tensor",)):
        shown = [activity for activity in known if activity.name in names]
        spans = [
            span
            for activity in shown
            for span in line((f"  {activity.name} ", "dim"), (f"{percent(activity.ratio):>5}", view.strong))
        ]
        if width - LABEL - VALUE - cells(spans) >= _LEAST_CHART:
            return tuple(spans)
    return ()


def _is_known(activity: Activity) -> bool:
    return activity.ratio is not None or any(ratio is not None for ratio in activity.history)
