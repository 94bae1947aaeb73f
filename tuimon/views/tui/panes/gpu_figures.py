"""One GPU's figures in words, a line each, unknown ones left out or shown as a dash; many GPUs as a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from rich.cells import cell_len

from tuimon.diagnosis.xids import xid
from tuimon.node_ids import own_id
from tuimon.proc.numa import core_list
from tuimon.records import Process
from tuimon.session.gpu_time import TorchMemoryRow
from tuimon.session.gpus import GpuRow
from tuimon.session.series import sum_of_all
from tuimon.views.format import ABSENT, celsius, count, duration, number, percent, plain, size, spread_text, watt
from tuimon.views.tui.drawing.charts import chart, layers
from tuimon.views.tui.drawing.lines import (
    GAP,
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
    that_fit,
)

#: Columns of a row's name, and of its figure with the gap behind it.
LABEL, VALUE = 8, 7
_GIB = 1024**3
#: Factor from which a batch counts as larger; and the most optimizers that a process reports, at which number there may
#: be more.
_LARGER, _OPTIMIZERS = 1.1, 4
#: Share of memory in use from which the figure is coloured.
_FULL_RATIO = 0.95


class HeldMemory(NamedTuple):
    """The memory of one GPU that a training holds from step to step, in bytes."""

    weights: int
    gradients: int
    optimizer: int


def held_of(process: Process | None) -> HeldMemory | None:
    """The memory that a process's optimizers hold on its GPU; None if it is unknown for one of them."""
    found = process.optimizers if process is not None else []
    held = [0, 0, 0]
    for each in found:
        for part, size_bytes in enumerate((each.parameter_bytes, each.gradient_bytes, each.state_bytes)):
            if size_bytes is None or each.device == "cpu":
                return None
            held[part] += size_bytes
    return HeldMemory(*held) if 0 < len(found) < _OPTIMIZERS else None


class TorchShare(NamedTuple):
    """The memory that torch's allocators of the run hold on one GPU."""

    allocated_bytes: float | None
    reserved_bytes: float
    retries: int = 0  # allocations that succeeded only after the cache was emptied, as far as they were counted
    peak_bytes: int | None = None  # most in tensors at a time
    held: HeldMemory | None = None  # if all of it is of one process

    @classmethod
    def of(cls, rows: Sequence[tuple[TorchMemoryRow, HeldMemory | None]]) -> TorchShare | None:
        """The sums over the processes on a GPU; None if one is not known."""
        reserved = sum_of_all(row.reserved_bytes for row, _ in rows)
        if reserved is None:
            return None
        alone = (rows[0][0].peak_bytes, rows[0][1]) if len(rows) == 1 else (None, None)
        retries = sum(row.retries or 0 for row, _ in rows)
        return cls(sum_of_all(row.allocated_bytes for row, _ in rows), reserved, retries, *alone)


class GpuView(NamedTuple):
    """A GPU with the facts that the run's own processes report about it."""

    gpu: GpuRow
    torch: TorchShare | None = None
    span_s: float = 0.0  # that the charts show; 0: not shown

    @property
    def strong(self) -> str:
        """The role of its main figures."""
        return "dim" if self.gpu.is_old else "strong"


def label(name: str) -> Span:
    """A row's name."""
    return Span(column(name, LABEL), "dim")


def value(text: str, role: str) -> Span:
    """A row's figure: right-aligned, a gap behind it."""
    return Span(column(text, VALUE - 2, ">") + "  ", role)


def joined(facts: Sequence[str]) -> Line:
    """Facts with a faint dot between them."""
    return chained([line((fact, "text")) for fact in facts], Span(" · ", "faint"))


def fitting(variants: Sequence[Line], width: int) -> Line:
    """The first variant that fits; else the last, cut."""
    return next((variant for variant in variants if cells(variant) <= width), clip(variants[-1], width))


