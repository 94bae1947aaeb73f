"""The GPU pane: utilisation history, memory, power, temperature, clocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from rich.cells import cell_len

from tuimon.session.rows import GpuRow
from tuimon.views.format import ABSENT, celsius, duration, number, percent, plain, watt
from tuimon.views.tui.charts import chart, meter, tinted
from tuimon.views.tui.lines import Line, Span, cells, clip, clipped, column, line
from tuimon.views.tui.pane import Pane

if TYPE_CHECKING:
    from tuimon.diagnosis.finding import Finding
    from tuimon.session.session import Session

_CARD_WIDTH = 40
_CARD_ROWS = 4
_LABEL = 8
_STALE_S = 5.0
_HISTORY = 512  # values that the widest chart can show
_GIB = 1024**3


class GpuPicture(NamedTuple):
    """The devices, and why there is none."""

    gpus: tuple[GpuRow, ...]
    note: str | None
    hint: str | None = None


class GpuPane(Pane[GpuPicture]):
    """One card a GPU; compact rows where there are many; one line where there is none."""

    def collect(self, session: Session, findings: Sequence[Finding]) -> GpuPicture:
        """All devices, and what the source says."""
        notice = session.notices.get("gpu")
        gpus = tuple(_calm(gpu) for gpu in session.gpus())
        if notice is None:
            return GpuPicture(gpus, None)
        return GpuPicture(gpus, plain(notice.message), plain(notice.hint) if notice.hint else None)

    def draw(self, picture: GpuPicture, width: int, height: int) -> list[Line]:
        """The content's lines."""
        return gpus_lines(picture, width, height)

    def heading(self, picture: GpuPicture) -> tuple[Span, ...]:
        """The one GPU's name, or how many there are."""
        spans = (Span("2 ", "key"), Span("GPU", "text bold"))
        if len(picture.gpus) == 1:
            gpu = picture.gpus[0]
            return (*spans, Span(f" {gpu.index} · {plain(gpu.name)}", "dim"))
        used = sum(gpu.used_by_run for gpu in picture.gpus)
        return (*spans, Span(f" · {used} of {len(picture.gpus)} used by this run", "dim"))


