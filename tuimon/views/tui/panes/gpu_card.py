"""One GPU: its figures as lines, unknown ones left out or shown as a dash, and the card that they make together."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import NamedTuple

from tuimon.diagnosis.xids import xid
from tuimon.node_ids import own_id
from tuimon.records import Process
from tuimon.session.gpus import GpuRow
from tuimon.session.series import sum_of_all
from tuimon.session.session import ProcessView
from tuimon.views.format import ABSENT, celsius, count, duration, number, percent, plain, size
from tuimon.views.run_text import CHARTED
from tuimon.views.tui.drawing.charts import chart, layers, tinted
from tuimon.views.tui.drawing.lines import Line, Span, chained, clip, column, line, line_width

#: Columns of a row's name, and of its figure with the gap behind it; fewest of a chart, and of a gauge.
_LABEL, _VALUE, _MIN_CHART, _MIN_GAUGE = 8, 7, 10, 4
_GIB = 1024**3
#: Factor from which a batch counts as larger; and the most optimizers that a process reports, at which number there may
#: be more.
_LARGER, _OPTIMIZERS = 1.1, 4
_PROCESSES = 4
#: The parts by importance: if rows are short, the last go first. "charts": those below the utilisation.
_IMPORTANCE = ("alarms", "stale", "memory", "slowed", "power", "torch", "peak", "charts", "processes", "rates")
#: Rows of the utilisation's chart and of each chart below it: the first that fit.
_CHART_ROWS = ((4, 2), (4, 1), (3, 1), (2, 1), (1, 1))


class TorchShare(NamedTuple):
    """The memory that torch's allocators of the run hold on one GPU."""

    allocated_bytes: float | None
    reserved_bytes: float
    retries: int = 0  # allocations that succeeded only after the cache was emptied, of those counted
    peak_bytes: int | None = None  # most in tensors at a time
    held_bytes: Sequence[int] = ()  # of it, weights, gradients and optimizers; empty: unknown, or of several processes

    @classmethod
    def on(cls, uuids: Container[str | None], processes: Iterable[ProcessView]) -> TorchShare | None:
        """The sums over the processes on GPUs with these UUIDs; None if the bytes of a process are unknown."""
        found = [(own, row) for own in processes for row in own.torch_memory if row.uuid in uuids]
        allocated, reserved = (
            sum_of_all(getattr(row, name) for _, row in found) for name in ("allocated_bytes", "reserved_bytes")
        )
        if reserved is None:
            return None
        share = cls(allocated, reserved, sum(row.retries or 0 for _, row in found))
        if len(found) > 1:
            return share
        own, row = found[0]
        held = held_bytes(own.process) if len(own.torch_memory) == 1 else ()
        return share._replace(peak_bytes=row.peak_bytes, held_bytes=held)


def held_bytes(process: Process) -> Sequence[int]:
    """The bytes that a process holds on its GPU from step to step: weights, gradients, optimizers; else empty."""
    held = [0, 0, 0]
    for each in process.optimizers:
        for part, size_bytes in enumerate((each.parameter_bytes, each.gradient_bytes, each.state_bytes)):
            if size_bytes is None or each.device == "cpu":
                return ()
            held[part] += size_bytes
    return held if 0 < len(process.optimizers) < _OPTIMIZERS else ()


class GpuView(NamedTuple):
    """A GPU with the facts that the run's own processes report about it."""

    gpu: GpuRow
    torch: TorchShare | None = None
    span_s: float = 0.0  # that the charts show; 0: not shown
    span: str = "last 30s"  # the name of the time that its means and its shares of throttling cover

    @property
    def strong(self) -> str:
        """The role of its main figures."""
        return "dim" if self.gpu.is_old else "strong"