def power_line(view: GpuView, width: int, *, has_gauge: bool = False) -> Line:
    """Power, heat, clock and energy in words; what does not fit is left out from the end.

    If a gauge above shows the power (``has_gauge``), there is room for the heat of the memory.
    """
    gpu, figures, joules = view.gpu.latest, view.gpu.figures, view.gpu.joules_per_step
    power = () if has_gauge else (out_of(figures.power_w, gpu.power_limit_w, "W"),)
    heat, hottest = celsius(gpu.temperature_c), celsius(gpu.memory_temperature_c)
    warm = f"{heat}, memory {hottest}" if has_gauge and hottest != ABSENT else heat
    clock, both = (out_of(figures.sm_clock_mhz, most, "MHz") for most in (None, gpu.sm_clock_max_mhz))
    energy = [f"{number(joules)} J/step"] if joules is not None else []
    offers = [(*power, warm, both, *energy), (*power, heat, both, *energy)]
    offers += [(*power, heat, clock, *energy), (*power, heat, clock), (*power, heat), power or (heat,)]
    name = label("heat" if has_gauge else "power")
    known = [[fact for fact in facts if fact != ABSENT] for facts in offers]
    return fitting([(name, *joined(facts or [ABSENT])) for facts in known], width)


def power_gauge(view: GpuView, width: int) -> Line | None:
    """``power  44 %  ━━━───  310 / 700 W``."""
    power_w, limit_w = view.gpu.figures.power_w, view.gpu.latest.power_limit_w
    if power_w is None or not limit_w:
        return None
    ratio = power_w / limit_w
    text = out_of(power_w, limit_w, "W")
    head = (label("power"), value(percent(ratio), view.strong))
    room = width - cells(head) - len(text) - 2
    if room < 4:
        return None
    return (*head, *layers([(ratio, "━", "gpu-edge")], room), Span(f"  {text}", "text"))


def rates_lines(view: GpuView, width: int) -> list[Line]:
    """The traffic over PCIe and NVLink, as the GPU sees it; one line where both fit."""
    gpu = view.gpu.figures
    pcie = _rate("PCIe", gpu.pcie_rx_bytes_per_s, gpu.pcie_tx_bytes_per_s)
    nvlink = _rate("NVLink", gpu.nvlink_rx_bytes_per_s, gpu.nvlink_tx_bytes_per_s)
    if pcie and nvlink:
        both = (*pcie, Span("   "), *nvlink)
        return [both] if cells(both) <= width else [pcie, nvlink]
    return [clip(rate, width) for rate in (pcie, nvlink) if rate]


def _rate(name: str, into: float | None, out: float | None) -> Line:
    if into is None and out is None:
        return ()
    return (label(name), *joined([f"in {_per_s(into)}", f"out {_per_s(out)}"]))


def _per_s(bytes_per_s: float | None) -> str:
    return ABSENT if bytes_per_s is None else f"{size(bytes_per_s)}/s"


def process_lines(view: GpuView, width: int, most: int) -> list[Line]:
    """The processes on the GPU, the run's own first: pid, memory, owner, and of several their share of time."""
    ours = {pid: "this run" if rank is None else f"rank {rank}" for pid, rank in view.gpu.run_pids.items()}
    rows = sorted(view.gpu.latest.processes, key=lambda row: (row.pid not in ours, -(row.memory_bytes or 0), row.pid))
    shown = rows if len(rows) <= most else rows[: max(most - 1, 1)]
    lines: list[Line] = []
    for row in shown:
        head = (label("" if lines else "process"), Span(column(str(own_id(row.pid)), 8), "dim"))
        held = ABSENT if row.memory_bytes is None else f"{gib(row.memory_bytes)} GiB"
        memory = Span(column(held, 9, ">"), "text")
        # NVML's figure for the process, the share of time in which its kernels ran; if alone, the utilisation
        busy = line(("  busy ", "dim"), (column(percent(row.sm_ratio), 5, ">"), "text")) if len(rows) > 1 else ()
        name = ours.get(row.pid)
        whose = line(("  ", ""), (name, "benign") if name is not None else ("foreign", "info"))
        lines.append(fitting([(*head, memory, *busy, *whose), (*head, memory, *whose), (*head, memory)], width))
    if len(shown) < len(rows) and len(lines) < most:
        lines.append((label(""), Span(f"+{len(rows) - len(shown)} more", "dim")))
    return lines


