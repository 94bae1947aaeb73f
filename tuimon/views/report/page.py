"""The report as one self-contained HTML page: no network, no script but its own."""

from __future__ import annotations

from base64 import b64encode
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from hashlib import sha256
from importlib.resources import files
from typing import Any, NamedTuple

from msgspec.structs import asdict

from tuimon.session.gpus import GpuRow
from tuimon.session.session import SessionView
from tuimon.session.stacks.call_tree import CallTree
from tuimon.session.stacks.samples import Samples
from tuimon.session.stacks.trie import Trie
from tuimon.session.steps import STACKED, StepStretch
from tuimon.views import format as shown
from tuimon.views.explain import page_html
from tuimon.views.finding_text import (
    between,
    evidence_rows,
    fix_text,
    gain_text,
    rule_title,
    rules_by_reason,
    sentence,
    verdict_name,
)
from tuimon.views.format import count, percent, place
from tuimon.views.gpu_text import idle_text
from tuimon.views.report.report import ReportPage
from tuimon.views.report.sentences import NO_END, final_verdict, has_verdict, verdict_text
from tuimon.views.report_types import FindingJson, Phase, Rank
from tuimon.views.scale import ceiling, mean, spread
from tuimon.views.words import goodput_bar, how_ended, steps_text, survivors_text

#: Most values of the chart.
MOST = 480
WIDTH, HEIGHT = 1000, 100
#: Values drawn at most, so that the page of a long run stays small.
POINTS = 240
Row = tuple[float, ...]


def chart_of(run: SessionView, pid: int) -> dict[str, Any] | None:
    """The chart that the template draws; None before a step."""
    stats, start_s = run.session.step_stats.get(pid), run.session.start_s
    stretches = stats.stretches() if stats is not None else []
    if not stretches or start_s is None:
        return None
    span_s = stretches[-1].end_s - start_s
    rows = rows_of(stretches, start_s, run.between_parts(pid))
    if not any(sum(row) for row in rows if row is not None):
        return None
    top_ms = ceiling([None if row is None else sum(row) for row in rows])
    return {
        "top_ms": top_ms,
        "cut": any(sum(row) > top_ms * 1.001 for row in rows if row is not None),
        "span_s": span_s,
        "parts": [(name, bars(rows, part, top_ms)) for part, name in enumerate(STACKED)],
    }


def rows_of(stretches: Sequence[StepStretch], start_s: float, between: Sequence[float]) -> list[Row | None]:
    """The mean step in ms by ``STACKED``, at evenly spaced moments from ``start_s`` on; None where no step ended.

    ``between``: how the time that markers cannot split is divided into STACKED.
    """
    ends_s, shortest_s = [each.end_s for each in stretches], min(each.end_s - each.begin_s for each in stretches)
    span_s = ends_s[-1] - start_s
    number = max(1, min(MOST, round(span_s / max(shortest_s, span_s / MOST))))
    middles_s = (start_s + (at + 0.5) * span_s / number for at in range(number))
    found = [(t, stretches[bisect_right(ends_s, t)]) for t in middles_s]
    return [each.stacked_ms(between) if each.begin_s <= t else None for t, each in found]


def bars(rows: Sequence[Row | None], part: int, top: float) -> str:
    """One part of stacked bars; what is above ``top`` is cut."""
    if top <= 0:
        return ""
    width = WIDTH / len(rows)
    boxes = []
    for i, row in enumerate(rows):
        if row is None:
            continue
        low, high = min(sum(row[:part]), top), min(sum(row[: part + 1]), top)
        if high > low:
            above, below = (HEIGHT * (1 - each / top) for each in (high, low))  # rounded like the neighbour's
            boxes.append(f"M{i * width:.1f} {above:.1f}h{width:.1f}V{below:.1f}h{-width:.1f}z")
    return "".join(boxes)


def curve(values: Sequence[float | None], top: float = 1.0) -> str:
    """A line through the values, interrupted where one is missing."""
    points = spread(values, min(len(values), POINTS), mean, whole=True)
    width = WIDTH / max(1, len(points))
    path, drawing = [], False
    for i, point in enumerate(points):
        if point is None:
            drawing = False
            continue
        y = HEIGHT * (1 - min(max(point / top, 0.0), 1.0))
        path.append(f"L{(i + 0.5) * width:.1f} {y:.1f}" if drawing else f"M{i * width:.1f} {y:.1f}h{width / 2:.1f}")
        drawing = True
    return "".join(path)


_LEAST_SHARE = 0.004
_WIDE_SHARE = 0.04
_DEPTH = 32
_BOXES = 1500