def gpu_card(view: GpuView, width: int, height: int, head: Line = ()) -> list[Line]:
    """One GPU in at most ``height`` lines; the charts take the rows that the figures leave.

    With a ``head``, only that shows a GPU's trouble, so that cards side by side stay aligned.
    """
    parts, counters = card_parts(view, width), counters_of(view.gpu)
    if head:
        parts |= {"alarms": [], "stale": [], "slowed": []}
    main = [each for each in counters if each == "util_ratio"]
    room, kept = height - bool(head) - len(main), set[str]()
    for name in _IMPORTANCE:
        if len(parts[name]) > room:
            break
        kept.add(name)
        room -= len(parts[name])
    if room >= 2 and "power" in kept and (gauge := _power_gauge(view, width)):
        parts["power"] = [*gauge, _power_line(view, width, has_gauge=True)]
        room -= 1
    charts, beside = (counters, ()) if "charts" in kept else (main, _beside(view, width))
    rows = next((rows for rows in _CHART_ROWS if chart_rows(charts, rows) <= room + len(charts)), (1, 1))
    parts["charts"] = [row for each in charts for row in _chart(each, view, width, chart_rows([each], rows), beside)]
    shown = [each for name, lines in parts.items() if name in kept | {"charts"} for each in lines]
    return [*([head] if head else []), *shown][:height]


def card_parts(view: GpuView, width: int) -> dict[str, list[Line]]:
    """All parts from top to bottom; the charts as empty lines, which are only counted."""
    gpu = view.gpu.latest
    is_dark = gpu.parent_uuid is not None and gpu.power_w is None and gpu.temperature_c is None
    return {
        "alarms": _alarms(view.gpu, width),
        "stale": stale_badge(view.gpu, width),
        "charts": [() for each in counters_of(view.gpu) if each != "util_ratio"],
        "memory": [_memory_line(view, width)],
        "torch": _torch_line(view, width),
        "peak": _peak_line(view, width),
        "power": [] if is_dark else [_power_line(view, width)],
        "slowed": _slowed_line(view, width),
        "rates": _rates_lines(view.gpu, width),
        "processes": _process_lines(view.gpu, width),
    }


def full_rows(view: GpuView) -> int:
    """The rows of a card with all of its parts, its charts as high as they get."""
    parts, counters = card_parts(view, 80), counters_of(view.gpu)
    rows = sum(map(len, parts.values())) - len(parts["charts"]) + len(_power_gauge(view, 80))
    return rows + chart_rows(counters, _CHART_ROWS[0])


def label(name: str) -> Span:
    """A row's name."""
    return Span(column(name, _LABEL), "dim")


def _value(text: str, role: str) -> Span:
    """A row's figure: right-aligned, a gap behind it."""
    return Span(column(text, _VALUE - 2, ">") + "  ", role)


def joined(facts: Sequence[str]) -> Line:
    """Facts with a faint dot between them."""
    return chained([line((fact, "text")) for fact in facts], Span(" · ", "faint"))


def fitting(variants: Sequence[Line], width: int) -> Line:
    """The first variant that fits; else the last, cut."""
    return next((variant for variant in variants if line_width(variant) <= width), clip(variants[-1], width))


def gib(value_bytes: float | None) -> str:
    """GiB without the unit."""
    return ABSENT if value_bytes is None else number(value_bytes / _GIB)


def out_of(value: float | None, most: float | None, unit: str) -> str:
    """``310 / 700 W``; without the part that is unknown."""
    if value is None and most is None:
        return ABSENT
    shown = ABSENT if value is None else f"{value:.0f}"
    return f"{shown} {unit}" if most is None else f"{shown} / {most:.0f} {unit}"


# -- trouble


