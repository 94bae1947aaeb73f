"""One GPU's figures in words: each a line that fits its width, what is not known left out or a dash."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tuimon.node_ids import own_id
from tuimon.records import Gpu
from tuimon.session.gpus import GpuRow
from tuimon.views.format import ABSENT, celsius, duration, number, percent, plain, size
from tuimon.views.gpu_text import STALE_S, memory_ratio
from tuimon.views.tui.drawing.charts import layers
from tuimon.views.tui.drawing.lines import Line, Span, cells, chained, clip, column, line

#: Columns of a row's name, and of its figure with the gap behind it.
LABEL, VALUE = 8, 7
_GIB = 1024**3
#: Share of the memory in use from which it is coloured.
_FULL_RATIO = 0.95


class TorchShare(NamedTuple):
    """The memory that torch's allocators of the run hold on one GPU."""

    allocated_bytes: int | None
    reserved_bytes: int | None
    retries: int = 0  # allocations that succeeded only after the cache was emptied, as far as they were counted


class GpuView(NamedTuple):
    """A GPU with what the run's own processes report of it."""

    gpu: GpuRow
    torch: TorchShare | None = None
    labels: Mapping[int, str] = {}  # the run's processes, by pid
    whole: bool = False  # charts show the whole run

    @property
    def stale(self) -> bool:
        """True if its figures are old."""
        return self.gpu.stale_s >= STALE_S

    @property
    def strong(self) -> str:
        """The role of its main figures."""
        return "dim" if self.stale else "strong"


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
    """The first that fits; else the last, cut."""
    return next((variant for variant in variants if cells(variant) <= width), clip(variants[-1], width))


def power_line(view: GpuView, width: int) -> Line:
    """Power, heat, clock and energy in words; what does not fit is left out from the end."""
    gpu, figures, joules = view.gpu.latest, view.gpu.figures, view.gpu.joules_per_step
    power, heat = out_of(figures.power_w, gpu.power_limit_w, "W"), _heat(gpu, memory=False)
    clock, both = out_of(figures.sm_clock_mhz, None, "MHz"), _clock(view)
    energy = [f"{number(joules)} J/step"] if joules is not None else []
    offers = [
        (power, heat, both, *energy),
        (power, heat, clock, *energy),
        (power, heat, clock),
        (power, heat),
        (power,),
    ]
    return fitting([_known("power", facts) for facts in offers], width)


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


def heat_line(view: GpuView, width: int) -> Line:
    """Temperatures, clock and energy, where power has its own row."""
    gpu, joules = view.gpu.latest, view.gpu.joules_per_step
    both = _clock(view)
    energy = [f"{number(joules)} J/step"] if joules is not None else []
    warm, hot = _heat(gpu, memory=True), _heat(gpu, memory=False)
    offers = [(warm, both, *energy), (hot, both, *energy), (hot, both), (hot,)]
    return fitting([_known("heat", facts) for facts in offers], width)


def _clock(view: GpuView) -> str:
    return out_of(view.gpu.figures.sm_clock_mhz, view.gpu.latest.sm_clock_max_mhz, "MHz")


def _heat(gpu: Gpu, *, memory: bool) -> str:
    if not memory or gpu.memory_temperature_c is None:
        return celsius(gpu.temperature_c)
    return f"{celsius(gpu.temperature_c)}, memory {celsius(gpu.memory_temperature_c)}"


def _known(name: str, facts: Sequence[str]) -> Line:
    """The facts that there are; one dash where there is none."""
    known = [fact for fact in facts if fact != ABSENT]
    return (label(name), *joined(known or [ABSENT]))


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
    """The processes on the GPU, the run's own first: pid, memory, whose, and of several how long each kept it busy."""
    ours = {pid: view.labels.get(pid, "this run") for pid in view.gpu.run_pids}
    rows = sorted(view.gpu.latest.processes, key=lambda row: (row.pid not in ours, -(row.memory_bytes or 0), row.pid))
    shown = rows if len(rows) <= most else rows[: max(most - 1, 1)]
    lines: list[Line] = []
    for row in shown:
        head = (label("" if lines else "process"), Span(column(str(own_id(row.pid)), 8), "dim"))
        held = ABSENT if row.memory_bytes is None else f"{gib(row.memory_bytes)} GiB"
        memory = Span(column(held, 9, ">"), "text")
        # NVML's figure for the process, the share of time in which its kernels ran: of one alone, the utilisation
        busy = line(("  busy ", "dim"), (column(percent(row.sm_ratio), 5, ">"), "text")) if len(rows) > 1 else ()
        name = ours.get(row.pid)
        whose = line(("  ", ""), (plain(name), "benign") if name is not None else ("foreign", "info"))
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


def slowed_words(gpu: GpuRow) -> str:
    """The causes that hold the clocks down now: ``power cap 34 %``; empty if none does."""
    shares = dict(gpu.throttled)
    return ", ".join(plain(why) + (f" {percent(shares[why])}" if why in shares else "") for why in gpu.latest.throttle)


def stale_badge(view: GpuView, width: int) -> Line:
    """``no answer for 12s``, where the figures are old."""
    if not view.stale:
        return ()
    age = duration(view.gpu.stale_s)
    offers = (f" no answer for {age} ", f" no answer {age} ", f" {age} old ")
    return fitting([line((text, "warning badge")) for text in offers], width)


def gib(value_bytes: int | None) -> str:
    """GiB without the unit."""
    return ABSENT if value_bytes is None else number(value_bytes / _GIB)


def out_of(value: float | None, most: float | None, unit: str) -> str:
    """``310 / 700 W``; only what is known."""
    if value is None and most is None:
        return ABSENT
    shown = ABSENT if value is None else f"{value:.0f}"
    return f"{shown} {unit}" if most is None else f"{shown} / {most:.0f} {unit}"


def memory_line(view: GpuView, width: int) -> Line:
    """``memory  26 %  ━━╍╍┄┄───  21.0 / 80.0 GiB``: torch's tensors, what it keeps, what others use, what is free."""
    gpu, torch = view.gpu.latest, view.torch
    used, total = gpu.memory_used_bytes, gpu.memory_total_bytes
    ratio = memory_ratio(gpu)
    text = ABSENT if used is None and total is None else f"{gib(used)} / {gib(total)} GiB"
    head = (label("memory"), value(percent(ratio), view.strong))
    room = width - cells(head) - len(text) - 2
    if room < 4:
        return fitting([(*head, Span(text, "text")), (label("memory"), Span(text, "text"))], width)
    return (*head, *_memory_bar(ratio, used, total, torch, room), Span(f"  {text}", "text"))


def _memory_bar(ratio: float | None, used: int | None, total: int | None, torch: TorchShare | None, room: int) -> Line:
    reserved = torch.reserved_bytes if torch is not None else None
    full = ratio is not None and ratio > _FULL_RATIO
    if ratio is None or used is None or not total:
        return line(("─" * room, "track"))
    if torch is None or reserved is None:
        return layers([(ratio, "━", "warning" if full else "gpu-edge")], room)
    kept = min(reserved, used)
    live = min(torch.allocated_bytes or 0, kept)
    parts = [(live, "━", "gpu-edge"), (kept - live, "╍", "gpu-edge"), (used - kept, "┄", "warning" if full else "text")]
    return layers([(part / total, glyph, role) for part, glyph, role in parts], room)


def torch_line(view: GpuView, width: int) -> Line | None:
    """The part of the memory in use that torch's allocator holds; also the key to the memory bar."""
    torch, used = view.torch, view.gpu.latest.memory_used_bytes
    if torch is None or torch.reserved_bytes is None:
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
