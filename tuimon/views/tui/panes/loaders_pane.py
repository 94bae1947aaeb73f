"""The Loaders pane: each DataLoader, its ready batches, and the use of its workers' time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace
from rich.cells import cell_len

from tuimon.session.loaders import LoaderRow, LoaderWorkerRow
from tuimon.session.series import mean_of_known
from tuimon.threshold import MOST
from tuimon.views.format import ABSENT, code, duration, ms, percent, plain, rate
from tuimon.views.report.report import loaders_of
from tuimon.views.scale import mean, on_axis
from tuimon.views.tui.drawing.canvas import Pane
from tuimon.views.tui.drawing.charts import chart, tinted
from tuimon.views.tui.drawing.lines import (
    NAME,
    Column,
    Line,
    Span,
    chained,
    column,
    head_line,
    justified,
    line,
    line_width,
    place_column,
    places_width,
    row_line,
    shown_columns,
)

if TYPE_CHECKING:
    from tuimon.diagnosis.finding import Finding
    from tuimon.views.report.report import Parts

#: A loader unused for longer is shown as idle: most are, while another trains or evaluates.
_IDLE_S = 3.0

_MAKING, _CPU, _TIME, _MIN_CHART = 7, 6, 10, 15
_ITEMS, _COLLATE = "chart-edge", "gpu-edge"


class LoadersPane(Pane[tuple[LoaderRow, ...]]):
    """A block for each loader: how it was made, its ready batches, a row for each worker."""

    def collect(self, now: Parts, findings: Sequence[Finding]) -> tuple[LoaderRow, ...]:
        """The loaders of the trainer in focus; once the run has ended, with figures of the whole run."""
        found = []
        for row in loaders_of(now.own):
            # idle time in whole seconds, 0 while in use: rows that look the same are not painted again
            idle_s = float(int(row.idle_s)) if row.idle_s > _IDLE_S else 0.0
            ready = on_axis(row.ready_spans, row.ready_history, now.axis, mean)
            found.append(row._replace(idle_s=idle_s, ready_history=ready, ready_spans=()))
        return tuple(found)

    def draw(self, state: tuple[LoaderRow, ...], width: int, height: int) -> list[Line]:
        return loaders_lines(state, width, height)

    def rows_wanted(self, width: int, most: int) -> int:
        workers = [min(len(_worker_rows(row)), 8) for row in self.state or ()]
        return max(sum(2 + (1 + number if number else 0) for number in workers), 1)

    def heading(self, state: tuple[LoaderRow, ...]) -> tuple[Span, ...]:
        return line(("6 ", "key"), ("Loaders", "text bold"), (f" · {len(state)}" if state else "", "dim"))


def loaders_lines(loaders: Sequence[LoaderRow], width: int, height: int) -> list[Line]:
    """A block for each loader; if rows are short, blocks at the end shrink to their head."""
    if not loaders:
        return [
            line(("No DataLoader seen: the loop makes its batches itself, has not begun, or leaves no markers.", "dim"))
        ]
    alike = Counter(loader.latest.role == "eval" for loader in loaders)  # these are told apart by their numbers
    heads = [_head(loader, width, numbered=alike[loader.latest.role == "eval"] > 1) for loader in loaders]
    if len(loaders) > height:
        return [*heads[: height - 1], line((f"+{len(loaders) - height + 1} more loaders (z)", "dim"))]
    lines: list[Line] = []
    for after, head, loader in zip(range(len(loaders) - 1, -1, -1), heads, loaders, strict=True):
        lines += [head, *_below(loader, width, height - len(lines) - after - 1)]
    return lines


def _below(loader: LoaderRow, width: int, height: int) -> list[Line]:
    """The flow of a loader's batches, and its workers: those that do not fit as one."""
    if height < 1:
        return []
    flow, rows, room = [_flow(loader, width)], _worker_rows(loader), height - 1
    if room < 1 or not rows:
        return flow
    columns = worker_columns(rows, width)
    heads = [head_line(columns)] if room >= 2 else []
    room -= len(heads)
    if len(rows) > room:
        others = rows[room - 1 :]
        rows = (*rows[: room - 1], mean_worker(others, f"{len(others)} {'more' if room > 1 else 'workers'}"))
    return [*flow, *heads, *(row_line(columns, row) for row in rows)]


