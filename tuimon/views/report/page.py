"""The report as one self-contained HTML page: no network, no script but its own."""

from __future__ import annotations

from base64 import b64encode
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import sha256
from importlib.resources import files
from itertools import accumulate, islice
from typing import Any, NamedTuple

from msgspec.structs import asdict

from tuimon.diagnosis.finding import Finding, FindingJson, VerdictChange
from tuimon.records import STEP_PHASES
from tuimon.session.gpus import GpuRow
from tuimon.session.session import ProcessView, Session, SessionView
from tuimon.session.stacks.call_tree import CallTree
from tuimon.session.stacks.samples import Samples
from tuimon.session.stacks.trie import Trie
from tuimon.session.steps import joined
from tuimon.text import AROUND_LINES, code_place
from tuimon.threshold import SMALL
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
from tuimon.views.format import ON_PAGE, count, percent
from tuimon.views.report.report import report_of
from tuimon.views.report.sentences import NO_END, final_verdict, has_verdict, shares_text, verdict_text
from tuimon.views.report_types import Phase, Rank, Report
from tuimon.views.run_text import CHARTED, goodput_bar, how_ended, idle_text, steps_text, survivors_text
from tuimon.views.scale import ceiling, mean, spread

WIDTH, HEIGHT = 1000, 100
#: Values drawn at most, so that the page of a long run stays small.
POINTS = 240


class MeanStep(NamedTuple):
    """The mean step of a stretch of the run, in seconds from its start: ms by phase, in order of ``STEP_PHASES``."""

    begin_s: float
    end_s: float
    ms: Sequence[float]  # empty if no step ended


def chart_of(steps: Sequence[MeanStep]) -> dict[str, Any] | None:
    """The chart of step times that the template draws; None if there are none."""
    totals_ms = [sum(each.ms) or None for each in steps]
    if not any(totals_ms):
        return None
    top_ms, span_s = ceiling(totals_ms), steps[-1].end_s
    return {
        "top_ms": top_ms,
        "cut": any((total_ms or 0.0) > top_ms * 1.001 for total_ms in totals_ms),
        "span_s": span_s,
        "parts": [(name, bars(steps, part, top_ms)) for part, name in enumerate(STEP_PHASES)],
        "titles": [_title(each, WIDTH / span_s) for each in steps if each.ms],
    }


def _title(step: MeanStep, per_s: float) -> tuple[float, float, str]:
    """A stretch in the chart: its place, its width, and its figures."""
    parts = ", ".join(f"{name} {shown.ms(ms)}" for name, ms in zip(STEP_PHASES, step.ms, strict=True) if ms)
    text = f"{shown.duration(step.begin_s)} to {shown.duration(step.end_s)}: {shown.ms(sum(step.ms))} a step: {parts}"
    return step.begin_s * per_s, (step.end_s - step.begin_s) * per_s, text


def bars(steps: Sequence[MeanStep], part: int, top_ms: float) -> str:
    """One part of stacked bars; what is above ``top_ms`` is cut."""
    boxes, per_s = [], WIDTH / steps[-1].end_s
    for each in steps:
        low, high = (min(sum(each.ms[:end]), top_ms) for end in (part, part + 1))
        if high > low:
            above, below = (HEIGHT * (1 - ms / top_ms) for ms in (high, low))  # rounded like the neighbour's
            left, width = each.begin_s * per_s, (each.end_s - each.begin_s) * per_s
            boxes.append(f"M{left:.1f} {above:.1f}h{width:.1f}V{below:.1f}h{-width:.1f}z")
    return "".join(boxes)


def curve(values: Sequence[float | None], top: float = 1.0) -> str:
    """A line through the values, interrupted if one is missing."""
    points = spread(values, min(len(values), POINTS), mean)
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


#: Share of all samples from which a function is in a graph; its most callers; most functions of a graph.
_MIN_SHARE, _DEPTH, _BOXES = 0.004, 32, 1500


