"""The GPU pane: the GPUs that the run uses in front, as cards or as a table; the others in one line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from msgspec import structs
from rich.cells import cell_len

from tuimon.session.gpus import GpuRow
from tuimon.views.format import ABSENT, celsius, duration, percent, plain
from tuimon.views.scale import Axis, axis_of, mean, on_axis
from tuimon.views.tui.drawing.canvas import Pane
from tuimon.views.tui.drawing.charts import chart, tinted
from tuimon.views.tui.drawing.lines import GAP, Line, Span, cells, clip, clipped, column, line
from tuimon.views.tui.panes.gpu_figures import (
    LABEL,
    VALUE,
    GpuView,
    TorchShare,
    alarm_lines,
    folded_line,
    gpu_mosaic,
    gpu_table,
    held_of,
    joined,
    label,
    mark_of,
    memory_line,
    name_of,
    out_of,
    peak_line,
    power_gauge,
    power_line,
    process_lines,
    rates_lines,
    slowed_line,
    stale_badge,
    torch_line,
    trouble_of,
    value,
)
from tuimon.views.words import CHARTED

if TYPE_CHECKING:
    from tuimon.diagnosis.finding import Finding
    from tuimon.session.session import Session

_LEAST_CARD = 3  # rows
_UNUSED_CARDS = 2

_CARD_WIDTH = 36
_LEAST_ROWS, _MOST_ROWS = 4, 24
_PROCESSES = 4
_LEAST_CHART = 10  # cells
#: The parts by importance (where rows are short the last go first) and from top to bottom; "charts" are those of SM,
#: tensor and DRAM below the utilisation.
_IMPORTANCE = ("alarms", "stale", "memory", "slowed", "power", "torch", "peak", "charts", "processes", "rates")
_ORDER = ("alarms", "stale", "charts", "memory", "torch", "peak", "power", "slowed", "rates", "processes")
#: Rows of the utilisation's chart and of each chart below it: the first that fit.
_CHART_ROWS = ((4, 2), (4, 1), (3, 1), (2, 1), (1, 1))


class Activity(NamedTuple):
    """The activity of a GPU, or of a part of it: its mean over the steps, and its history."""

    name: str
    ratio: float | None
    history: tuple[float | None, ...]

    @property
    def is_known(self) -> bool:
        return any(ratio is not None for ratio in (self.ratio, *self.history))


def activities(gpu: GpuRow) -> tuple[list[Activity], list[Activity]]:
    """The utilisation of the GPU, unless a MIG instance does not report it, and the activity of its parts: none before
    Hopper.
    """
    util, *parts = (Activity(name, getattr(gpu.figures, each), gpu.history(each)) for each, name in CHARTED.items())
    is_shown = gpu.latest.parent_uuid is None or util.is_known
    return [util] * is_shown, [part for part in parts if part.is_known]


def gpu_card(view: GpuView, width: int, height: int, head: Line | None = None) -> list[Line]:
    """One GPU in at most ``height`` lines; the charts take the rows that the figures leave.

    With a ``head``, only that shows a GPU's trouble, so that cards side by side stay aligned.
    """
    heads = [head] if head is not None else []
    parts = _parts(view, width)
    if head is not None:
        parts |= {"alarms": [], "stale": [], "slowed": []}
    room = height - len(heads) - len(activities(view.gpu)[0])
    kept = set()
    for name in _IMPORTANCE:
        if len(parts[name]) > room:
            break
        kept.add(name)
        room -= len(parts[name])
    gauge = power_gauge(view, width)
    if gauge is not None and room >= 2 and "power" in kept:
        parts["power"] = [gauge, power_line(view, width, has_gauge=True)]
        room -= 1
    parts["charts"] = _charts(view, width, room, below="charts" in kept)
    return [*heads, *(row for name in _ORDER if name in kept or name == "charts" for row in parts[name])][:height]


def _parts(view: GpuView, width: int) -> dict[str, list[Line]]:
    """All parts as lines; the charts as empty ones, which are only counted."""
    row, gpu = view.gpu, view.gpu.latest
    torch, slowed, badge = torch_line(view, width), slowed_line(row, width), stale_badge(view, width)
    peak = peak_line(view, width)
    unknown = gpu.parent_uuid is not None and gpu.power_w is None and gpu.temperature_c is None
    return {
        "alarms": alarm_lines(row, width),
        "stale": [badge] if badge else [],
        "charts": [() for _ in activities(row)[1]],
        "memory": [memory_line(view, width)],
        "torch": [torch] if torch else [],
        "peak": [peak] if peak else [],
        "power": [] if unknown else [power_line(view, width)],
        "slowed": [slowed] if slowed else [],
        "rates": rates_lines(view, width),
        "processes": process_lines(view, width, _PROCESSES),
    }


def _charts(view: GpuView, width: int, free: int, *, below: bool) -> list[Line]:
    """A chart of the utilisation; SM, tensor and DRAM as charts below it on the same scale, or beside it as figures."""
    util, others = activities(view.gpu)
    others = others if below else []
    room = free + len(util) + len(others)
    util_rows, other_rows = next(
        (rows for rows in _CHART_ROWS if rows[0] * len(util) + rows[1] * len(others) <= room), (1, 1)
    )
    beside = () if below else _beside(view, width)
    rows = [row for activity in util for row in _chart(activity, view, width, util_rows, beside)]
    return rows + [row for activity in others for row in _chart(activity, view, width, other_rows)]


def _chart(activity: Activity, view: GpuView, width: int, height: int, beside: Line = ()) -> list[Line]:
    plot = chart(activity.history, width - LABEL - VALUE - cells(beside), height, 0.0, 1.0)
    head = (label(activity.name), value(percent(activity.ratio), view.strong))
    notes = ["", "", ""]
    if activity.name == "util" and view.span_s:  # the others are on the same time axis
        notes[0] = f"last {duration(view.span_s)}"
        notes[1] = "gap: not read" * any(None in values for values in view.gpu.course.values())
    under = [line((column(note, LABEL + VALUE), "dim")) for note in notes]
    return [
        (*head, *row, *beside) if y == 0 else (*under[y - 1], *row)
        for y, row in enumerate(tinted(plot, "gpu", has_top=height > 1))
    ]


def _beside(view: GpuView, width: int) -> Line:
    """``  SM 71 %  tensor 12 %  DRAM 44 %``: as many as leave room for a chart, the tensor cores first."""
    known = [activity for activity in activities(view.gpu)[1] if activity.ratio is not None]
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


class GpuState(NamedTuple):
    """The GPUs, or the reason why there is none."""

    views: tuple[GpuView, ...]
    note: str | None
    hint: str | None = None
    whole_run: bool = False  # the means are over all steps of the run

    @property
    def front(self) -> list[GpuView]:
        """The GPUs that the run uses, or all if none is known to be used; MIG instances below their GPU."""
        return [view for view in self.views if view.gpu.used_by_run] or list(self.views)

    @property
    def folded(self) -> list[GpuRow]:
        """All others."""
        return [view.gpu for view in self.views if view.gpu.used_by_run is not self.front[0].gpu.used_by_run]


class GpuPane(Pane[GpuState]):
    """One card a GPU; a table where there are many; one line where there is none."""

    sources = ("gpu",)

    def collect(self, session: Session, findings: Sequence[Finding]) -> GpuState:
        """All devices, and the source's notice."""
        notice, run = next(iter(self.notices(session)), None), session.shown()
        axis, views = axis_of(session), []
        torch = [
            (row, held_of(own.process) if len(own.torch_memory) == 1 else None)
            for own in map(run.of, session.trainers_here())
            for row in own.torch_memory
        ]
        is_alone = sum(gpu.used_by_run for gpu in run.gpus()) == 1  # then processes need not report their device
        for gpu in run.gpus():
            # only what is shown, ages in whole seconds: equal rows are not painted again
            shown = structs.replace(
                gpu,
                stale_s=float(int(gpu.stale_s)) if gpu.is_old else 0.0,
                latest=structs.replace(gpu.latest, t=0.0, util_samples=[], energy_j=None, xids=[], cost_ms=None),
                course=_on_axis(gpu, axis),
            )
            uuids = {gpu.latest.uuid, *({None} if is_alone and gpu.used_by_run else ())}
            share = TorchShare.of([each for each in torch if each[0].uuid in uuids])
            views.append(GpuView(shown, share, axis.span_s))
        return GpuState(
            tuple(views),
            plain(notice.message) if notice is not None else None,
            plain(notice.hint) if notice is not None and notice.hint else None,
            session.exit is not None and bool(run.stepping_spans()),
        )

    def draw(self, state: GpuState, width: int, height: int) -> list[Line]:
        return gpus_lines(state, width, height)

    def heading(self, state: GpuState) -> tuple[Span, ...]:
        """The name of a single GPU, or the number of GPUs; and the time that the means cover."""
        spans = (Span("2 ", "key"), Span("GPU", "text bold"))
        front, gpus = [view.gpu for view in state.front], [view.gpu for view in state.views]
        names = {plain(gpu.latest.name).removeprefix("NVIDIA ") for gpu in front if gpu.latest.parent_uuid is None}
        name = f" · {names.pop()}" if len(names) == 1 else ""
        span = " · while training" if state.whole_run else " · last 30 s"
        span = span if any(gpu.means is not None for gpu in front) else ""
        if len(front) == 1:
            return (*spans, Span(f" {front[0].latest.index}{name}{span}", "dim"))
        used = [gpu.used_by_run for gpu in gpus if not gpu.is_divided]  # its instances count instead
        return (*spans, Span(f" · {sum(used)} of {len(used)} used by this run{name}{span}", "dim"))


