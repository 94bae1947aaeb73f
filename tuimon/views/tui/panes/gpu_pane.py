"""The GPU pane: the GPUs that the run uses in front, as cards or as a table; the others in one line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from msgspec import structs
from rich.cells import cell_len

from tuimon.proc.numa import core_list
from tuimon.session.gpus import GpuRow
from tuimon.text import plural
from tuimon.views.format import ABSENT, celsius, percent, plain, spread_text, watt
from tuimon.views.run_text import CHARTED
from tuimon.views.scale import Axis, mean, on_axis
from tuimon.views.tui.drawing.canvas import Pane
from tuimon.views.tui.drawing.charts import chart
from tuimon.views.tui.drawing.lines import (
    GAP,
    Column,
    Line,
    Span,
    chained,
    clip,
    clipped,
    column,
    fitting_widths,
    head_line,
    line,
    line_width,
    row_line,
    shown_columns,
    text_of,
)
from tuimon.views.tui.panes.gpu_card import (
    GpuView,
    TorchShare,
    chart_rows,
    counters_of,
    full_rows,
    gib,
    gpu_card,
    joined,
    out_of,
    trouble_of,
)

if TYPE_CHECKING:
    from tuimon.diagnosis.finding import Finding
    from tuimon.views.report.report import Parts

_MIN_CARD, _UNUSED_CARDS, _CARD_WIDTH = 3, 2, 36
#: Rows of a card among several.
_CARD_ROWS = range(24, 3, -1)


class GpuState(NamedTuple):
    """The GPUs, or the reason why there is none."""

    views: tuple[GpuView, ...]
    note: str | None
    hint: str | None = None
    span: str = "last 30s"  # the name of the time that the means cover

    @property
    def front(self) -> list[GpuView]:
        """The GPUs that the run uses, or all if none is known to be used; MIG instances below their GPU."""
        return [view for view in self.views if view.gpu.used_by_run] or list(self.views)

    @property
    def folded(self) -> list[GpuRow]:
        """All others."""
        return [view.gpu for view in self.views if view.gpu.used_by_run is not self.front[0].gpu.used_by_run]


class GpuPane(Pane[GpuState]):
    """One card a GPU; a table if there are many; one line if there is none."""

    sources = ("gpu",)

    def collect(self, now: Parts, findings: Sequence[Finding]) -> GpuState:
        """All devices, and the source's notice."""
        notice, gpus, session = next(iter(self.notices(now)), None), now.view.gpus(), now.session
        is_alone = sum(gpu.used_by_run for gpu in gpus) == 1  # then processes need not report their device
        views, is_over = [], session.exit is not None and bool(now.view.stepping_spans())
        for gpu in gpus:
            uuids = {gpu.latest.uuid, *({None} if is_alone and gpu.used_by_run else ())}
            share = TorchShare.on(uuids, map(now.view.of, session.trainers_here()))
            views.append(GpuView(_as_shown(gpu, now.axis, is_over=is_over), share, now.axis.span_s, now.span_name))
        return GpuState(
            tuple(views),
            plain(notice.message) if notice is not None else None,
            plain(notice.hint) if notice is not None and notice.hint else None,
            now.span_name,
        )

    def draw(self, state: GpuState, width: int, height: int) -> list[Line]:
        return gpus_lines(state, width, height)

    def rows_wanted(self, width: int, most: int) -> int:
        return gpu_rows_wanted(self.state, width, most) if self.state is not None and self.state.views else 0

    def heading(self, state: GpuState) -> tuple[Span, ...]:
        """The name of a single GPU, or the number of GPUs; and the time that the means cover."""
        front = [view.gpu for view in state.front]
        names = {plain(gpu.latest.name).removeprefix("NVIDIA ") for gpu in front if gpu.latest.parent_uuid is None}
        about = f" · {names.pop()}" if len(names) == 1 else ""
        if any(gpu.means is not None for gpu in front):
            about += f" · {state.span}"
        used = [view.gpu.used_by_run for view in state.views if not view.gpu.is_divided]  # its instances count instead
        which = f" · {sum(used)} of {len(used)} used by this run" if len(front) != 1 else f" {front[0].latest.index}"
        return line(("2 ", "key"), ("GPU", "text bold"), (f"{which}{about}", "dim"))