class FlameBox(NamedTuple):
    """One function; ``left`` and ``width`` as shares (0..1) of all samples, ``row`` from 0."""

    row: int
    left: float
    width: float
    label: str
    title: str
    is_wide: bool  # its label fits, and the keyboard can reach it
    phase: str
    user: bool


def trees(run: SessionView, pid: int) -> list[tuple[str, CallTree]]:
    """The call trees of a process's training thread and of its DataLoader workers together, each with its title.

    Without samples there is no tree.
    """
    workers = [worker.pid for worker in run.workers(pid)]
    found = (
        ("What the training thread does", _tree(run, [pid])),
        ("What the DataLoader workers do", _tree(run, workers)),
    )
    return [(title, tree) for title, tree in found if tree.samples]


def _tree(run: SessionView, pids: Sequence[int]) -> CallTree:
    first = ((pid, next(iter(run.sampled_tids(pid)), None)) for pid in pids)
    return Samples.joined(run.samples(pid, tid) for pid, tid in first).tree()


def boxes_of(tree: CallTree) -> list[FlameBox]:
    """The boxes that are wide enough to see, parents first."""
    boxes: list[FlameBox] = []
    waiting = [(tree.root, 0.0)]
    while waiting and len(boxes) < _BOXES:
        parent, left = waiting.pop(0)
        for node in parent.ordered():
            share = tree.share(node.total)
            if share >= _LEAST_SHARE and node.depth <= _DEPTH:
                at = node.place()
                title = f"{node.function} ({place(at.file, at.line)}): {percent(share)}, {count(node.total)} samples"
                label, is_wide = f"{node.function} {percent(share)}", share >= _WIDE_SHARE
                boxes.append(
                    FlameBox(node.depth - 1, left, share, label, title, is_wide, node.phase() or "other", node.user)
                )
                waiting.append((node, left))
            left += share
    return boxes


TEMPLATE, STYLE, SCRIPT = "report.html.j2", "style.css", "zoom.js"
_GPUS = 16
_TRACES = 3
_AROUND = 3  # lines of code before and after a place
#: Most ranks on the page, first those that are not well or hold the others up: about 100 kB.
_RANKS = 64
#: Ranks that are shown at once; of more, those that hold the others up come first and the rest unfolds.
_SHOWN_RANKS = 16
#: (key, heading) of columns that are left out if no rank has a value.
_RANK_TIMES = (("late_ms", "late by"), ("wait_ms", "waits for others"))


def as_html(pages: Sequence[ReportPage]) -> str:
    """One page, with a section for each log."""
    from jinja2 import Environment, StrictUndefined  # noqa: PLC0415  (text and JSON do without)
    from markupsafe import Markup  # noqa: PLC0415

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, finalize=_written, trim_blocks=True, lstrip_blocks=True
    )
    for name in ("ms", "percent", "duration", "count", "rate", "number", "size", "watt", "celsius"):
        environment.filters[name] = getattr(shown, name)
    environment.filters |= {
        "title": rule_title,
        "sentence": sentence,
        "verdict": verdict_name,
        "final": final_verdict,
        "idle_share": lambda times: between(times.idle_at_least, times.idle_at_most or 1.0),
        "idle": lambda phase: idle_text(phase, " to "),
        "steps": steps_text,
        "survivors": survivors_text,
    }
    script = _read(SCRIPT)
    return environment.from_string(_read(TEMPLATE)).render(
        sections=[_section(page) for page in pages],
        style=Markup(_read(STYLE)),
        script=Markup(script),
        script_hash=f"sha256-{b64encode(sha256(script.encode()).digest()).decode()}",
    )


