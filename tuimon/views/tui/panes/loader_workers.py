"""The rows of a loader's workers: how busy each is, what a batch takes, and its hottest line."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len

from tuimon.session.rows import LoaderWorkerRow
from tuimon.session.series import mean_of_known
from tuimon.views.format import ABSENT, code, ms, percent
from tuimon.views.tui.drawing.lines import Line, Span, column, line, place_column, places_width
from tuimon.views.tui.drawing.table import Column, columns_of

NAME = 10  # cells of the first column, at least
_MAKING, _CPU, _TIME = 7, 6, 10
#: Share of a worker's time from which on what it waits for stands in the place of its hottest line.
_MOSTLY = 0.5
_ITEMS, _COLLATE = "chart-edge", "gpu-edge"


def worker_columns(rows: Sequence[LoaderWorkerRow], width: int) -> list[Column[LoaderWorkerRow]]:
    """The columns for these rows, as far as ``width`` cells have room for them.

    The share of its time in which it makes batches, and its CPU: the rest of the first is waiting inside an item.
    """
    times = 4 if width >= 74 else 3 if width >= 64 else 2 if width >= 50 else 0
    name = max(NAME, *(cell_len(row.name) + 1 for row in rows)) if width >= 50 else NAME
    width -= name - NAME
    cpu = _CPU if width >= 64 and any(row.cpu_ratio is not None for row in rows) else 0
    width -= cpu
    gauge = 20 if width >= 116 else 12 if width >= 100 else 8 if width >= 80 else 0
    rest = max(width - NAME - _MAKING - gauge - 2 - times * _TIME - 2, 0)
    known = [row.hot.place for row in rows if row.hot]
    spot = places_width(((place.file, place.line) for place in known), min(max(30, rest // 2), rest))
    spot = max(spot, min(14, rest))
    return columns_of(
        Column("", name, lambda row: (row.name, "faint" if row.ended else "text")),
        Column(
            "making", _MAKING - 1, lambda row: (percent(row.busy_ratio), "strong" if row.busy_ratio else "dim"), ">"
        ),
        Column("CPU", cpu, lambda row: (percent(row.cpu_ratio), "dim"), ">"),
        Column("", gauge + 3, lambda row: line("  ", *_gauge(row, gauge), " ")),
        *(
            [
                Column("items", _TIME, lambda row: _time(row.items_ms), ">", role=_ITEMS),
                Column("collate", _TIME, lambda row: _time(row.collate_ms), ">", role=_COLLATE),
                Column("waiting", _TIME, lambda row: _time(row.wait_ms), ">"),
                Column("hand over", _TIME, lambda row: _time(row.hand_over_ms), ">"),
            ][:times]
        ),
        Column("  hottest line", rest + 2, lambda row: line("  ", *_doing(row, spot, max(rest - spot, 0)))),
    )


def _time(value_ms: float | None) -> tuple[str, str]:
    return ms(value_ms), "text" if value_ms else "dim"


def _doing(worker: LoaderWorkerRow, spot: int, room: int) -> Line:
    """Its hottest line, the place in ``spot`` cells; or what it waits for most of the time."""
    if waits := _waits_for(worker):
        return line((column(waits, spot + room), "dim"))
    if worker.hot is None:
        return line((column(ABSENT, spot + room), "faint"))
    place = worker.hot.place
    source = column(code(place.source, place.function), room)
    return line((place_column(place.file, place.line, spot), "key"), (source, "text"))


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