def _as_shown(gpu: GpuRow, axis: Axis, *, is_over: bool) -> GpuRow:
    """Only what is shown, ages in whole seconds: equal rows are not painted again.

    A run that ``is_over`` has given its memory back: the most in use in the steps is shown.
    """
    used_bytes = (gpu.figures if is_over else gpu.latest).memory_used_bytes
    changed = {"t": 0.0, "util_samples": [], "energy_j": None, "xids": [], "cost_ms": None}
    begins_s, ends_s = gpu.history("begin_s"), gpu.history("end_s")
    spans = [(begin_s or 0.0, end_s or 0.0) for begin_s, end_s in zip(begins_s, ends_s, strict=True)]
    if spans:  # the first reading is of the time before it
        spans[0] = (min(spans[0][0], spans[0][1] - axis.slot_s), spans[0][1])
    return structs.replace(
        gpu,
        stale_s=float(int(gpu.stale_s)) if gpu.is_old else 0.0,
        latest=structs.replace(gpu.latest, memory_used_bytes=used_bytes, **changed),
        course={name: on_axis(spans, gpu.history(name), axis, mean) for name in CHARTED},
    )


def gpu_rows_wanted(state: GpuState, width: int, most: int) -> int:
    """Rows of content for these GPUs in this inner width: cards, or a table if they take more than ``most``."""
    views, rest = state.front, bool(state.folded) + bool(state.note)
    if len(views) == 1:
        return full_rows(views[0]) + rest
    groups = _groups(views)
    counters = [counters_of(view.gpu) for _, cards in groups for view in cards]
    charts = max((chart_rows(each, (0, 1)) for each in counters), default=0)
    rows = _rows_of(groups, width, 5 + charts)  # a head, the utilisation, memory and power each, and a gap
    return (rows if rows <= most and _worth_cards(views) else len(views) + 1) + rest


def gpus_lines(state: GpuState, width: int, height: int) -> list[Line]:
    """Cards, or a table if cards do not fit, or one line that names what is missing."""
    if not state.views:
        return [line(("GPU ", "text bold"), (_note(state, width - 4), "dim"))]
    views, below = state.front, [folded_line(state.folded, width)] if state.folded else []
    below += [line((_note(state, width), "warning"))] if state.note else []
    below = below[: max(height - 1, 0)]
    room = height - len(below)
    if len(views) == 1 and room >= _MIN_CARD:
        return [*gpu_card(views[0], width, room), *below]
    cards = _cards(views, width, room) if len(views) > 1 and _worth_cards(views) else []
    return [*(cards or (_table if len(views) <= room else _mosaic)(views, width, room)), *below]


def _note(state: GpuState, width: int) -> str:
    """The source's notice, with its advice if there is room."""
    note = state.note or "none seen so far"
    whole = f"{note} – {state.hint}"
    return whole if state.hint and cell_len(whole) <= width else clipped(note, width)


def folded_line(gpus: Sequence[GpuRow], width: int) -> Line:
    """The GPUs that the run does not use, with the utilisation of the busiest."""
    whole = [gpu for gpu in gpus if gpu.latest.parent_uuid is None]
    numbers = core_list({gpu.latest.index for gpu in whole}).replace("-", "–").replace(",", ", ")
    parts = len(gpus) - len(whole)
    instances = plural(parts, "MIG instance") if parts else ""
    which = " and ".join(filter(None, (f"GPU {numbers}" if whole else "", instances)))
    known = [gpu.figures.util_ratio for gpu in whole if gpu.figures.util_ratio is not None]
    text = f"not used by this run: {which}" + (f" · busiest {percent(max(known))}" if known else "")
    return line((clipped(text if len(text) <= width else f"not used: {which}", width), "dim"))


def _name(gpu: GpuRow) -> str:
    """``0``; a MIG instance, as part of the line above it, by its profile: ``└ 1g.10gb``."""
    return str(gpu.latest.index) if gpu.latest.parent_uuid is None else f"└ {_profile(gpu)}"


def _profile(gpu: GpuRow) -> str:
    return plain(gpu.latest.name).rpartition("MIG ")[2]


def _mark(gpu: GpuRow) -> Span:
    """A dot: bright if the run uses the GPU, in the colour of its trouble if it has one."""
    if trouble := trouble_of(gpu, 80):
        return Span("● ", trouble[0].role.split()[0])
    return Span("● ", "benign") if gpu.used_by_run else Span("· ", "faint")


# -- cards

#: A GPU that is cut into MIG instances, or None, and the cards below it.
_Group = tuple[GpuView | None, list[GpuView]]