def _read(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _written(value: object) -> object:
    """A dash for a value that was not measured; text from outside without control characters."""
    if value is None:
        return shown.ABSENT
    return shown.plain(value) if type(value) is str else value  # Markup is escaped already


def _section(page: ReportPage) -> dict[str, Any]:  # Any: what the template is given, field by field
    report, session = page
    pid, focus = session.trainer(), next((rank for rank in report.ranks if rank.in_focus), None)
    run = session.over("whole")
    gpus = [gpu for gpu in run.gpus() if gpu.used_by_run]
    # parts as (name, colour, left, width), in shares of the whole bar
    wall_time, left = [], 0.0
    for name, share, colour in goodput_bar(report.goodput) if report.goodput is not None else ():
        wall_time.append((name, colour, left, share))
        left += share
    verdict, is_loud = verdict_text(report), has_verdict(report.findings)
    rule = f"{rule_title(report.findings[0].rule)}: " if is_loud else ""
    return {
        "report": report,
        "verdict": verdict,
        "is_loud": is_loud,
        "title": rule + sentence(verdict),  # of the browser's tab
        "command": " ".join(report.run.command) or "?",
        "ended": how_ended(session.exit) if session.exit is not None else NO_END,
        "findings": [_finding(finding, session.trie) for finding in report.findings],
        "unjudged": rules_by_reason((each.rule, each.reason) for each in report.unjudged),
        "bar": phase_bar(report.phases),
        "wall_time": wall_time,
        "chart": chart_of(run, pid) if pid is not None else None,
        "ranks": ranks_table(report.ranks),
        "traces": report.traces[-_TRACES:],
        "gpu_time": focus.gpu_time if focus is not None else None,
        "gpus": [_gpu(gpu) for gpu in gpus[:_GPUS]],
        "gpus_left_out": max(0, len(gpus) - _GPUS),
        "loaders": focus.loaders if focus is not None else (),
        "flames": [
            {"title": title, "boxes": boxes_of(tree), "samples": tree.samples}
            for title, tree in (trees(run, pid) if pid is not None else ())
        ],
    }


def _finding(finding: FindingJson, trie: Trie) -> dict[str, Any]:
    return {
        **asdict(finding),
        "gain": "".join(map(gain_text, finding.fixes[:1])),
        "other_fixes": list(map(fix_text, finding.fixes[1:])),
        "evidence": evidence_rows(finding.evidence),
        "page": page_html(finding.rule, finding.cause),
        "where": [{**asdict(place), "code": _around(trie, place.file, place.line)} for place in finding.where[:5]],
    }


def _around(trie: Trie, file: str, line: int) -> list[tuple[int | None, str]]:
    """The sampled lines around ``line``, without their common indent; empty if the log lacks the line's own text.

    An ellipsis without a number stands for lines that no sample passed through.
    """
    lines = [(n, text.expandtabs(4)) for n, text in trie.lines_near(file, line, _AROUND)]
    known = {n for n, _ in lines}
    if line not in known:
        return []
    indent = min(len(text) - len(text.lstrip()) for _, text in lines)
    found: list[tuple[int | None, str]] = []
    for n, text in lines:
        if found and n - 1 not in known:
            found.append((None, "…"))
        found.append((n, text[indent:]))
    return found


def _gpu(row: GpuRow) -> dict[str, Any]:
    gpu, figures = row.latest, row.figures
    histories = (
        ("util", shown.percent(figures.util_ratio), row.history("util_ratio"), 1.0),
        ("SM", shown.percent(figures.sm_ratio), row.history("sm_ratio"), 1.0),
        ("tensor", shown.percent(figures.tensor_ratio), row.history("tensor_ratio"), 1.0),
        ("DRAM", shown.percent(figures.dram_ratio), row.history("dram_ratio"), 1.0),
        ("memory", shown.size(gpu.memory_used_bytes), row.history("memory_used_bytes"), gpu.memory_total_bytes),
        ("power", shown.watt(figures.power_w), row.history("power_w"), gpu.power_limit_w),
    )
    return {
        "gpu": gpu,
        "curves": [
            (name, figure, curve(past, top or max((each for each in past if each is not None), default=0.0) or 1.0))
            for name, figure, past, top in histories
            if any(value is not None for value in past)
        ],
    }


def ranks_table(ranks: Sequence[Rank]) -> dict[str, Any]:  # Any: what the template draws
    """The rows shown at once, the rest in order of rank, and the columns that any rank has."""
    columns = {title: [getattr(rank, name) for rank in ranks] for name, title in _RANK_TIMES}
    columns = {title: values for title, values in columns.items() if any(value is not None for value in values)}
    worst = sorted(range(len(ranks)), key=lambda at: ranks[at].trouble)[:_RANKS]
    first = worst[:_SHOWN_RANKS] if len(ranks) > _SHOWN_RANKS else range(len(ranks))
    rows = [
        {**asdict(rank), "bar": phase_bar(rank.phases), "times": [values[at] for values in columns.values()]}
        for at, rank in enumerate(ranks)
    ]
    rest = [rows[at] for at in sorted(set(worst) - set(first))]
    return {"first": [rows[at] for at in first], "rest": rest, "times": list(columns)}


def phase_bar(phases: Iterable[Phase]) -> list[tuple[str, float, float]]:
    """Phases of a step as (name, left, width), in shares of the whole bar; evaluation lies beside the step."""
    bar: list[tuple[str, float, float]] = []
    left = 0.0
    for phase in phases:
        if phase.name != "eval":
            bar.append((phase.name, left, phase.share))
            left += phase.share
    return bar