def gpu_rows_wanted(state: GpuState, width: int, most: int) -> int:
    """Rows of content for these GPUs in this inner width: cards, or a table where they take more than ``most``."""
    views, rest = state.front, bool(state.folded) + bool(state.note)
    if len(views) == 1:
        parts, gauge = _parts(views[0], 80), power_gauge(views[0], 80)  # all of a card, its charts as high as they get
        charts = _CHART_ROWS[0][0] * len(activities(views[0].gpu)[0]) + (_CHART_ROWS[0][1] - 1) * len(parts["charts"])
        return sum(map(len, parts.values())) + charts + (gauge is not None) + rest
    groups = _groups(views)
    charts = max((len(activities(view.gpu)[1]) for group in groups for view in group.cards), default=0)
    rows = _rows_of(groups, width, 5 + charts)  # a head, the utilisation, memory and power each, and a gap
    return (rows if rows <= most and _worth_cards(views) else len(views) + 1) + rest


def gpus_lines(state: GpuState, width: int, height: int) -> list[Line]:
    """Cards, or a table where cards do not fit, or one line with what is missing."""
    if not state.views:
        return [line(("GPU ", "text bold"), (_note(state, width - 4), "dim"))]
    views, below = state.front, [folded_line(state.folded, width)] if state.folded else []
    below += [line((_note(state, width), "warning"))] if state.note else []
    below = below[: max(height - 1, 0)]
    room = height - len(below)
    if len(views) == 1 and room >= _LEAST_CARD:
        return [*gpu_card(views[0], width, room), *below]
    cards = cards_lines(views, width, room) if len(views) > 1 and _worth_cards(views) else None
    if cards is None:
        cards = gpu_table(views, width, room) if len(views) <= room else gpu_mosaic(views, width, room)
    return [*cards, *below]