def _worth_cards(views: Sequence[GpuView]) -> bool:
    """True if the GPUs get cards: a machine full of GPUs that the run does not use is a table."""
    return len(views) <= _UNUSED_CARDS or any(view.gpu.used_by_run for view in views)


def _groups(views: Sequence[GpuView]) -> list[_Group]:
    """MIG instances by their GPU, all others together."""
    groups: list[_Group] = [(None, [])]
    for view in views:
        if view.gpu.is_divided:
            groups.append((view, []))
        else:
            groups[0 if view.gpu.latest.parent_uuid is None else -1][1].append(view)
    return [group for group in groups if group[1]]


def _rows_of(groups: Sequence[_Group], width: int, each: int) -> int:
    return sum(bool(parent) + -(-len(cards) // _across(len(cards), width)) * each for parent, cards in groups)


def _across(count: int, width: int) -> int:
    """The number of cards side by side: as many as fit, in even rows (eight as 4 + 4, not 5 + 3)."""
    most = max(1, min(count, (width + GAP) // (_CARD_WIDTH + GAP)))
    return -(-count // -(-count // most))


def _cards(views: Sequence[GpuView], width: int, height: int) -> list[Line]:
    """All cards, equally high; empty if they do not fit."""
    groups, lines = _groups(views), list[Line]()
    each = next((rows for rows in _CARD_ROWS if _rows_of(groups, width, rows) <= height), 0)
    has_names = len({view.gpu.latest.name for view in views if view.gpu.latest.parent_uuid is None}) > 1
    for parent, cards in groups if each else ():
        lines += [_parent_line(parent.gpu, width)] if parent is not None else []
        across = _across(len(cards), width)
        room = (width - GAP * (across - 1)) // across
        for first in range(0, len(cards), across):
            drawn = [
                gpu_card(view, room, each, _head(view.gpu, room, has_names=has_names))
                for view in cards[first : first + across]
            ]
            for y in range(min(each, max(map(len, drawn)) + 1)):
                beside = [clip(card[y], room) if y < len(card) else () for card in drawn]
                lines.append(chained([(*part, Span(" " * (room - line_width(part)))) for part in beside], _BLANKS))
    return lines


def _head(gpu: GpuRow, width: int, *, has_names: bool) -> Line:
    """``● GPU 5  slowed: power cap 34 %``: its name and its trouble."""
    title, about = f"GPU {gpu.latest.index}", plain(gpu.latest.name) if has_names else ""
    if gpu.latest.parent_uuid is not None:
        title, about = f"MIG {_profile(gpu)}", plain(gpu.latest.uuid)[:12]
    head = line(_mark(gpu), (title, "strong"), "  ")
    return clip((*head, *(trouble_of(gpu, width - line_width(head)) or line((about, "dim")))), width)


def _parent_line(gpu: GpuRow, width: int) -> Line:
    """The figures of a whole GPU that is cut into MIG instances."""
    power = out_of(gpu.figures.power_w, gpu.latest.power_limit_w, "W")
    clock = out_of(gpu.figures.sm_clock_mhz, gpu.latest.sm_clock_max_mhz, "MHz")
    facts = [fact for fact in (power, celsius(gpu.latest.temperature_c), clock) if fact != ABSENT]
    head = line((f"GPU {gpu.latest.index}", "strong"), "  ", *joined(facts), "  ")
    return clip((*head, *trouble_of(gpu, max(width - line_width(head), 0))), width)


# -- many GPUs

_MIN_CHART, _MAX_CHART = 6, 60
#: Columns of a share, and of the utilisation with its gaps.
_PERCENT = 5
_UTIL = 1 + _PERCENT + GAP
_BLANKS = Span(" " * GAP)
#: The columns of figures: width and text.
_FIGURES: dict[str, tuple[int, Callable[[GpuRow], str]]] = {
    "tensor": (6, lambda gpu: percent(gpu.figures.tensor_ratio)),
    "SM": (5, lambda gpu: percent(gpu.figures.sm_ratio)),
    "memory": (6, lambda gpu: percent(gpu.latest.memory_ratio)),
    "GiB": (5, lambda gpu: gib(gpu.latest.memory_used_bytes)),
    "power": (6, lambda gpu: watt(gpu.figures.power_w)),
    "heat": (6, lambda gpu: celsius(gpu.latest.temperature_c)),
}
#: Those that stay longest when room is short come first.
_IMPORTANCE = ("memory", "tensor", "power", "heat", "GiB", "SM")


def _known(views: Sequence[GpuView]) -> list[str]:
    """The figures that are known of any GPU."""
    return [name for name, (_, text) in _FIGURES.items() if any(text(view.gpu) != ABSENT for view in views)]


def _plot(view: GpuView, counter: str, width: int) -> str:
    return "".join(chart(view.gpu.history(counter), width, 1, 0.0, 1.0))


def _table(views: Sequence[GpuView], width: int, height: int) -> list[Line]:
    """A line for each GPU, under column heads if ``height`` leaves room for them."""
    known, names = _known(views), max(cell_len(_name(view.gpu)) for view in views)
    most = max(width // 4, 10)
    notes = min(max(line_width(trouble_of(view.gpu, most)) for view in views), most)
    room = width - 2 - names - _UTIL - _MIN_CHART - (notes + GAP) * bool(notes)
    shown, room = fitting_widths({name: _FIGURES[name][0] + GAP for name in _IMPORTANCE if name in known}, room)
    plot = min(room + _MIN_CHART, _MAX_CHART)

    def figure(name: str) -> Column[GpuView]:
        text, role = _FIGURES[name][1], "strong" if name == "tensor" else "text"
        return Column(name, shown[name], lambda v: (text(v.gpu), "dim" if v.gpu.is_old else role), ">")

    columns: list[Column[GpuView]] = shown_columns(
        Column("", 2, lambda v: _mark(v.gpu)),
        Column("", names, lambda v: (_name(v.gpu), "text" if v.gpu.used_by_run else "dim")),
        Column("util", _UTIL - GAP, lambda v: (percent(v.gpu.figures.util_ratio), v.strong), ">", GAP),
        Column("", plot, lambda v: (_plot(v, "util_ratio", plot), "gpu-edge")),
        *map(figure, known),
        Column("", (notes + GAP) * bool(notes), lambda v: (_BLANKS, *clip(trouble_of(v.gpu, notes), notes))),
    )
    heads = [line((text_of(head_line(columns)).rstrip(), "dim"))] if len(views) < height else []
    return [clip(row, width) for row in (*heads, *(row_line(columns, view) for view in views))]


def _mosaic(views: Sequence[GpuView], width: int, height: int) -> list[Line]:
    """Several GPUs in a line; below them their troubles, or the range of their figures.

    Each with its utilisation; a MIG instance, for which the driver may not report it, with its SM activity.
    """
    views = [view for view in views if not view.gpu.is_divided]  # of which only the instances are shown
    names = max(cell_len(_name(view.gpu)) for view in views)
    least, rows = 2 + names + _PERCENT, max(height - 1, 1)
    across = min(max(-(-len(views) // rows), 1), max((width + GAP) // (least + GAP), 1))
    room = (width + GAP) // across - GAP - least
    plot = room - 1 if room > 2 else 0

    def tile(view: GpuView) -> Line:
        counter = view.gpu.busy_counter
        util = column(percent(getattr(view.gpu.figures, counter)), _PERCENT, ">"), view.strong
        course = " " * bool(plot) + _plot(view, counter, plot), "gpu-edge"
        return line(_mark(view.gpu), (column(_name(view.gpu), names), "text"), util, course)

    shown = list(map(tile, views[: across * rows]))
    lines = [chained(shown[first : first + across], _BLANKS) for first in range(0, len(shown), across)]
    if len(lines) < height:
        hidden = len(views) - len(shown)
        more = [line((f"+{hidden} more (z)", "dim"))] if hidden else []
        lines.append(chained([*(_troubles(views, width) or _ranges(views)), *more], _BLANKS))
    return [clip(row, width) for row in lines]


def _troubles(views: Sequence[GpuView], width: int) -> list[Line]:
    """The trouble of each GPU that has one."""
    found = [view.gpu for view in views if trouble_of(view.gpu, width)]
    room = width // max(len(found), 1) - 6
    return [line((f"{_name(gpu)}: ", "text"), *trouble_of(gpu, room)) for gpu in found]


def _ranges(views: Sequence[GpuView]) -> list[Line]:
    """The range of each figure."""
    known = [(name, _FIGURES[name][1]) for name in _known(views) if name != "GiB"]
    return [line((f"{name} ", "dim"), (spread_text(text(v.gpu) for v in views), "text")) for name, text in known]