class HtmlPage(NamedTuple):
    """The report of a run, and the charts of its section of the page."""

    report: Report
    section: dict[str, Any]  # Any: what the template is given, field by field


def html_page(
    session: Session, findings: Iterable[Finding], log: str = "", changes: Iterable[VerdictChange] = ()
) -> HtmlPage:
    """The report over the whole run, with the data of its page's charts."""
    report = report_of(session, findings, log, changes)
    return HtmlPage(report, _section(report, session.over("whole")))


def mean_steps(own: ProcessView) -> list[MeanStep]:
    """The course of the run up to its last step, in at most ``POINTS`` stretches of equal length."""
    start_s, between, stretches = own.view.session.start_s, own.split.parts, own.stats.stretches()
    together = -(-len(stretches) // POINTS) or 1
    rows = [joined(stretches[at : at + together]) for at in range(0, len(stretches), together)]
    return [MeanStep(row.begin_s - start_s, row.end_s - start_s, row.stacked_ms(between) or ()) for row in rows]


def _flames(own: ProcessView) -> Iterator[dict[str, Any]]:
    """The activities of the training thread, and of the DataLoader workers together; nothing without samples."""
    workers = [own.view.of(worker.pid) for worker in own.workers]
    for title, of in (("What the training thread does", [own]), ("What the DataLoader workers do", workers)):
        tree = Samples.joined(each.samples for each in of).tree()
        if tree.samples:
            yield {"title": title, "samples": tree.samples, "boxes": list(islice(_boxes(tree), _BOXES))}


def _boxes(tree: CallTree) -> Iterator[dict[str, Any]]:
    """The functions that are wide enough to see, parents first; left and width are shares (0..1) of all samples."""
    waiting = deque([(tree.root, 0.0)])
    while waiting:
        parent, left = waiting.popleft()
        for node in parent.ordered():
            width, at = tree.share(node.total), node.place()
            if width >= _MIN_SHARE and node.depth <= _DEPTH:
                where, share = code_place(at), percent(width)
                yield {
                    "depth": node.depth - 1,
                    "left": left,
                    "width": width,
                    "phase": node.phase() or "other",
                    "user": node.user,
                    "label": f"{at.function} {share}",
                    "title": f"{at.function} ({where}): {share}, {count(node.total)} samples",
                    "is_wide": width >= SMALL,
                }
                waiting.append((node, left))
            left += width


TEMPLATE, STYLE, SCRIPT = "report.html.j2", "style.css", "zoom.js"
#: Heading, meaning and key of columns that are left out if no rank has a value.
_RANK_TIMES = (
    ("late by", "how much longer its own work takes than the others', a step", "late_ms"),
    ("waits for others", "how long it waits for the others, a step", "wait_ms"),
)


def as_html(pages: Sequence[HtmlPage]) -> str:
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
        "idle_share": lambda times: between(times.idle_at_least, times.idle_at_most),
        "idle": lambda phase: idle_text(phase, " to "),
        "steps": steps_text,
        "survivors": survivors_text,
    }
    script = _read(SCRIPT)
    return environment.from_string(_read(TEMPLATE)).render(
        sections=[page.section for page in pages],
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


def _section(report: Report, view: SessionView) -> dict[str, Any]:
    gpus = [gpu for gpu in view.all_gpus() if gpu.used_by_run]
    verdict, is_loud = verdict_text(report), has_verdict(report.findings)
    rule = f"{rule_title(report.findings[0].rule)}: " if is_loud else ""
    return {
        "report": report,
        "verdict": verdict,
        "is_loud": is_loud,
        "title": rule + sentence(verdict),  # of the browser's tab
        "command": " ".join(report.run.command) or "?",
        "ended": how_ended(report.run) if report.run.ended else NO_END,
        "findings": [_finding(finding, view.session.trie) for finding in report.findings],
        "unjudged": rules_by_reason(report.unjudged),
        "bar": phase_bar(report.phases),
        "wall_time": laid(goodput_bar(report.goodput)) if report.goodput is not None else [],
        "chart": chart_of(mean_steps(view.focus)),
        "ranks": ranks_table(report.ranks),
        "gpus": [_gpu(gpu, view) for gpu in gpus[:ON_PAGE]],
        "gpus_left_out": max(0, len(gpus) - ON_PAGE),
        "flames": list(_flames(view.focus)),
    }


def _finding(finding: FindingJson, trie: Trie) -> dict[str, Any]:
    return {
        **asdict(finding),
        "gain": "".join(map(gain_text, finding.fixes[:1])),
        "other_fixes": list(map(fix_text, finding.fixes[1:])),
        "evidence": evidence_rows(finding.evidence),
        "page": page_html(finding.rule, finding.cause),
        "where": [
            {**asdict(at), "code": _around(trie.lines_near(at.file, at.line, AROUND_LINES), at.line)}
            for at in finding.where[:5]
        ],
    }


def _around(lines: Sequence[tuple[int, str]], line: int) -> list[tuple[int | None, str]]:
    """The sampled lines around ``line``, without their common indent; empty if the log lacks the line's own text.

    An ellipsis without a number stands for lines that no sample passed through.
    """
    lines = [(n, text.expandtabs(4)) for n, text in lines]
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


def _gpu(gpu: GpuRow, view: SessionView) -> dict[str, Any]:
    latest, figures = gpu.latest, gpu.figures
    named: list[tuple[str, str, float | None, Callable[[float | None], str], float | None]] = [
        *((name, counter, getattr(figures, counter), shown.percent, 1.0) for counter, name in CHARTED.items()),
        ("memory", "memory_used_bytes", figures.memory_used_bytes, shown.size, latest.memory_total_bytes),
        ("power", "power_w", figures.power_w, shown.watt, latest.power_limit_w),
    ]
    curves = []
    for name, counter, figure, text, top in named:
        values = gpu.history(counter)
        known = [value for value in values if value is not None]
        if known:
            ends = f"{text(min(known))} to {text(max(known))}"
            curves.append((name, text(figure), ends, curve(values, top or max(known) or 1.0)))
    return {"gpu": latest, "host": view.of(latest.pid).host, "curves": curves}


def ranks_table(ranks: Sequence[Rank]) -> dict[str, Any]:  # Any: what the template draws
    """The rows shown at once, the rest in order of rank, and the columns that any rank has."""
    columns = [column for column in _RANK_TIMES if any(getattr(rank, column[-1]) is not None for rank in ranks)]
    worst = sorted(range(len(ranks)), key=lambda at: ranks[at].trouble)[:64]  # of which the page takes about 100 kB
    first = worst[:ON_PAGE] if len(ranks) > ON_PAGE else range(len(ranks))
    rows = [
        {
            **asdict(rank),
            "bar": phase_bar(rank.phases),
            "shares": shares_text(rank.phases),
            "times": [None if (ms := getattr(rank, key)) is None else max(ms, 0.0) for *_, key in columns],
        }
        for rank in ranks
    ]
    rest = [rows[at] for at in sorted(set(worst) - set(first))]
    return {"first": [rows[at] for at in first], "rest": rest, "times": [column[:2] for column in columns]}


def phase_bar(phases: Iterable[Phase]) -> list[tuple[str, str, float, float]]:
    """The phases of a step; evaluation is not part of it."""
    return laid((phase.name, phase.share, phase.name) for phase in phases if phase.name != "eval")


def laid(parts: Iterable[tuple[str, float, str]]) -> list[tuple[str, str, float, float]]:
    """Parts of a bar, name, share and colour, as (name, colour, left, width), in shares of the whole bar."""
    parts = list(parts)
    lefts = accumulate((share for _, share, _ in parts), initial=0.0)
    return [(name, colour, left, share) for (name, share, colour), left in zip(parts, lefts, strict=False)]
