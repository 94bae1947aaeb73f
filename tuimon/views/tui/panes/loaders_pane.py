"""The Loaders pane: each DataLoader, how many batches lie ready, and what its workers do with their time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from rich.cells import cell_len

from tuimon.session.rows import LoaderRow, LoaderWorkerRow
from tuimon.views.format import ABSENT, duration, ms, percent, place, plain, rate
from tuimon.views.tui.drawing.charts import chart, tinted
from tuimon.views.tui.drawing.lines import Line, Span, cells, column, justified, line
from tuimon.views.tui.drawing.pane import Pane

if TYPE_CHECKING:
    from tuimon.diagnosis.finding import Finding
    from tuimon.session.session import Session

_NAME, _BUSY, _TIME = 10, 7, 10
_HISTORY = 512  # values that the widest chart can show
#: Unused for longer, a loader is called idle: most are, while others train or evaluate.
_IDLE_S = 3.0
#: Share of fetches that found no batch ready from which it is coloured.
_STARVED = 0.5
_WORKERS_WANTED = 8
#: What an epoch begins with is told of from here on.
_START_SHOWN_S = 0.1
#: Share of its time from which on what a worker waits for is the first thing to say.
_MOSTLY = 0.5
_ITEMS, _COLLATE = "chart-edge", "gpu-edge"


class LoadersPicture(NamedTuple):
    """What the pane shows."""

    loaders: tuple[LoaderRow, ...]


class LoadersPane(Pane[LoadersPicture]):
    """A block for each loader: how it was made, its ready batches, a row for each worker."""

    def collect(self, session: Session, findings: Sequence[Finding]) -> LoadersPicture:
        """The loaders of the trainer in focus."""
        pid = session.trainer()
        rows = session.loaders(pid) if pid is not None else ()
        return LoadersPicture(tuple(_calm(row) for row in rows))

    def draw(self, picture: LoadersPicture, width: int, height: int) -> list[Line]:
        """The content's lines."""
        return loaders_lines(picture.loaders, width, height)

    def heading(self, picture: LoadersPicture) -> tuple[Span, ...]:
        """How many loaders there are."""
        spans = (Span("6 ", "key"), Span("Loaders", "text bold"))
        return (*spans, Span(f" · {len(picture.loaders)}", "dim")) if picture.loaders else spans

    def has_workers(self) -> bool:
        """Whether there is a loader with workers."""
        return self.picture is not None and any(row.facts.workers for row in self.picture.loaders)


def loader_rows_wanted(loaders: Sequence[LoaderRow]) -> int:
    """Rows of content for these loaders."""
    return max(sum(_rows_of(row) for row in loaders), 1)


def loaders_lines(loaders: Sequence[LoaderRow], width: int, height: int) -> list[Line]:
    """A block for each loader; where rows are short, blocks at the end shrink to their head."""
    if not loaders:
        return [
            line(("No DataLoader seen: the loop makes its batches itself, has not begun, or leaves no markers.", "dim"))
        ]
    if len(loaders) > height:
        heads = [_head(loader, width) for loader in loaders[: height - 1]]
        return [*heads, line((f"+{len(loaders) - len(heads)} more loaders (z)", "dim"))]
    lines: list[Line] = []
    for number, loader in enumerate(loaders):
        after = len(loaders) - number - 1
        lines += loader_lines(loader, width, height - len(lines) - after)
    return lines


def loader_lines(loader: LoaderRow, width: int, height: int) -> list[Line]:
    """One loader in at most ``height`` lines."""
    lines = [_head(loader, width)]
    if height < 2:
        return lines
    lines.append(_flow(loader, width))
    room = height - len(lines)
    rows = _worker_rows(loader)
    if room < 1 or not rows:
        return lines
    widths = _widths(rows, width)
    if room >= 2:
        lines.append(_column_names(widths))
        room -= 1
    fits = rows if len(rows) <= room else rows[: room - 1]
    names = {worker: f"worker {worker.number}" if loader.facts.workers else "main" for worker in fits}
    lines += [worker_line(worker, names[worker], widths) for worker in fits]
    others = rows[len(fits) :]
    if others:
        lines.append(worker_line(_mean(others), f"{len(others)} {'more' if fits else 'workers'}", widths))
    return lines