def slowed_line(gpu: GpuRow, width: int) -> Line | None:
    """The causes that hold the clocks down, in words and as share of time; bright while they do."""
    timed = [(cause, ratio) for cause, ratio in gpu.throttled if ratio >= 0.005 or cause in gpu.latest.throttle]
    causes = [f"{plain(cause)} {percent(ratio)}" for cause, ratio in timed]
    causes += [plain(cause) for cause in gpu.latest.throttle if cause not in dict(timed)]
    if not causes:
        return None
    role = "warning" if gpu.latest.throttle else "text"
    head = Span(column("slowed", LABEL), role)
    words = ", ".join(causes)
    offers = [f"{words} of the last 30 s"] * bool(timed) + [words, causes[0]]
    return fitting([(head, Span(text, role)) for text in offers], width)


def stale_badge(view: GpuView, width: int) -> Line:
    """``no answer for 12s``, where the figures are old."""
    if not view.gpu.is_old:
        return ()
    age = duration(view.gpu.stale_s)
    offers = (f" no answer for {age} ", f" no answer {age} ", f" {age} old ")
    return fitting([line((text, "warning badge")) for text in offers], width)


def gib(value_bytes: float | None) -> str:
    """GiB without the unit."""
    return ABSENT if value_bytes is None else number(value_bytes / _GIB)


def out_of(value: float | None, most: float | None, unit: str) -> str:
    """``310 / 700 W``; without the part that is unknown."""
    if value is None and most is None:
        return ABSENT
    shown = ABSENT if value is None else f"{value:.0f}"
    return f"{shown} {unit}" if most is None else f"{shown} / {most:.0f} {unit}"


def memory_line(view: GpuView, width: int) -> Line:
    """``memory  26 %  ━━╍╍┄┄───  21.0 / 80.0 GiB``: torch's tensors, its cache, memory of others, free."""
    gpu, torch = view.gpu.latest, view.torch
    used, total = gpu.memory_used_bytes, gpu.memory_total_bytes
    text = ABSENT if used is None and total is None else f"{gib(used)} / {gib(total)} GiB"
    head = (label("memory"), value(percent(gpu.memory_ratio), view.strong))
    room = width - cells(head) - len(text) - 2
    if room < 4:
        return fitting([(*head, Span(text, "text")), (label("memory"), Span(text, "text"))], width)
    return (*head, *_memory_bar(gpu.memory_ratio, used, total, torch, room), Span(f"  {text}", "text"))


def _memory_bar(ratio: float | None, used: int | None, total: int | None, torch: TorchShare | None, room: int) -> Line:
    full = ratio is not None and ratio > _FULL_RATIO
    if ratio is None or used is None or not total:
        return line(("─" * room, "track"))
    if torch is None:
        return layers([(ratio, "━", "warning" if full else "gpu-edge")], room)
    kept = min(torch.reserved_bytes, used)
    live = min(torch.allocated_bytes or 0, kept)
    parts = [(live, "━", "gpu-edge"), (kept - live, "╍", "gpu-edge"), (used - kept, "┄", "warning" if full else "text")]
    return layers([(part / total, glyph, role) for part, glyph, role in parts], room)


def torch_line(view: GpuView, width: int) -> Line | None:
    """The part of the memory in use that torch's allocator holds; also the key to the memory bar."""
    torch, used = view.torch, view.gpu.latest.memory_used_bytes
    if torch is None:
        return None
    parts = [
        line(("━ ", "gpu-edge"), (f"{gib(torch.allocated_bytes)} GiB allocated", "text")),
        line(("╍ ", "gpu-edge"), (f"{gib(torch.reserved_bytes)} reserved", "text")),
    ]
    if torch.retries:
        parts.append(line((f"{torch.retries} retries", "warning")))
    short = [line((f"{gib(torch.allocated_bytes)} of {gib(torch.reserved_bytes)} GiB reserved", "text"))]
    rest = []
    if used is not None and used >= torch.reserved_bytes:
        rest = [line(("┄ ", "text"), (f"{gib(used - torch.reserved_bytes)} outside", "text"))]
    return fitting([(label("torch"), *chained(offer, Span("  "))) for offer in ([*parts, *rest], parts, short)], width)