def rows_wanted(gpus: Sequence[GpuRow], width: int) -> int:
    """Rows of content for these GPUs in this inner width."""
    if len(gpus) == 1:
        return _CARD_ROWS + 1 + bool(gpus[0].throttle)
    across = max(1, width // _CARD_WIDTH)
    if across == 1 and len(gpus) > 2:
        return len(gpus) + 1
    return -(-len(gpus) // across) * _CARD_ROWS


def gpus_lines(picture: GpuPicture, width: int, height: int) -> list[Line]:
    """Cards, or rows where cards do not fit, or the one line that says what is missing."""
    gpus = picture.gpus
    if not gpus:
        note = picture.note or "none seen so far"
        if picture.hint and cell_len(f"{note} – {picture.hint}") <= width - 4:
            note = f"{note} – {picture.hint}"
        return [line(("GPU ", "text bold"), (clipped(note, width - 4), "dim"))]
    notes = [line((clipped(picture.note, width), "warning"))] if picture.note else []
    room = height - len(notes)
    if len(gpus) == 1:
        return [*gpu_card(gpus[0], width, room, named=False), *notes]
    across = max(1, min(len(gpus), width // _CARD_WIDTH))
    down = -(-len(gpus) // across)
    card_rows = room // down
    if card_rows >= 3:
        return [*_side_by_side(gpus, across, width, card_rows), *notes]
    rows = [gpu_row(gpu, width) for gpu in gpus]
    if len(rows) > room:
        rows = [*rows[: room - 1], line((f"+{len(rows) - room + 1} more (z)", "dim"))]
    return [*rows, *notes]


def gpu_card(gpu: GpuRow, width: int, height: int, *, named: bool = True) -> list[Line]:
    """One GPU in ``height`` lines: the chart takes what the figures leave."""
    head = [_name(gpu, width)] if named else []
    facts = [_memory(gpu, width), _power(gpu, width)]
    if gpu.throttle and not named:
        facts.append(line(("slowed  ", "warning"), (", ".join(plain(why) for why in gpu.throttle), "warning")))
    if gpu.stale_s >= _STALE_S:
        facts.append(line((f"figures are {duration(gpu.stale_s)} old", "warning")))
    room = max(height - len(head) - len(facts), 1)
    return [*head, *_utilisation(gpu, width, room), *facts][:height]


def _utilisation(gpu: GpuRow, width: int, height: int) -> list[Line]:
    room = width - _LABEL - 6
    plot = tinted(chart(gpu.util_history, room, height, 0.0, 1.0), "gpu")
    rows: list[Line] = []
    for y, row in enumerate(plot):
        label = (column("util", _LABEL), "dim") if y == 0 else (" " * _LABEL, "")
        value = (column(percent(gpu.util_ratio), 5), "strong") if y == 0 else ("     ", "")
        rows.append((*line(label, value, " "), *row))
    return rows


def _memory(gpu: GpuRow, width: int) -> Line:
    used, total = gpu.memory_used_bytes, gpu.memory_total_bytes
    ratio = used / total if used is not None and total else None
    text = ABSENT if used is None and total is None else f"{_gib(used)} / {_gib(total)} GiB"
    full, track = meter(ratio, max(width - _LABEL - 6 - len(text) - 2, 0))
    return line(
        (column("memory", _LABEL), "dim"),
        (column(percent(ratio), 5), "strong"),
        " ",
        (full, "warning" if ratio is not None and ratio > 0.95 else "gpu-edge"),
        (track, "track"),
        (f"  {text}", "text"),
    )


def _power(gpu: GpuRow, width: int) -> Line:
    """Power, temperature and clock; what does not fit is left out from the end."""
    power = _of(gpu.power_w, gpu.power_limit_w, "W")
    clock = _of(gpu.sm_clock_mhz, None, "MHz")
    both = _of(gpu.sm_clock_mhz, gpu.sm_clock_max_mhz, "MHz")
    heat = celsius(gpu.temperature_c)
    for facts in ((power, heat, both), (power, heat, clock), (power, heat), (power,)):
        spans = [Span(column("power", _LABEL), "dim")]
        for number_of, fact in enumerate(facts):
            spans += [*line((" · ", "faint"))[: bool(number_of)], Span(fact, "text")]
        if cells(spans) <= width:
            break
    return tuple(spans)


def gpu_row(gpu: GpuRow, width: int) -> Line:
    """One GPU in one line."""
    tail = line(
        (column(f"{_gib(gpu.memory_used_bytes)}/{_gib(gpu.memory_total_bytes)} GiB", 14, ">"), "text"),
        (column(watt(gpu.power_w), 7, ">"), "text"),
        (column(celsius(gpu.temperature_c), 7, ">"), "text"),
        ("  slowed" if gpu.throttle else "", "warning"),
    )
    head = line(
        (f"{gpu.index:<2} ", "strong" if gpu.used_by_run else "dim"), (column(percent(gpu.util_ratio), 6), "strong")
    )
    room = width - cells(head) - cells(tail)
    plot = chart(gpu.util_history, max(room, 0), 1, 0.0, 1.0)
    return clip((*head, Span(plot[0] if plot else "", "gpu-edge"), *tail), width)


def _side_by_side(gpus: Sequence[GpuRow], across: int, width: int, card_rows: int) -> list[Line]:
    gap = 3
    card_width = (width - gap * (across - 1)) // across
    card_rows = min(card_rows, 8)
    rows: list[Line] = []
    for first in range(0, len(gpus), across):
        cards = [gpu_card(gpu, card_width, card_rows) for gpu in gpus[first : first + across]]
        for y in range(card_rows):
            spans: list[Span] = []
            for card in cards:
                if spans:
                    spans.append(Span(" " * gap))
                part = clip(card[y], card_width) if y < len(card) else ()
                spans += [*part, Span(" " * (card_width - cells(part)))]
            rows.append(tuple(spans))
    return rows


def _calm(gpu: GpuRow) -> GpuRow:
    """Without the age of fresh figures and the whole seconds of old ones: a still picture is not painted again."""
    age_s = float(int(gpu.stale_s)) if gpu.stale_s >= _STALE_S else 0.0
    return replace(gpu, stale_s=age_s, util_history=gpu.util_history[-_HISTORY:])


def _name(gpu: GpuRow, width: int) -> Line:
    mark = ("●", "benign") if gpu.used_by_run else ("·", "faint")
    slowed = ", ".join(plain(why) for why in gpu.throttle)
    about = (f"  slowed: {slowed}", "warning") if slowed else (f"  {plain(gpu.name)}", "dim")
    return clip(line(mark, " ", (f"GPU {gpu.index}", "strong"), about), width)


def _gib(value_bytes: int | None) -> str:
    return ABSENT if value_bytes is None else number(value_bytes / _GIB)


def _of(value: float | None, most: float | None, unit: str) -> str:
    """``310 / 700 W``; only what is known."""
    if value is None and most is None:
        return ABSENT
    shown = ABSENT if value is None else f"{value:.0f}"
    return f"{shown} {unit}" if most is None else f"{shown} / {most:.0f} {unit}"