def _worker_rows(loader: LoaderRow) -> tuple[LoaderWorkerRow, ...]:
    """Rows of a loader's workers; none for an evaluation in the training process, whose head is enough."""
    return () if loader.latest.role == "eval" and not loader.facts.workers else loader.worker_rows


def _head(loader: LoaderRow, width: int, *, numbered: bool) -> Line:
    """``train loader · ImageSet · 2 workers · prefetch 2 · batch 32 · fork · pinned``; numbered: ``train loader 0``."""
    made, is_idle = loader.facts, loader.idle_s > _IDLE_S
    name = f"{loader.latest.role or ''} loader".strip() + f" {loader.latest.number}" * numbered
    facts = [plain(made.dataset), {0: "no workers", 1: "1 worker"}.get(made.workers, f"{made.workers} workers")]
    facts += [f"prefetch {made.prefetch}"] if made.prefetch and made.workers else []
    facts += [f"batch {made.batch_size}"] if made.batch_size is not None else []
    facts += [plain(made.context)] if made.context else []
    kinds = {"iterable": made.kind == "iterable", "pinned": made.pin_memory, "persistent": made.persistent}
    facts += [kind for kind, is_so in kinds.items() if is_so]
    first, *rest = facts
    parts = [(name, "dim" if is_idle else "data bold"), (first, "dim" if is_idle else "text")]
    spans = chained([line(part) for part in (*parts, *((fact, "dim") for fact in rest))], Span(" · ", "faint"))
    return justified(spans, line((f"idle for {duration(loader.idle_s)}", "dim")) if is_idle else (), width)


def _flow(loader: LoaderRow, width: int) -> Line:
    """Ready batches over time and now, and the cost of a fetch to the trainer; parts that do not fit are left out."""
    if not loader.facts.workers:
        return chained(_costs(loader), Span("   "), width)
    now, most = (ABSENT if each is None else str(each) for each in (loader.latest.ready_last, loader.ready_most))
    name, figure = line((column("ready", NAME), "dim"), (f" {now} of {most}", _ready_role(loader, "strong")))
    costs = chained(_costs(loader), Span("   "), width - line_width((name, figure)) - _MIN_CHART)
    costs = (Span("   "), *costs) if costs else ()
    plot_width = width - line_width((name, figure, *costs))
    plot = tinted(chart(loader.ready_history, plot_width, 1, 0.0, float(loader.ready_most or 1)), "chart")[0]
    return (name, *plot, figure, *costs)


def _costs(loader: LoaderRow) -> list[Line]:
    """The cost of fetches for the trainer, the most important figures first."""
    costs = [
        line(("wait ", "dim"), (ms(loader.wait_ms), "strong"), (f"  p95 {ms(loader.wait_p95_ms)}", "text")),
        line((rate(loader.fetches_per_s, "batches"), "text")),
    ]
    if loader.start_s is not None and loader.start_s >= 0.1:
        costs.append(line((f"first batch after {loader.start_s:.1f} s", "text"), (" an epoch", "dim")))
    if loader.latest.waits_for_s is not None and loader.latest.waits_for_s >= 1:
        costs.insert(0, line((f"waiting for {duration(loader.latest.waits_for_s)}", "warning")))
    if loader.facts.workers:
        costs.append(line((f"none ready {percent(loader.ready_none_ratio)}", _ready_role(loader, "dim"))))
    return costs


def _ready_role(loader: LoaderRow, calm: str) -> str:
    """A warning if most fetches find no batch ready."""
    return "warning" if (loader.ready_none_ratio or 0.0) >= MOST else calm


