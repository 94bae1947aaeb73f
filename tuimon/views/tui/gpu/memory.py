"""A GPU's memory: what torch's tensors hold, what torch keeps, what is outside torch, what is free."""

from __future__ import annotations

from collections.abc import Sequence

from tuimon.views.format import ABSENT, percent
from tuimon.views.tui.drawing.charts import layers
from tuimon.views.tui.drawing.lines import Line, Span, cells, line
from tuimon.views.tui.gpu.figures import GpuView, TorchShare, fitting, gib, label, value

_FULL_RATIO = 0.95


def memory_line(view: GpuView, width: int) -> Line:
    """``memory  26 %  ━━╍╍┄┄───  21.0 / 80.0 GiB``: torch's tensors, what it keeps, what others use, what is free."""
    gpu, torch = view.gpu.latest, view.torch
    used, total = gpu.memory_used_bytes, gpu.memory_total_bytes
    ratio = used / total if used is not None and total else None
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
    return fitting([_keyed([*parts, *rest]), _keyed(parts), _keyed(short)], width)


def _keyed(parts: Sequence[Line]) -> Line:
    spans = [label("torch")]
    for number_of, part in enumerate(parts):
        spans += [*line("  ")[: bool(number_of)], *part]
    return tuple(spans)
