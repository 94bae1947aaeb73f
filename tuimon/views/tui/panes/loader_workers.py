"""The rows of a loader's workers: how busy each is, what a batch takes, and its hottest line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.cells import cell_len

from tuimon.session.rows import LoaderWorkerRow
from tuimon.session.windows import mean_of_known
from tuimon.views.format import ABSENT, code, ms, percent
from tuimon.views.tui.drawing.lines import Line, Span, column, line, place_column, places_width

NAME = 10  # cells of the first column, at least
_MAKING, _CPU, _TIME = 7, 6, 10
#: Share of a worker's time from which on what it waits for stands in the place of its hottest line.
_MOSTLY = 0.5
_ITEMS, _COLLATE = "chart-edge", "gpu-edge"


class ColumnWidths(NamedTuple):
    """Cells of each column; 0: left out."""

    name: int
    cpu: int
    bar: int
    times: int  # how many of items, collate, waiting and handing over
    place: int
    source: int


def column_widths(rows: Sequence[LoaderWorkerRow], width: int) -> ColumnWidths:
    """The widths that these rows need, as far as ``width`` cells have room for them."""
    times = 4 if width >= 74 else 3 if width >= 64 else 2 if width >= 50 else 0
    name = max(NAME, *(cell_len(row.name) + 1 for row in rows)) if width >= 50 else NAME
    width -= name - NAME
    cpu = _CPU if width >= 64 and any(row.cpu_ratio is not None for row in rows) else 0
    width -= cpu
    gauge = 20 if width >= 116 else 12 if width >= 100 else 8 if width >= 80 else 0
    rest = max(width - NAME - _MAKING - gauge - 2 - times * _TIME - 2, 0)
    known = [row.hot.place for row in rows if row.hot]
    spot = places_width(((place.file, place.line) for place in known), min(max(30, rest // 2), rest))
    return ColumnWidths(name, cpu, gauge, times, max(spot, min(14, rest)), max(rest - max(spot, min(14, rest)), 0))


def column_names(widths: ColumnWidths) -> Line:
    """The head of the table."""
    names = (("items", _ITEMS), ("collate", _COLLATE), ("waiting", "dim"), ("hand over", "dim"))[: widths.times]
    return line(
        (column("", widths.name), "dim"),
        (column("making", _MAKING - 1, ">") + column("CPU", widths.cpu, ">") + " " * (widths.bar + 3), "dim"),
        *((column(name, _TIME, ">"), role) for name, role in names),
        ("  " + column("hottest line", widths.place + widths.source), "dim"),
    )


def worker_line(worker: LoaderWorkerRow, widths: ColumnWidths) -> Line:
    """``worker 0   96 %   8 %  ━━━━━━─  34.1 ms  7.1 ms  1.4 ms  0.2 ms  transforms.py:31  out = cv(img, kernel)``.

    The share of its time in which it makes batches, and its CPU: the rest of the first is waiting inside an item.
    """
    quiet = "faint" if worker.ended else "dim"
    times = (worker.items_ms, worker.collate_ms, worker.wait_ms, worker.hand_over_ms)[: widths.times]
    busy = worker.busy_ratio
    return line(
        (column(worker.name, widths.name), quiet if worker.ended else "text"),
        (column(percent(busy), _MAKING - 1, ">"), "strong" if busy else "dim"),
        (column(percent(worker.cpu_ratio), widths.cpu, ">") if widths.cpu else "", "dim"),
        " ",
        " ",
        *_gauge(worker, widths.bar),
        " ",
        *((column(ms(value), _TIME, ">"), "text" if value else "dim") for value in times),
        "  ",
        *_doing(worker, widths),
    )


def _doing(worker: LoaderWorkerRow, widths: ColumnWidths) -> tuple[Span, ...]:
    """Its hottest line, or what it waits for most of the time."""
    if waits := _waits_for(worker):
        return (Span(column(waits, widths.place + widths.source), "dim"),)
    return (
        Span(_place(worker, widths.place), "key" if worker.hot else "faint"),
        Span(column(_source(worker), widths.source), "text"),
    )


def _waits_for(worker: LoaderWorkerRow) -> str:
    """``waits for the trainer``; empty where it works, and in the training process itself."""
    items, collate, wait, hand_over = worker.items_ms, worker.collate_ms, worker.wait_ms, worker.hand_over_ms
    if worker.ended or items is None or collate is None or wait is None or hand_over is None:
        return ""
    span = items + collate + wait + hand_over
    if wait > _MOSTLY * span:
        return "waits for the trainer"
    return "hands its batches over" if hand_over > _MOSTLY * span else ""


def _gauge(worker: LoaderWorkerRow, width: int) -> tuple[Span, ...]:
    """Items, collate and waiting as parts of one bar."""
    busy = worker.busy_ratio or 0.0
    filled = min(max(round(busy * width), 1 if busy else 0), width)
    items_ms, collate_ms = worker.items_ms or 0.0, worker.collate_ms or 0.0
    collate = round(filled * collate_ms / (items_ms + collate_ms)) if collate_ms else 0
    return (
        Span("━" * (filled - collate), _ITEMS),
        Span("━" * collate, _COLLATE),
        Span("─" * (width - filled), "track"),
    )


def _place(worker: LoaderWorkerRow, width: int) -> str:
    hot = worker.hot
    return place_column(hot.place.file, hot.place.line, width) if hot else column(ABSENT, width)


def _source(worker: LoaderWorkerRow) -> str:
    return code(worker.hot.place.source, worker.hot.place.function) if worker.hot is not None else ""


def mean_worker(rows: Sequence[LoaderWorkerRow], name: str) -> LoaderWorkerRow:
    """Several workers as one: means, and the line that is hottest in any of them."""
    hot = max((row.hot for row in rows if row.hot is not None), key=lambda line: line.samples, default=None)
    return LoaderWorkerRow(
        pid=0,
        name=name,
        busy_ratio=mean_of_known([row.busy_ratio for row in rows]),
        batches_per_s=mean_of_known([row.batches_per_s for row in rows]),
        items_ms=mean_of_known([row.items_ms for row in rows]),
        collate_ms=mean_of_known([row.collate_ms for row in rows]),
        wait_ms=mean_of_known([row.wait_ms for row in rows]),
        hand_over_ms=mean_of_known([row.hand_over_ms for row in rows]),
        hot=hot,
        cpu_ratio=mean_of_known([row.cpu_ratio for row in rows]),
    )