def worker_columns(rows: Sequence[LoaderWorkerRow], width: int) -> list[Column[LoaderWorkerRow]]:
    """The columns for these rows that fit ``width`` cells.

    They show the share of its time in which a worker makes batches, and its CPU; the difference is waiting in items.
    """
    times = 4 if width >= 74 else 3 if width >= 64 else 2 if width >= 50 else 0
    name = max(NAME, *(cell_len(row.name) + 1 for row in rows)) if width >= 50 else NAME
    width -= name - NAME
    cpu = _CPU if width >= 64 and any(row.cpu_ratio is not None for row in rows) else 0
    width -= cpu
    gauge = 20 if width >= 116 else 12 if width >= 100 else 8 if width >= 80 else 0
    rest = max(width - NAME - _MAKING - gauge - 2 - times * _TIME - 2, 0)
    spot = places_width((row.hot.place for row in rows if row.hot), min(max(30, rest // 2), rest))
    spot = max(spot, min(14, rest))

    def time(name: str, field: str, role: str = "dim") -> Column[LoaderWorkerRow]:
        def text(row: LoaderWorkerRow) -> tuple[str, str]:
            return ms(getattr(row, field)), "text" if getattr(row, field) else "dim"

        return Column(name, _TIME, text, ">", role=role)

    return shown_columns(
        Column("", name, lambda row: (row.name, "faint" if row.ended else "text")),
        Column(
            "making", _MAKING - 1, lambda row: (percent(row.busy_ratio), "strong" if row.busy_ratio else "dim"), ">"
        ),
        Column("CPU", cpu, lambda row: (percent(row.cpu_ratio), "dim"), ">"),
        Column("", gauge + 3, lambda row: line("  ", *_gauge(row, gauge), " ")),
        *(
            time("items", "items_ms", _ITEMS),
            time("collate", "collate_ms", _COLLATE),
            time("waiting", "wait_ms"),
            time("hand over", "hand_over_ms"),
        )[:times],
        Column("  hottest line", rest + 2, lambda row: line("  ", *_doing(row, spot, max(rest - spot, 0)))),
    )


def _doing(worker: LoaderWorkerRow, spot: int, room: int) -> Line:
    """A worker's hottest line, the place in ``spot`` cells; or the wait that takes most of its time."""
    times = worker.items_ms, worker.collate_ms, worker.wait_ms, worker.hand_over_ms
    known = [time_ms for time_ms in times if time_ms is not None]
    if not worker.ended and len(known) == len(times):
        *_, waits, hands_over = (time_ms > MOST * sum(known) for time_ms in known)
        if waits or hands_over:
            text = "waits for the trainer" if waits else "hands its batches over"
            return line((column(text, spot + room), "dim"))
    if worker.hot is None:
        return line((column(ABSENT, spot + room), "faint"))
    place = worker.hot.place
    return (*place_column(place, spot), Span(column(code(place), room), "text"))


def _gauge(worker: LoaderWorkerRow, width: int) -> Line:
    """Items, collate and waiting as parts of one bar."""
    busy, items_ms, collate_ms = worker.busy_ratio or 0.0, worker.items_ms or 0.0, worker.collate_ms or 0.0
    filled = min(max(round(busy * width), 1 if busy else 0), width)
    collate = round(filled * collate_ms / (items_ms + collate_ms)) if collate_ms else 0
    return line(("━" * (filled - collate), _ITEMS), ("━" * collate, _COLLATE), ("─" * (width - filled), "track"))


_MEANS = ("busy_ratio", "batches_per_s", "items_ms", "collate_ms", "wait_ms", "hand_over_ms", "cpu_ratio")


def mean_worker(rows: Sequence[LoaderWorkerRow], name: str) -> LoaderWorkerRow:
    """Several workers as one: means, and the line that is hottest in any of them."""
    hot = max((row.hot for row in rows if row.hot is not None), key=lambda line: line.samples, default=None)
    means = {each: mean_of_known([getattr(row, each) for row in rows]) for each in _MEANS}
    return replace(rows[0], pid=0, name=name, ended=False, hot=hot, **means)