def _alarms(gpu: GpuRow, width: int) -> list[Line]:
    """One line for each kind of trouble; none on a sound GPU."""
    found: list[tuple[str, tuple[str, ...]]] = []
    if gpu.xids:
        others, what = len(gpu.xids) - 1, xid(gpu.xids[-1]).meaning
        more = f"{what} (+{others} more)" if others else what
        found.append((f" XID {gpu.xids[-1]} ", (more, what, "")))
    if gpu.latest.ecc_errors:
        what = "uncorrected memory errors"
        found.append((f" ECC {count(gpu.latest.ecc_errors)} ", (f"{what} since the driver was loaded", what, "")))
    return [
        fitting([line((badge, "critical badge"), (f" {text}", "critical")) for text in texts], width)
        for badge, texts in found
    ]


def stale_badge(gpu: GpuRow, width: int) -> list[Line]:
    """``no answer for 12s``, if the figures are old."""
    age = duration(gpu.stale_s)
    texts = (f" no answer for {age} ", f" no answer {age} ", f" {age} old ")
    return [fitting([line((text, "warning badge")) for text in texts], width)] if gpu.is_old else []


def _slowed_line(view: GpuView, width: int) -> list[Line]:
    """The causes that hold the clocks down, in words and as share of time; bright while they do."""
    gpu, of_time = view.gpu, f"of the {view.span}"
    timed = {cause: ratio for cause, ratio in gpu.throttled if ratio >= 0.005 or cause in gpu.latest.throttle}
    causes = [f"{plain(cause)} {percent(ratio)}" for cause, ratio in timed.items()]
    causes += [plain(cause) for cause in gpu.latest.throttle if cause not in timed]
    if not causes:
        return []
    words, role = ", ".join(causes), "warning" if gpu.latest.throttle else "text"
    texts = [f"{words} {of_time}"] * bool(timed) + [words, causes[0]]
    head = Span(column("slowed", _LABEL), role)
    return [fitting([(head, Span(text, role)) for text in texts], width)]


def trouble_of(gpu: GpuRow, width: int) -> Line:
    """The worst trouble of a GPU; empty on a sound one."""
    causes, shares = gpu.latest.throttle, dict(gpu.throttled)
    found = _alarms(gpu, width) or stale_badge(gpu, width)
    if found or not causes:
        return found[0] if found else ()
    slowed = ", ".join(plain(why) + (f" {percent(shares[why])}" if why in shares else "") for why in causes)
    texts = (f"slowed: {slowed}", slowed, ", ".join(map(plain, causes)))
    return fitting([line((text, "warning")) for text in texts], width)


# -- charts


def counters_of(gpu: GpuRow) -> list[str]:
    """The counters with a chart: the utilisation, unless a MIG instance does not report it, and those that are known.

    SM, tensor and DRAM are unknown before Hopper.
    """
    figures = gpu.figures
    known = [each for each in CHARTED if any(v is not None for v in (getattr(figures, each), *gpu.history(each)))]
    return known if gpu.latest.parent_uuid is not None or "util_ratio" in known else ["util_ratio", *known]


def chart_rows(counters: Sequence[str], rows: tuple[int, int]) -> int:
    """The rows of these charts: ``rows`` are those of the utilisation, and of any other."""
    return sum(rows[each != "util_ratio"] for each in counters)


def _chart(counter: str, view: GpuView, width: int, height: int, beside: Line) -> list[Line]:
    plot = chart(view.gpu.history(counter), width - _LABEL - _VALUE - line_width(beside), height, 0.0, 1.0)
    head = (label(CHARTED[counter]), _value(percent(getattr(view.gpu.figures, counter)), view.strong))
    notes = ["", "", ""]
    if counter == "util_ratio" and view.span_s:  # the others are on the same time axis
        notes[0] = f"last {duration(view.span_s)}"
        notes[1] = "gap: not read" * any(None in values for values in view.gpu.course.values())
    under = [line((column(note, _LABEL + _VALUE), "dim")) for note in notes]
    rows = zip([head, *under], tinted(plot, "gpu", has_top=height > 1), strict=False)
    return [(*left, *row, *(() if y else beside)) for y, (left, row) in enumerate(rows)]


