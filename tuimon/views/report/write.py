"""Reports as text and JSON, whole or brief enough for a language model, and files of the report at this moment."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from typing import Any

import msgspec
from msgspec import structs

from tuimon.diagnosis.finding import CodePlace, FindingJson
from tuimon.diagnosis.verdicts import Verdicts
from tuimon.new_files import free_name
from tuimon.session.phase_table import RangeRow
from tuimon.sources.outputs import output_file
from tuimon.text import full_place, plural
from tuimon.views.finding_text import (
    NO_FINDING,
    evidence_rows,
    fix_text,
    gain_text,
    rule_title,
    rules_by_reason,
    verdict_name,
)
from tuimon.views.format import (
    LISTED,
    NAMED,
    WIDTH,
    advice,
    count,
    duration,
    ms,
    percent,
    plain,
    shorten,
    timed_steps,
    wrap,
)
from tuimon.views.json_text import json_text, with_digits
from tuimon.views.report.report import report_of
from tuimon.views.report.sentences import NO_END, final_verdict, has_verdict, shares_text, verdict_text
from tuimon.views.report_types import Phase, Rank, Report
from tuimon.views.run_text import ended_text, idle_text, last_state_text, nodes_text, steps_text, survivors_text

#: Significant digits of numbers in JSON: more than any of them is measured to, and shares still add to 1.
DIGITS = 5
#: Textual's SVG loads a font from a public server.
_FONTS = re.compile(r"\s*@font-face \{.*?\n    \}", re.DOTALL)
#: Textual's clip path for each line, and the references to it: each piece of text has its length anyway.
_LINE_CLIPS = re.compile(r'\s*<clipPath id="[\w-]+-line-\d+">.*?</clipPath>', re.DOTALL)
_CLIPPED = re.compile(r' clip-path="url\(#[\w-]+-line-\d+\)"')
_BLANK = re.compile(r"<text [^>]*>(?:&#160;|\s)*</text>\n?")
_ID = re.compile(r"terminal-\d+-")

#: The size of a brief report in bytes: about 2,000 tokens of a language model.
MAX_BYTES = 6000
#: Rows kept of each list, fewer until the size fits; lists and structs that are never cut; fields kept of a rank.
_ROWS = (16, 8, 4, 2, 1, 0)
_WHOLE = frozenset(("command", "evidence", "facts", "findings", "median_ms", "notices", "parts", "phases", "steps"))
_RANK_FIELDS = (
    "pid",
    "host",
    "rank",
    "world_size",
    "markers",
    "gpus",
    "steps",
    "state",
    "late_ms",
    "wait_ms",
    "training",
)


def as_json(reports: Sequence[Report], *, is_brief: bool = False) -> str:
    """One object for one report, a list of such objects for several."""
    shown = [brief(report) if is_brief else _rounded(report) for report in reports]
    return json_text(shown[0] if len(shown) == 1 else shown, None if is_brief else 1)


def brief(report: Report) -> dict[str, Any]:  # Any: JSON
    """The report in 6 kB, if possible; ``left_out`` counts the rows that each list lacks.

    Never cut are ``steps``, ``phases`` and ``findings`` of the contract. The phases of each rank, the counters of GPUs
    and tuimon's own cost are always left out.
    """
    ordered = structs.replace(report, gpus=[], cost=None, ranks=sorted(report.ranks, key=lambda rank: rank.trouble))
    whole = _rounded(ordered)
    whole["ranks"] = [
        {key: rank[key] for key in _RANK_FIELDS if key in rank} | {"phases": []} for rank in whole["ranks"]
    ]
    for most in _ROWS:
        left_out: Counter[str] = Counter()
        shown: dict[str, Any] = _cut(whole, "", most, left_out) | ({"left_out": left_out} if left_out else {})
        if len(json_text(shown).encode()) <= MAX_BYTES:
            break
    return shown


def _cut(value: Any, name: str, most: int, left_out: Counter[str]) -> Any:  # noqa: ANN401  (JSON)
    if name in _WHOLE:
        return value
    if isinstance(value, dict):
        return {key: _cut(each, key, most, left_out) for key, each in value.items()}
    if isinstance(value, list):
        most = max(most, name == "ranks")  # at least one rank stays
        left_out.update({name: len(value[most:])} if value[most:] else {})
        return [_cut(each, "", most, left_out) for each in value[:most]]
    return value


def _rounded(report: Report) -> dict[str, Any]:  # Any: JSON
    rounded: dict[str, Any] = with_digits(msgspec.to_builtins(report), DIGITS)
    return rounded


def reports_text(reports: Sequence[Report]) -> str:
    """The reports under one another, a line between them."""
    return ("=" * 78 + "\n").join(text_report(report) for report in reports)


def save(verdicts: Verdicts, stem: str, svg: str) -> list[str]:
    """Write ``STEM.json``, ``STEM.txt`` and the screenshot ``STEM.svg`` as new files; their paths. Raises TuimonError.

    Like the report of a log, they cover the run so far, and not its last seconds as the screen does.
    """
    report = report_of(verdicts.session, verdicts.judge_run(), changes=verdicts.changes)
    files = {".json": as_json([report]), ".txt": reports_text([report]), ".svg": standalone_svg(svg)}
    name = free_name(stem, *files)
    with ExitStack() as whole:  # none gets its name before all are written
        for ending, text in files.items():
            file = whole.enter_context(output_file(name + ending))
            file.write(text.encode())
            file.flush()
    return [name + ending for ending in files]


def standalone_svg(svg: str) -> str:
    """A picture by Textual's ``export_screenshot``, with fonts of the reader's machine alone."""
    for pattern in (_FONTS, _LINE_CLIPS, _CLIPPED, _BLANK):
        svg = pattern.sub("", svg)
    svg = _ID.sub("t-", svg).replace("&#160;", "\N{NO-BREAK SPACE}")
    return svg.replace("Fira Code, monospace", "'Fira Code', 'DejaVu Sans Mono', Menlo, Consolas, monospace")


_BAR = 24


def text_report(report: Report) -> str:
    parts = [_head(report), _verdict(report), _steps(report), _trainings(report), *_ranks(report)]
    parts += [_ranges(report.ranges), *_findings(report.findings)]
    parts += [_titled_list("Standstills", (each.text for each in report.standstills)), _changes(report)]
    unjudged = rules_by_reason(report.unjudged)
    parts += [_titled_list("Not judged", (f"{', '.join(names)}: {reason}" for reason, names in unjudged.items()))]
    memory = ([f"Memory of torch, {each.text[0]}", *each.text[1:]] for each in report.memory)
    for head, *rows in (*memory, *(each.text for each in report.traces)):
        parts.append([*_wrap(head), *(text for row in rows for text in _wrap(row.strip(), "  "))])
    if report.sampling:
        parts.append(_wrap(f"Stack samples: {report.sampling.text}"))
    notices = (advice(notice.message, notice.hint, notice.source) for notice in report.run.notices)
    parts.append(_titled_list("Not measured, or measured with gaps", notices))
    return "\n\n".join("\n".join(lines) for lines in parts if lines) + "\n"


def _head(report: Report) -> list[str]:
    run, facts = report.run, report.facts
    command = plain(" ".join(run.command)) or "?"
    lines = _wrap(f"tuimon report: {command}")
    others = max(0, run.node_count - 1)
    nodes = f" and {plural(others, 'more node')}" if others else ""
    lines.append(f"{plain(run.host or '?')}{nodes}, started {run.started}, recorded for {duration(run.duration_s)}")
    versions = (("driver", facts.driver), ("CUDA", facts.cuda), ("torch", facts.torch), ("Python", facts.python))
    hardware = [facts.gpu_names, f"{facts.cpu_count} CPU cores" if facts.cpu_count else None]
    known = [*filter(None, hardware), *(f"{name} {version}" for name, version in versions if version)]
    lines += _wrap(plain(", ".join(known))) if known else []
    lines += _wrap(ended_text(run) if run.ended else NO_END)
    if silent := nodes_text(run.nodes):
        lines += _wrap(silent)
    if run.survivors:
        lines += _wrap(survivors_text(run.survivors))
    return lines


def _verdict(report: Report) -> list[str]:
    if has_verdict(report.findings):
        return _first_lines(report.findings[0])
    return [verdict_text(report)] if report.findings or report.has_steps else []  # no step, no verdict


def _steps(report: Report) -> list[str]:
    steps, phases = report.steps, report.phases
    if not report.has_steps:
        lines = ["No training step was seen.", *_wrap(plain(last_state_text(report.state)))]
        for unseen in report.unseen:
            lines += _wrap(f"{plain(unseen.text)}.")
        return lines
    lines = []
    if steps.total:
        lines.append(steps_text(steps))
        if report.progress is not None:
            lines += _wrap(f"Progress: {plain(report.progress.text)}")
        if report.goodput is not None:
            lines += _wrap(f"Goodput: {report.goodput.text}")
        if timed := timed_steps(steps.timed_ratio):
            lines += _wrap(f"{timed.capitalize()}, because timing slows down fast steps; all are counted")
    if report.span:
        first, last = count(report.span.first_step), count(report.span.last_step)
        lines += _wrap(f"Phases and findings cover steps {first} to {last}, {duration(report.span.seconds)}")
    if report.phases_of:
        lines.append(f"Steps and phases of {report.phases_of}")
    return lines + [_phase(phase) for phase in phases] + _on_gpu(phases)


def _phase(phase: Phase) -> str:
    bar = "#" * round(_BAR * min(max(phase.share, 0.0), 1.0)) if phase.name != "eval" else "share of the loop's time"
    share = ("~" if phase.estimated else "") + percent(phase.share)
    error = f"  +- {percent(phase.error)}" if phase.error else ""
    # evaluation belongs to no step; if only samples show it, its batches are not counted
    each = " a batch" if phase.name == "eval" and phase.ms_per_step is not None else ""
    return f"  {plain(phase.name):<10} {bar:<{_BAR}} {share:>7} {ms(phase.ms_per_step):>10}{each}{error}"


def _on_gpu(phases: list[Phase]) -> list[str]:
    """The spans of the same phases on the GPU's clock, and the GPU's idle time in each."""
    timed = [phase for phase in phases if phase.gpu_ms_per_step is not None]
    if not timed:
        return []
    lines = ["", "Each phase on the GPU, per step, and how long the GPU idles in it"]
    for phase in timed:
        text = idle_text(phase, " to ")
        lines.append(f"  {plain(phase.name):<10} {ms(phase.gpu_ms_per_step):>10}" + (f"  idle {text}" if text else ""))
    return lines


def _ranks(report: Report) -> list[list[str]]:
    """A line for each rank; with many ranks, for those that matter, and one for all."""
    ranks, summary = report.ranks, report.ranks_summary
    if len(ranks) < 2:
        return []
    if summary is None:
        title = "Ranks" if any(rank.rank is not None for rank in ranks) else "Training processes"
        return [[title, *(text for rank in ranks for text in _rank(rank))]]
    news = [rank for rank in ranks if not rank.is_well or rank.is_late]
    worst = sorted(news, key=lambda rank: rank.trouble)[:LISTED]
    lines = ["Ranks; those in trouble, or holding the others up, come first" if worst else "Ranks"]
    lines += [text for rank in worst for text in _rank(rank)]
    parts = []
    if summary.steps:
        least, _, most = summary.steps
        parts.append(f"{count(round(least))} to {count(round(most))} steps")
    if summary.median_ms:
        least, middle, most = summary.median_ms
        parts.append(f"{ms(middle)} ({ms(least)} to {ms(most)})")
    return [[*lines, *_wrap(f"  all {count(summary.count)}: {', '.join(parts)}  {shares_text(summary.phases)}")]]


def _trainings(report: Report) -> list[str]:
    """Trainings side by side, a line each: the rest of the report covers only one of them."""
    lines = ["Trainings side by side"] if report.trainings else []
    for each in report.trainings:
        ranks = f", {each.ranks} ranks" if each.ranks > 1 else f", pid {each.pid}"
        found = each.findings[0] if each.findings else None
        verdict = f"{rule_title(found.rule)}: {plain(found.headline)}" if found is not None else NO_FINDING
        of = " (this report covers it)" if each.in_focus else ""
        steps = each.steps
        facts = f"{count(steps.total)} steps, {ms(steps.median_ms)}"
        lines += _wrap(f"  training {each.number}{ranks}{of}: {facts}: {verdict}")
    return lines


def _rank(rank: Rank) -> list[str]:
    name = f"rank {rank.rank}" if rank.rank is not None else f"pid {rank.pid}"
    name = f"training {rank.training}, {name}" if rank.training else name
    where = f" on {plain(rank.host)}" if rank.host else ""
    state = "" if rank.is_well else f", {rank.state}"
    state += ", an earlier start" if rank.state == "restarted" else ""
    state += f", restarted {'once' if rank.restarts == 1 else f'{rank.restarts} times'}" if rank.restarts else ""
    steps, late = rank.steps, f", late by {ms(rank.late_ms)}" if rank.is_late else ""
    facts = f"{count(steps.total)} steps, {ms(steps.median_ms)}{late}"
    if rank.phases and not steps.total:
        facts = "inferred from stacks:"  # its steps are not counted
    return _wrap(f"  {name}{where}{state}: {facts}  {shares_text(rank.phases)}")


def _ranges(ranges: list[RangeRow]) -> list[str]:
    lines = ["Ranges of the script, per step"] if ranges else []
    for row in ranges[:40]:
        name = "  " * row.depth + plain(row.name)
        lines.append(f"  {name:<36.36} {ms(row.ms_per_step):>10} {percent(row.share):>7}")
    return lines


def _findings(findings: list[FindingJson]) -> list[list[str]]:
    """All findings in full; of the verdict, whose first lines stand above, only the rest."""
    if not has_verdict(findings):
        return [[*_first_lines(finding), *_more_lines(finding)] for finding in findings]
    more = _more_lines(findings[0])
    rest = [[*_first_lines(finding), *_more_lines(finding)] for finding in findings[1:]]
    return [[f"{rule_title(findings[0].rule)} in detail", *more] if more else [], *rest]


def _first_lines(finding: FindingJson) -> list[str]:
    """Headline, place, fix and gain, each on a line of its own."""
    title = f"{rule_title(finding.rule)} ({', '.join(filter(None, (finding.severity, finding.cause)))})"
    lines = [*_wrap(f"{title}: {plain(finding.headline)}"), *_places(finding.where[:1])]
    if finding.action:
        lines += _wrap(f"Fix: {plain(finding.action)}", "  ")
    gained = [f"  Gain: {gain}" for fix in finding.fixes[:1] if (gain := gain_text(fix))]
    return [*lines, *gained]


def _more_lines(finding: FindingJson) -> list[str]:
    """A finding's further places, other fixes and evidence."""
    lines = _places(finding.where[1:5])
    for fix in finding.fixes[1:NAMED]:
        lines += _wrap(f"Or: {fix_text(fix)}", "  ")
    if evidence := ", ".join(f"{name} {value}" for name, value in evidence_rows(finding.evidence)):
        lines += _wrap(f"Evidence: {evidence}", "  ")
    return lines


def _places(where: Sequence[CodePlace]) -> list[str]:
    lines = []
    for place in where:
        lines += _wrap(f"at {full_place(place)} {plain(place.function)}", "  ")
        if place.source:
            lines.append(shorten(f"      {plain(place.source)}", WIDTH))
    return lines


def _changes(report: Report) -> list[str]:
    """When the verdict changed, and the verdict over the whole run, which may differ from the last one."""
    changes = report.changes
    lines = ["How the verdict changed"] if changes else []
    for change in changes[:20]:
        step = f", step {count(change.step)}" if change.step is not None else ""
        words = f"{verdict_name(change.before)} -> {verdict_name(change.after)}"
        lines += _wrap(f"{duration(change.at_s)}{step}: {words}", "  ")
    return [*lines, f"  over the whole run: {final_verdict(report.findings)}"] if lines else []


def _titled_list(title: str, texts: Iterable[str]) -> list[str]:
    """Texts below their title; nothing if there is none."""
    lines = [line for text in texts for line in _wrap(plain(text), "  ")]
    return [title, *lines] if lines else []


def _wrap(text: str, indent: str = "") -> list[str]:
    return wrap(indent + text, WIDTH)