def _note(state: GpuState, width: int) -> str:
    """The source's notice, with its advice if there is room."""
    note = state.note or "none seen so far"
    whole = f"{note} – {state.hint}"
    return whole if state.hint and cell_len(whole) <= width else clipped(note, width)


def _worth_cards(views: Sequence[GpuView]) -> bool:
    """True if the GPUs get cards: a machine full of GPUs that the run does not use is a table."""
    return len(views) <= _UNUSED_CARDS or any(view.gpu.used_by_run for view in views)


def _on_axis(gpu: GpuRow, axis: Axis) -> dict[str, tuple[float | None, ...]]:
    begins_s, ends_s = gpu.history("begin_s"), gpu.history("end_s")
    spans = [(begin_s or 0.0, end_s or 0.0) for begin_s, end_s in zip(begins_s, ends_s, strict=True)]
    if spans:  # the first reading is of the time before it
        spans[0] = (min(spans[0][0], spans[0][1] - axis.slot_s), spans[0][1])
    course = {}
    for name in CHARTED:
        values = on_axis(spans, gpu.history(name), axis, mean)
        course[name] = values
    return course


class _Group(NamedTuple):
    """Cards that belong together; ``parent``: the GPU whose MIG instances they show."""

    parent: GpuView | None
    cards: list[GpuView]