def _beside(view: GpuView, width: int) -> Line:
    """``  SM 71 %  tensor 12 %  DRAM 44 %``: as many as leave room for a chart, the tensor cores first."""
    for names in (("SM", "tensor", "DRAM"), ("SM", "tensor"), ("tensor",)):
        shown = [(name, getattr(view.gpu.figures, each)) for each, name in CHARTED.items() if name in names]
        parts = [line((f"  {name} ", "dim"), (f"{percent(r):>5}", view.strong)) for name, r in shown if r is not None]
        spans = chained(parts, Span(""))
        if width - _LABEL - _VALUE - line_width(spans) >= _MIN_CHART:
            return spans
    return ()


# -- memory


def _memory_line(view: GpuView, width: int) -> Line:
    """``memory  26 %  ━━╍╍┄┄───  21.0 / 80.0 GiB``: torch's tensors, its cache, memory of others, free."""
    gpu, torch = view.gpu.latest, view.torch
    used, total, ratio = gpu.memory_used_bytes, gpu.memory_total_bytes, gpu.memory_ratio
    text = ABSENT if used is None and total is None else f"{gib(used)} / {gib(total)} GiB"
    head = (label("memory"), _value(percent(ratio), view.strong))
    room = width - line_width(head) - len(text) - 2
    if room < _MIN_GAUGE:
        return fitting([(*head, Span(text, "text")), (head[0], Span(text, "text"))], width)
    parts: list[tuple[float, str, str]] = []  # bytes, glyph, role
    full = "warning" if (ratio or 0.0) > 0.95 else ""
    if used is not None and total and torch is None:
        parts = [(used, "━", full or "gpu-edge")]
    elif used is not None and total and torch is not None:
        kept = min(torch.reserved_bytes, used)
        live = min(torch.allocated_bytes or 0, kept)
        parts = [(live, "━", "gpu-edge"), (kept - live, "╍", "gpu-edge"), (used - kept, "┄", full or "text")]
    bar = layers([(part / (total or 1), glyph, role) for part, glyph, role in parts], room)
    return (*head, *bar, Span(f"  {text}", "text"))


def _torch_line(view: GpuView, width: int) -> list[Line]:
    """The part of the memory in use that torch's allocator holds; also the key to the memory bar."""
    torch, used = view.torch, view.gpu.latest.memory_used_bytes
    if torch is None:
        return []
    live, kept = gib(torch.allocated_bytes), gib(torch.reserved_bytes)
    parts = [line(("━ ", "gpu-edge"), (f"{live} GiB allocated", "text")),
             line(("╍ ", "gpu-edge"), (f"{kept} reserved", "text"))]  # fmt: skip
    parts += [line((f"{torch.retries} retries", "warning"))] if torch.retries else []
    rest = used - torch.reserved_bytes if used is not None else -1
    outside = [line(("┄ ", "text"), (f"{gib(rest)} outside", "text"))] if rest >= 0 else []
    offers = ([*parts, *outside], parts, [line((f"{live} of {kept} GiB reserved", "text"))])
    return [fitting([(label("torch"), *chained(offer, Span("  "))) for offer in offers], width)]


def _peak_line(view: GpuView, width: int) -> list[Line]:
    """``peak  30.2 GiB: 1.2 weights, 1.2 gradients, 2.4 optimizer, 25.4 activations and buffers · batch x1.6 fits``."""
    torch, gpu = view.torch, view.gpu.latest
    if torch is None or torch.peak_bytes is None:
        return []
    peak, held = f"{gib(torch.peak_bytes)} GiB", torch.held_bytes
    rest = torch.peak_bytes - sum(held)
    texts = [f"{peak} in tensors", peak]
    if held and rest > 0:
        names = ("weights", "gradients", "optimizer", "activations")
        parts = ", ".join(f"{gib(part)} {name}" for part, name in zip((*held, rest), names, strict=True))
        fits = ""
        if gpu.memory_total_bytes is not None and gpu.memory_used_bytes is not None:
            # others keep theirs, and torch's cache stays as much larger than the tensors as it is
            free = gpu.memory_total_bytes - max(gpu.memory_used_bytes - torch.reserved_bytes, 0)
            times = (free / max(torch.reserved_bytes / torch.peak_bytes, 1.0) - sum(held)) / rest
            fits = f" · batch ~{int(10 * times) / 10:g}x fits" if times >= _LARGER else ""
        texts = [f"{peak}: {parts}{fits}", f"{peak}: {gib(rest)} activations{fits}", f"{peak}{fits}", peak]
    return [fitting([(label("peak"), Span(text, "text")) for text in texts], width)]