def _worker_rows(loader: LoaderRow) -> tuple[LoaderWorkerRow, ...]:
    """An evaluation in the training process is told by its head alone."""
    return () if loader.latest.role == "eval" and not loader.facts.workers else loader.worker_rows


def _rows_of(loader: LoaderRow) -> int:
    workers = min(len(_worker_rows(loader)), _WORKERS_WANTED)
    return 2 + (1 + workers if workers else 0)


def _is_idle(loader: LoaderRow) -> bool:
    return loader.idle_s > _IDLE_S


def _head(loader: LoaderRow, width: int) -> Line:
    """``train loader · ImageSet · 2 workers · prefetch 2 · batch 32 · fork · pinned``."""
    name, made = f"{loader.latest.role} loader" if loader.latest.role else "loader", loader.facts
    workers = {0: "no workers", 1: "1 worker"}.get(made.workers, f"{made.workers} workers")
    facts = [plain(made.dataset), workers]
    if made.prefetch and made.workers:
        facts.append(f"prefetch {made.prefetch}")
    if made.batch_size is not None:
        facts.append(f"batch {made.batch_size}")
    facts += [plain(made.context)] if made.context else []
    facts += ["iterable"] if made.kind == "iterable" else []
    facts += ["pinned"] if made.pin_memory else []
    facts += ["persistent"] if made.persistent else []
    idle = _is_idle(loader)
    spans: list[Span] = [Span(name, "dim" if idle else "data bold")]
    for number, fact in enumerate(facts):
        spans += [Span(" · ", "faint"), Span(fact, "dim" if idle or number else "text")]
    right = [Span(f"idle for {duration(loader.idle_s)}", "dim")] if idle else []
    return justified(spans, right, width)


def _flow(loader: LoaderRow, width: int) -> Line:
    """Ready batches over time and now, and what a fetch costs the trainer; what does not fit is left out."""
    starved = loader.ready_none_ratio is not None and loader.ready_none_ratio >= _STARVED
    tail = [
        line(("wait ", "dim"), (ms(loader.wait_ms), "strong"), (f"  p95 {ms(loader.wait_p95_ms)}", "text")),
        line((rate(loader.fetches_per_s, "batches"), "text")),
    ]
    if loader.start_s is not None and loader.start_s >= _START_SHOWN_S:
        tail.append(line((f"first batch after {loader.start_s:.1f} s", "text"), (" an epoch", "dim")))
    if loader.latest.waits_for_s is not None and loader.latest.waits_for_s >= 1:
        tail.insert(0, line((f"waiting for {duration(loader.latest.waits_for_s)}", "warning")))
    if loader.facts.workers:
        none = f"none ready {percent(loader.ready_none_ratio)}"
        tail.append(line((none, "warning" if starved else "dim")))
    head: list[Span] = []
    if loader.facts.workers:
        now = ABSENT if loader.latest.ready_last is None else str(loader.latest.ready_last)
        most = ABSENT if loader.ready_most is None else str(loader.ready_most)
        count = Span(f" {now} of {most}", "warning" if starved else "strong")
        head = [Span(column("ready", _NAME), "dim"), count]
    spans: list[Span] = []
    room = width - cells(head) - (12 if head else 0)
    for part in tail:
        gap = [Span("   " if spans or head else "")]
        if cells(spans) + cells(gap) + cells(part) > room:
            break
        spans += [*gap, *part]
    if not head:
        return tuple(spans)
    plot_width = width - cells(head) - cells(spans)
    plot = tinted(chart(loader.ready_history, plot_width, 1, 0.0, float(loader.ready_most or 1)), "chart")[0]
    return (head[0], *plot, head[1], *spans)