def peak_line(view: GpuView, width: int) -> Line | None:
    """``peak  30.2 GiB: 1.2 weights, 1.2 gradients, 2.4 optimizer, 25.4 activations and buffers · batch x1.6 fits``."""
    torch, gpu = view.torch, view.gpu.latest
    if torch is None or torch.peak_bytes is None:
        return None
    peak = f"{gib(torch.peak_bytes)} GiB"
    rest = torch.peak_bytes - sum(torch.held) if torch.held is not None else 0
    if torch.held is None or rest <= 0:
        return fitting(
            [(label("peak"), Span(f"{peak} in tensors", "text")), (label("peak"), Span(peak, "text"))], width
        )
    names = ("weights", "gradients", "optimizer", "activations")
    parts = ", ".join(f"{gib(part)} {name}" for part, name in zip((*torch.held, rest), names, strict=True))
    short = f"{peak}: {gib(rest)} activations"
    fits = ""
    if gpu.memory_total_bytes is not None and gpu.memory_used_bytes is not None:
        # others keep theirs, and torch's cache stays as much larger than the tensors as it is
        free = gpu.memory_total_bytes - max(gpu.memory_used_bytes - torch.reserved_bytes, 0)
        spare = max(torch.reserved_bytes / torch.peak_bytes, 1.0)
        times = (free / spare - sum(torch.held)) / rest
        fits = f" · batch ~{int(10 * times) / 10:g}x fits" if times >= _LARGER else ""
    offers = [f"{peak}: {parts}{fits}", f"{short}{fits}", f"{peak}{fits}", peak]
    return fitting([(label("peak"), Span(text, "text")) for text in offers], width)


_LEAST_CHART, _MOST_CHART = 6, 60
#: Columns of a share, and of the utilisation with its gaps.
_PERCENT = 5
_UTIL = 1 + _PERCENT + GAP
_BLANKS = Span(" " * GAP)


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
    """The worst trouble of a GPU; empty on a sound one."""
    alarms, shares = alarm_lines(view.gpu, width), dict(view.gpu.throttled)
    if alarms:
        return alarms[0]
    if view.gpu.is_old or not view.gpu.latest.throttle:
        return stale_badge(view, width)
    causes = ", ".join(map(plain, view.gpu.latest.throttle))
    now = [plain(why) + (f" {percent(shares[why])}" if why in shares else "") for why in view.gpu.latest.throttle]
    slowed = ", ".join(now)
    return fitting([line((text, "warning")) for text in (f"slowed: {slowed}", slowed, causes)], width)


class GpuFigure(NamedTuple):
    """A figure of each GPU, right-aligned."""

    head: str
    width: int
    text: Callable[[GpuRow], str]
    role: str = "text"


FIGURES = (
    GpuFigure("tensor", 6, lambda gpu: percent(gpu.figures.tensor_ratio), "strong"),
    GpuFigure("SM", 5, lambda gpu: percent(gpu.figures.sm_ratio)),
    GpuFigure("memory", 6, lambda gpu: percent(gpu.latest.memory_ratio)),
    GpuFigure("GiB", 5, lambda gpu: gib(gpu.latest.memory_used_bytes)),
    GpuFigure("power", 6, lambda gpu: watt(gpu.figures.power_w)),
    GpuFigure("heat", 6, lambda gpu: celsius(gpu.latest.temperature_c)),
)
#: The columns that stay longest when room is short.
_IMPORTANCE = ("memory", "tensor", "power", "heat", "GiB", "SM")


def gpu_table(views: Sequence[GpuView], width: int, height: int) -> list[Line]:
    """A line for each GPU, under column heads where ``height`` leaves room for them."""
    columns = _columns(views, width)
    rows = [row_line(columns, view) for view in views]
    heads = line((text_of(head_line(columns)).rstrip(), "dim"))
    return [clip(row, width) for row in ([heads, *rows] if len(rows) < height else rows)]


def folded_line(gpus: Sequence[GpuRow], width: int) -> Line:
    """The GPUs that the run does not use, with the utilisation of the busiest."""
    whole = [gpu for gpu in gpus if gpu.latest.parent_uuid is None]
    parts = len(gpus) - len(whole)
    numbers = core_list({gpu.latest.index for gpu in whole}).replace("-", "–").replace(",", ", ")
    which = f"GPU {numbers}" if whole else ""
    which += f"{' and ' * bool(whole)}{parts} MIG instance{'s' * (parts != 1)}" if parts else ""
    busiest = max((util for gpu in whole if (util := gpu.figures.util_ratio) is not None), default=None)
    about = f" · busiest {percent(busiest)}" if busiest is not None else ""
    text = f"not used by this run: {which}{about}"
    return line((clipped(text if len(text) <= width else f"not used: {which}", width), "dim"))


