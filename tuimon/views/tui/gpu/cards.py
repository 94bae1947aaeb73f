"""Several GPUs as cards side by side; MIG instances under a line for the GPU that they are cut from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tuimon.views.format import ABSENT, celsius, plain
from tuimon.views.tui.drawing.lines import Line, Span, cells, clip, line
from tuimon.views.tui.gpu.card import activities, gpu_card
from tuimon.views.tui.gpu.figures import GpuView, joined, out_of
from tuimon.views.tui.gpu.names import mark_of, name_of, trouble_of

_CARD_WIDTH = 36
_GAP = 3
_LEAST_ROWS, _MOST_ROWS = 4, 24


class _Group(NamedTuple):
    """Cards that belong together; ``parent``: the GPU that they are cut from."""

    parent: GpuView | None
    cards: list[GpuView]


def cards_rows(views: Sequence[GpuView], width: int) -> int:
    """Rows that the cards would fill: a head, the utilisation, its parts, memory and power each, and a gap."""
    groups = _groups(views)
    each = 5 + max((len(activities(view.gpu)) for group in groups for view in group.cards), default=0)
    return _rows_of(groups, width, each)


def cards_lines(views: Sequence[GpuView], width: int, height: int) -> list[Line] | None:
    """All cards, equally high; None where they do not fit."""
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
    parents = {view.gpu.latest.parent_uuid for view in views if view.gpu.latest.parent_uuid is not None}
    groups = [_Group(None, [])]
    for view in views:
        if view.gpu.latest.uuid in parents:
            groups.append(_Group(view, []))
        elif view.gpu.latest.parent_uuid is None:
            groups[0].cards.append(view)
        else:
            groups[-1].cards.append(view)
    return [group for group in groups if group.cards]


def _rows_of(groups: Sequence[_Group], width: int, each: int) -> int:
    return sum(bool(g.parent) + -(-len(g.cards) // _across(len(g.cards), width)) * each for g in groups)


def _across(count: int, width: int) -> int:
    """How many cards stand side by side: as many as fit, in even rows (eight as 4 + 4, not 5 + 3)."""
    most = max(1, min(count, (width + _GAP) // (_CARD_WIDTH + _GAP)))
    return -(-count // -(-count // most))


def _side_by_side(views: Sequence[GpuView], across: int, width: int, height: int, *, names: bool) -> list[Line]:
    card_width = (width - _GAP * (across - 1)) // across
    cards = [gpu_card(view, card_width, height, _head(view, card_width, names=names)) for view in views]
    rows: list[Line] = []
    for y in range(height):
        spans: list[Span] = []
        for card in cards:
            part = clip(card[y], card_width) if y < len(card) else ()
            spans += [*part, Span(" " * (card_width - cells(part) + _GAP))]
        rows.append(tuple(spans[:-1]))
    return rows


def _head(view: GpuView, width: int, *, names: bool) -> Line:
    """``● GPU 5  slowed: power cap 34 %``: which it is, and what is wrong with it."""
    gpu = view.gpu.latest
    if gpu.parent_uuid is None:
        title, about = f"GPU {gpu.index}", plain(gpu.name) if names else ""
    else:
        title, about = f"MIG {name_of(view.gpu).removeprefix('└ ')}", plain(gpu.uuid)[:12]
    head = (mark_of(view), Span(title, "strong"), Span("  "))
    trouble = trouble_of(view, width - cells(head))
    return clip((*head, *(trouble or line((about, "dim")))), width)


def _parent_line(view: GpuView, width: int) -> Line:
    """A GPU that is cut into instances: what is measured of it as a whole."""
    gpu = view.gpu.latest
    power = out_of(view.gpu.figures.power_w, gpu.power_limit_w, "W")
    clock = out_of(view.gpu.figures.sm_clock_mhz, gpu.sm_clock_max_mhz, "MHz")
    facts = (power, celsius(gpu.temperature_c), clock)
    head = (*line((f"GPU {gpu.index}", "strong"), "  "), *joined([fact for fact in facts if fact != ABSENT]))
    trouble = trouble_of(view, max(width - cells(head) - 2, 0))
    return clip((*head, Span("  "), *trouble), width)