class _Widths(NamedTuple):
    """Cells of each column; 0: left out."""

    bar: int
    times: int  # how many of items, collate, waiting and handing over
    place: int
    source: int


def _widths(rows: Sequence[LoaderWorkerRow], width: int) -> _Widths:
    times = 4 if width >= 74 else 3 if width >= 64 else 2 if width >= 50 else 0
    gauge = 20 if width >= 116 else 12 if width >= 100 else 8 if width >= 80 else 0
    rest = max(width - _NAME - _BUSY - gauge - 2 - times * _TIME - 2, 0)
    spot = min(max((cell_len(_spot(row)) for row in rows), default=8) + 2, 30, rest)
    return _Widths(gauge, times, max(spot, min(14, rest)), max(rest - max(spot, min(14, rest)), 0))


def _column_names(widths: _Widths) -> Line:
    names = (("items", _ITEMS), ("collate", _COLLATE), ("waiting", "dim"), ("hand over", "dim"))[: widths.times]
    return line(
        (column("", _NAME), "dim"),
        (column("busy", _BUSY - 1, ">") + " " * (widths.bar + 3), "dim"),
        *((column(name, _TIME, ">"), role) for name, role in names),
        ("  " + column("hottest line", widths.place + widths.source), "dim"),
    )


def worker_line(worker: LoaderWorkerRow, name: str, widths: _Widths) -> Line:
    """``worker 0   96 %  ━━━━━━─  34.1 ms  7.1 ms  1.4 ms  0.2 ms  transforms.py:31  out = cv(img, kernel)``."""
    quiet = "faint" if worker.ended else "dim"
    times = (worker.items_ms, worker.collate_ms, worker.wait_ms, worker.hand_over_ms)[: widths.times]
    busy = worker.busy_ratio
    return line(
        (column(name, _NAME), quiet if worker.ended else "text"),
        (column(percent(busy), _BUSY - 1, ">") + " ", "strong" if busy else "dim"),
        " ",
        *_gauge(worker, widths.bar),
        " ",
        *((column(ms(value), _TIME, ">"), "text" if value else "dim") for value in times),
        "  ",
        *_doing(worker, widths),
    )


def _doing(worker: LoaderWorkerRow, widths: _Widths) -> tuple[Span, ...]:
    """Its hottest line, or what it waits for most of the time."""
    if waits := _waits_for(worker):
        return (Span(column(waits, widths.place + widths.source), "dim"),)
    return (
        Span(column(_spot(worker), widths.place), "key" if worker.hot else "faint"),
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


def _spot(worker: LoaderWorkerRow) -> str:
    return place(worker.hot.place.file, worker.hot.place.line) if worker.hot else ABSENT


def _source(worker: LoaderWorkerRow) -> str:
    if worker.hot is None:
        return ""
    return plain(worker.hot.place.source).strip() or f"{plain(worker.hot.place.function)}()"


def _mean(rows: Sequence[LoaderWorkerRow]) -> LoaderWorkerRow:
    """Several workers as one: means, and the line that is hottest in any of them."""
    hot = max((row.hot for row in rows if row.hot is not None), key=lambda line: line.samples, default=None)
    return LoaderWorkerRow(
        pid=0,
        number=0,
        busy_ratio=_mean_of([row.busy_ratio for row in rows]),
        batches_per_s=_mean_of([row.batches_per_s for row in rows]),
        items_ms=_mean_of([row.items_ms for row in rows]),
        collate_ms=_mean_of([row.collate_ms for row in rows]),
        wait_ms=_mean_of([row.wait_ms for row in rows]),
        hand_over_ms=_mean_of([row.hand_over_ms for row in rows]),
        hot=hot,
    )


def _mean_of(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _calm(row: LoaderRow) -> LoaderRow:
    """Without the age of what is in use and the tenths of what is not: a still picture is not painted again."""
    idle_s = float(int(row.idle_s)) if _is_idle(row) else 0.0
    return row._replace(idle_s=idle_s, ready_history=row.ready_history[-_HISTORY:])