def cards_lines(views: Sequence[GpuView], width: int, height: int) -> list[Line] | None:
    """All cards, equally high; None if they do not fit."""
    groups = _groups(views)
    each = next((rows for rows in range(_MOST_ROWS, _LEAST_ROWS - 1, -1) if _rows_of(groups, width, rows) <= height), 0)
    if not each:
        return None
    names = len({view.gpu.latest.name for view in views if view.gpu.latest.parent_uuid is None}) > 1
    lines: list[Line] = []
    for group in groups:
        lines += [_parent_line(group.parent, width)] if group.parent else []
        across = _across(len(group.cards), width)
        for first in range(0, len(group.cards), across):
            lines += _side_by_side(group.cards[first : first + across], across, width, each, names=names)
    return lines


def _groups(views: Sequence[GpuView]) -> list[_Group]:
    """MIG instances by their GPU, all others together."""
    groups = [_Group(None, [])]
    for view in views:
        if view.gpu.is_divided:
            groups.append(_Group(view, []))
        elif view.gpu.latest.parent_uuid is None:
            groups[0].cards.append(view)
        else:
            groups[-1].cards.append(view)
    return [group for group in groups if group.cards]


def _rows_of(groups: Sequence[_Group], width: int, each: int) -> int:
    return sum(bool(g.parent) + -(-len(g.cards) // _across(len(g.cards), width)) * each for g in groups)


def _across(count: int, width: int) -> int:
    """The number of cards side by side: as many as fit, in even rows (eight as 4 + 4, not 5 + 3)."""
    most = max(1, min(count, (width + GAP) // (_CARD_WIDTH + GAP)))
    return -(-count // -(-count // most))


def _side_by_side(views: Sequence[GpuView], across: int, width: int, height: int, *, names: bool) -> list[Line]:
    card_width = (width - GAP * (across - 1)) // across
    cards = [gpu_card(view, card_width, height, _head(view, card_width, names=names)) for view in views]
    rows: list[Line] = []
    for y in range(min(height, max(map(len, cards)) + 1)):
        spans: list[Span] = []
        for card in cards:
            part = clip(card[y], card_width) if y < len(card) else ()
            spans += [*part, Span(" " * (card_width - cells(part) + GAP))]
        rows.append(tuple(spans[:-1]))
    return rows


def _head(view: GpuView, width: int, *, names: bool) -> Line:
    """``● GPU 5  slowed: power cap 34 %``: its name and its trouble."""
    gpu = view.gpu.latest
    if gpu.parent_uuid is None:
        title, about = f"GPU {gpu.index}", plain(gpu.name) if names else ""
    else:
        title, about = f"MIG {name_of(view.gpu).removeprefix('└ ')}", plain(gpu.uuid)[:12]
    head = (mark_of(view), Span(title, "strong"), Span("  "))
    trouble = trouble_of(view, width - cells(head))
    return clip((*head, *(trouble or line((about, "dim")))), width)


def _parent_line(view: GpuView, width: int) -> Line:
    """The figures of a whole GPU that is cut into MIG instances."""
    gpu = view.gpu.latest
    power = out_of(view.gpu.figures.power_w, gpu.power_limit_w, "W")
    clock = out_of(view.gpu.figures.sm_clock_mhz, gpu.sm_clock_max_mhz, "MHz")
    facts = (power, celsius(gpu.temperature_c), clock)
    head = (*line((f"GPU {gpu.index}", "strong"), "  "), *joined([fact for fact in facts if fact != ABSENT]))
    trouble = trouble_of(view, max(width - cells(head) - 2, 0))
    return clip((*head, Span("  "), *trouble), width)