def _columns(views: Sequence[GpuView], width: int) -> list[Column[GpuView]]:
    """The columns known of any GPU; only the most important, so that a chart has room."""
    known = {figure.head: figure for figure in FIGURES if any(figure.text(v.gpu) != ABSENT for v in views)}
    names = max(cell_len(name_of(view.gpu)) for view in views)
    most = max(width // 4, 10)
    notes = min(max(cells(trouble_of(view, most)) for view in views), most)
    room = width - 2 - names - _UTIL - _LEAST_CHART - (notes + GAP) * bool(notes)
    shown, room = that_fit({head: known[head].width + GAP for head in _IMPORTANCE if head in known}, room)
    plot = min(room + _LEAST_CHART, _MOST_CHART)
    return columns_of(
        Column("", 2, mark_of),
        Column("", names, lambda view: (name_of(view.gpu), "text" if view.gpu.used_by_run else "dim")),
        Column("util", _UTIL - GAP, lambda view: (percent(view.gpu.figures.util_ratio), view.strong), ">", GAP),
        Column("", plot, lambda view: (_plot(view, "util_ratio", plot), "gpu-edge")),
        *(_figure_column(figure, shown[head]) for head, figure in known.items()),
        Column("", (notes + GAP) * bool(notes), lambda view: (_BLANKS, *clip(trouble_of(view, notes), notes))),
    )


def _figure_column(of: GpuFigure, width: int) -> Column[GpuView]:
    return Column(of.head, width, lambda view: (of.text(view.gpu), "dim" if view.gpu.is_old else of.role), ">")


def _plot(view: GpuView, counter: str, width: int) -> str:
    return "".join(chart(view.gpu.history(counter), width, 1, 0.0, 1.0))


def gpu_mosaic(views: Sequence[GpuView], width: int, height: int) -> list[Line]:
    """Several GPUs in a line; below them their troubles, or the range of their figures.

    Each with its utilisation; a MIG instance, for which the driver may not report it, with its SM activity.
    """
    views = [view for view in views if not view.gpu.is_divided]  # of which only the instances are shown
    names = max(cell_len(name_of(view.gpu)) for view in views)
    least = 2 + names + _PERCENT
    rows = max(height - 1, 1)
    across = min(max(-(-len(views) // rows), 1), max((width + GAP) // (least + GAP), 1))
    room = (width + GAP) // across - GAP - least
    cells_of = [_tile(view, names, room - 1 if room > 2 else 0) for view in views[: across * rows]]
    lines = [chained(cells_of[first : first + across], _BLANKS) for first in range(0, len(cells_of), across)]
    if len(lines) < height:
        lines.append(_summary(views, len(views) - len(cells_of), width))
    return [clip(row, width) for row in lines]


def _tile(view: GpuView, names: int, chart_width: int) -> Line:
    counter = view.gpu.busy_counter
    util = Span(column(percent(getattr(view.gpu.figures, counter)), _PERCENT, ">"), view.strong)
    plot = f" {_plot(view, counter, chart_width)}" if chart_width else ""
    return (mark_of(view), Span(column(name_of(view.gpu), names), "text"), util, Span(plot, "gpu-edge"))


def _summary(views: Sequence[GpuView], hidden: int, width: int) -> Line:
    """The trouble of each GPU; if there is none, the range of each figure."""
    troubled = [view for view in views if trouble_of(view, width)]
    room = width // max(len(troubled), 1) - 6
    troubles = [line((f"{name_of(view.gpu)}: ", "text"), *trouble_of(view, room)) for view in troubled]
    more = [line((f"+{hidden} more (z)", "dim"))] if hidden else []
    if troubles:
        return chained([*troubles, *more], _BLANKS)
    ranges = [
        line((f"{of.head} ", "dim"), (spread_text([of.text(view.gpu) for view in views]), "text"))
        for of in FIGURES
        if of.head != "GiB" and any(of.text(view.gpu) != ABSENT for view in views)
    ]
    return chained([*ranges, *more], _BLANKS)