# -- power, traffic, processes


def _power_gauge(view: GpuView, width: int) -> list[Line]:
    """``power  44 %  ━━━───  310 / 700 W``."""
    power_w, limit_w = view.gpu.figures.power_w, view.gpu.latest.power_limit_w
    if power_w is None or not limit_w:
        return []
    text = out_of(power_w, limit_w, "W")
    head = (label("power"), _value(percent(power_w / limit_w), view.strong))
    room = width - line_width(head) - len(text) - 2
    bar = layers([(power_w / limit_w, "━", "gpu-edge")], room)
    return [(*head, *bar, Span(f"  {text}", "text"))] if room >= _MIN_GAUGE else []


def _power_line(view: GpuView, width: int, *, has_gauge: bool = False) -> Line:
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
    known = [[fact for fact in facts if fact != ABSENT] for facts in offers]
    name = label("heat" if has_gauge else "power")
    return fitting([(name, *joined(facts or [ABSENT])) for facts in known], width)


def _rates_lines(gpu: GpuRow, width: int) -> list[Line]:
    """The traffic over PCIe and NVLink, as the GPU sees it; one line if both fit."""
    figures = gpu.figures
    pairs = (("PCIe", figures.pcie_rx_bytes_per_s, figures.pcie_tx_bytes_per_s),
             ("NVLink", figures.nvlink_rx_bytes_per_s, figures.nvlink_tx_bytes_per_s))  # fmt: skip
    rates = []
    for name, *ways in pairs:
        into, out = (ABSENT if each is None else f"{size(each)}/s" for each in ways)
        if (into, out) != (ABSENT, ABSENT):
            rates.append((label(name), *joined([f"in {into}", f"out {out}"])))
    both = chained(rates, Span("   "))
    return [both] if rates and line_width(both) <= width else [clip(rate, width) for rate in rates]


def _process_lines(gpu: GpuRow, width: int) -> list[Line]:
    """The processes on the GPU, the run's own first: pid, memory, owner, and of several their share of time."""
    ours = {pid: "this run" if rank is None else f"rank {rank}" for pid, rank in gpu.run_pids.items()}
    rows = sorted(gpu.latest.processes, key=lambda row: (row.pid not in ours, -(row.memory_bytes or 0), row.pid))
    shown = rows if len(rows) <= _PROCESSES else rows[: _PROCESSES - 1]
    lines: list[Line] = []
    for row in shown:
        held = ABSENT if row.memory_bytes is None else f"{gib(row.memory_bytes)} GiB"
        head = line(
            label("" if lines else "process"), (column(str(own_id(row.pid)), 8), "dim"), (column(held, 9, ">"), "text")
        )
        # NVML's figure for the process, the share of time in which its kernels ran; if alone, the utilisation
        busy = line(("  busy ", "dim"), (column(percent(row.sm_ratio), 5, ">"), "text")) if len(rows) > 1 else ()
        whose = line("  ", (ours[row.pid], "benign") if row.pid in ours else ("foreign", "info"))
        lines.append(fitting([(*head, *busy, *whose), (*head, *whose), head], width))
    if len(shown) < len(rows):
        lines.append((label(""), Span(f"+{len(rows) - len(shown)} more", "dim")))
    return lines
