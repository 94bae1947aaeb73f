"""Many GPUs: one line each under common column heads, or several in a line; those not in use in one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from rich.cells import cell_len

from tuimon.diagnosis.xids import xid
from tuimon.proc.numa import core_list
from tuimon.session.gpus import GpuRow
from tuimon.views.format import ABSENT, celsius, count, percent, plain, watt
from tuimon.views.gpu_text import memory_ratio
from tuimon.views.tui.drawing.charts import chart
from tuimon.views.tui.drawing.lines import (
    Column,
    Line,
    Span,
    cells,
    chained,
    clip,
    clipped,
    column,
    columns_of,
    head_line,
    line,
    row_line,
    text_of,
)
from tuimon.views.tui.gpu.figures import GpuView, fitting, gib, slowed_words, stale_badge

_LEAST_CHART, _MOST_CHART = 6, 60
#: Columns between figures that stand beside one another.
GAP = 2
#: Columns of a share, and of the utilisation with its gaps.
_PERCENT = 5
_UTIL = 1 + _PERCENT + GAP
_GAP = Span(" " * GAP)


def alarm_lines(gpu: GpuRow, width: int) -> list[Line]:
    """One line for each kind of trouble; none on a sound GPU."""
    lines = []
    if gpu.xids:
        newest = gpu.xids[-1]
        others = len(gpu.xids) - 1
        badge = f" XID {newest} "
        what = xid(newest).meaning
        more = f" (+{others} more)" if others else ""
        lines.append(_alarm(badge, (what + more, what, ""), width))
    if gpu.latest.ecc_errors:
        number = count(gpu.latest.ecc_errors)
        lines.append(_alarm(f" ECC {number} ", ("uncorrected memory errors since the driver was loaded",
                                                "uncorrected memory errors", ""), width))  # fmt: skip
    return lines


def _alarm(badge: str, texts: tuple[str, ...], width: int) -> Line:
    return fitting([line((badge, "critical badge"), (f" {text}", "critical")) for text in texts], width)


def name_of(gpu: GpuRow) -> str:
    """``0``; a MIG instance, as part of the line above it, by its profile: ``└ 1g.10gb``."""
    if gpu.latest.parent_uuid is None:
        return str(gpu.latest.index)
    return f"└ {plain(gpu.latest.name).rpartition('MIG ')[2]}"


def mark_of(view: GpuView) -> Span:
    """A dot: bright where the run uses the GPU, in the colour of its trouble where it has one."""
    trouble = trouble_of(view, 80)
    if trouble:
        return Span("● ", trouble[0].role.split()[0])
    return Span("● ", "benign") if view.gpu.used_by_run else Span("· ", "faint")


def trouble_of(view: GpuView, width: int) -> Line:
    """The worst of what is wrong with a GPU; empty on a sound one."""
    slowed = slowed_words(view.gpu)
    alarms = alarm_lines(view.gpu, width)
    if alarms:
        return alarms[0]
    if view.stale or not slowed:
        return stale_badge(view, width)
    causes = ", ".join(plain(cause) for cause in view.gpu.latest.throttle)
    return fitting([line((text, "warning")) for text in (f"slowed: {slowed}", slowed, causes)], width)


class Figure(NamedTuple):
    """A figure of each GPU, right-aligned."""

    head: str
    width: int
    text: Callable[[GpuRow], str]
    role: str = "text"


FIGURES = (
    Figure("tensor", 6, lambda gpu: percent(gpu.figures.tensor_ratio), "strong"),
    Figure("SM", 5, lambda gpu: percent(gpu.figures.sm_ratio)),
    Figure("memory", 6, lambda gpu: percent(memory_ratio(gpu.latest))),
    Figure("GiB", 5, lambda gpu: gib(gpu.latest.memory_used_bytes)),
    Figure("power", 6, lambda gpu: watt(gpu.figures.power_w)),
    Figure("heat", 6, lambda gpu: celsius(gpu.latest.temperature_c)),
)
#: The columns that stay longest when room is short.
_IMPORTANCE = ("memory", "tensor", "power", "heat", "GiB", "SM")


def gpu_table(views: Sequence[GpuView], width: int, height: int) -> list[Line]:
    """A line each, under column heads where ``height`` leaves room for them."""
    columns = _columns(views, width)
    rows = [row_line(columns, view) for view in views]
    heads = line((text_of(head_line(columns)).rstrip(), "dim"))
    return [clip(row, width) for row in ([heads, *rows] if len(rows) < height else rows)]


def folded_line(gpus: Sequence[GpuRow], width: int) -> Line:
    """The GPUs that the run does not use: which, and how busy the busiest of them is."""
    whole = [gpu for gpu in gpus if gpu.latest.parent_uuid is None]
    parts = len(gpus) - len(whole)
    which = f"GPU {spans_of([gpu.latest.index for gpu in whole])}" if whole else ""
    which += f"{' and ' * bool(whole)}{parts} MIG instance{'s' * (parts != 1)}" if parts else ""
    busiest = max((util for gpu in whole if (util := gpu.figures.util_ratio) is not None), default=None)
    about = f" · busiest {percent(busiest)}" if busiest is not None else ""
    text = f"not used by this run: {which}{about}"
    return line((clipped(text if len(text) <= width else f"not used: {which}", width), "dim"))


def spans_of(numbers: Sequence[int]) -> str:
    """``1–3, 5``."""
    return core_list(set(numbers)).replace("-", "–").replace(",", ", ")


def _columns(views: Sequence[GpuView], width: int) -> list[Column[GpuView]]:
    """The columns known of any GPU, the most important that leave room for a chart."""
    known = {figure.head: figure for figure in FIGURES if any(figure.text(v.gpu) != ABSENT for v in views)}
    names = max(cell_len(name_of(view.gpu)) for view in views)
    most = max(width // 4, 10)
    notes = min(max(cells(trouble_of(view, most)) for view in views), most)
    room = width - 2 - names - _UTIL - _LEAST_CHART - (notes + GAP) * bool(notes)
    kept = set()
    for head in _IMPORTANCE:
        if head in known and known[head].width + GAP <= room:
            kept.add(head)
            room -= known[head].width + GAP
    plot = min(room + _LEAST_CHART, _MOST_CHART)
    return columns_of(
        Column("", 2, mark_of),
        Column("", names, lambda view: (name_of(view.gpu), "text" if view.gpu.used_by_run else "dim")),
        Column("util", _UTIL - GAP, lambda view: (percent(view.gpu.figures.util_ratio), view.strong), ">", GAP),
        Column("", plot, lambda view: (_plot(view, "util_ratio", plot), "gpu-edge")),
        *(_column(figure) for head, figure in known.items() if head in kept),
        Column("", (notes + GAP) * bool(notes), lambda view: (_GAP, *clip(trouble_of(view, notes), notes))),
    )


def _column(of: Figure) -> Column[GpuView]:
    return Column(of.head, GAP + of.width, lambda view: (of.text(view.gpu), "dim" if view.stale else of.role), ">")


def _plot(view: GpuView, counter: str, width: int) -> str:
    return "".join(chart(view.gpu.history(counter), width, 1, 0.0, 1.0, whole=view.whole))


def gpu_mosaic(views: Sequence[GpuView], width: int, height: int) -> list[Line]:
    """Several GPUs in a line; below them what is wrong, or the range of their figures.

    Each with its utilisation; a MIG instance, for which the driver does not report it, with its SM activity.
    """
    cut = {view.gpu.latest.parent_uuid for view in views}  # GPUs of which only the instances are shown
    views = [view for view in views if view.gpu.latest.uuid not in cut]
    names = max(cell_len(name_of(view.gpu)) for view in views)
    least = 2 + names + _PERCENT
    rows = max(height - 1, 1)
    across = min(max(-(-len(views) // rows), 1), max((width + GAP) // (least + GAP), 1))
    room = (width + GAP) // across - GAP - least
    cells_of = [_tile(view, names, room - 1 if room > 2 else 0) for view in views[: across * rows]]
    lines = [chained(cells_of[first : first + across], _GAP) for first in range(0, len(cells_of), across)]
    if len(lines) < height:
        lines.append(_summary(views, len(views) - len(cells_of), width))
    return [clip(row, width) for row in lines]


def _tile(view: GpuView, names: int, chart_width: int) -> Line:
    counter = "util_ratio" if view.gpu.latest.parent_uuid is None else "sm_ratio"
    util = Span(column(percent(getattr(view.gpu.figures, counter)), _PERCENT, ">"), view.strong)
    plot = f" {_plot(view, counter, chart_width)}" if chart_width else ""
    return (mark_of(view), Span(column(name_of(view.gpu), names), "text"), util, Span(plot, "gpu-edge"))


def _summary(views: Sequence[GpuView], hidden: int, width: int) -> Line:
    """Every trouble; else the range of each figure."""
    troubled = [view for view in views if trouble_of(view, width)]
    room = width // max(len(troubled), 1) - 6
    troubles = [line((f"{name_of(view.gpu)}: ", "text"), *trouble_of(view, room)) for view in troubled]
    more = [line((f"+{hidden} more (z)", "dim"))] if hidden else []
    if troubles:
        return chained([*troubles, *more], _GAP)
    ranges = [
        line((f"{of.head} ", "dim"), (_range([of.text(view.gpu) for view in views]), "text"))
        for of in FIGURES
        if of.head != "GiB" and any(of.text(view.gpu) != ABSENT for view in views)
    ]
    return chained([*ranges, *more], _GAP)


def _range(texts: Sequence[str]) -> str:
    """``512–519 W`` of ``512 W`` and ``519 W``."""
    known = sorted({text for text in texts if text != ABSENT}, key=lambda text: float(text.split()[0].lstrip("<")))
    least, most = known[0], known[-1]
    return most if least == most else f"{least.split()[0]}–{most}"
