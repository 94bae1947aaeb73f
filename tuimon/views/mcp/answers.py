"""The answers, as lines of text: every number with its unit, every place with file and line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from tuimon.diagnosis.explain.page import page_of
from tuimon.diagnosis.finding import Finding
from tuimon.diagnosis.unjudged import unjudged
from tuimon.records import PHASES, Place
from tuimon.session.loop_tree.hot_lines import by_line
from tuimon.session.session import Session
from tuimon.sources.log.joined.opening import choose_all
from tuimon.views.diff import compare_logs, text_diff
from tuimon.views.evidence_text import evidence_rows, share_text
from tuimon.views.explain import plain_page
from tuimon.views.finding_text import fix_text, speedup
from tuimon.views.format import ms, percent
from tuimon.views.gpu_idle import idle_text_of
from tuimon.views.mcp.limits import bounded
from tuimon.views.mcp.stack_lines import stack_lines
from tuimon.views.report.step_json import Json

_PAIRS = 2  # of code before and after, which an answer has room for beside the rest of a page


def verdict(report: dict[str, Json]) -> str:
    """Three sentences, the phases, and each finding in a few lines."""
    lines = [report["summary"], "", *_phases(report)]
    for finding in report["findings"]:
        cause = f"/{finding['cause']}" if finding["cause"] else ""
        lines += ["", f"{finding['rule']}{cause} ({finding['severity']}): {finding['headline']}"]
        lines += [f"  at {place['file']}:{place['line']} {place['function']}()" for place in finding["where"][:3]]
        lines += [f"  fix: {fix_text(*fix.values())}" for fix in finding["fixes"][:4]]
    return bounded(lines, "ask for the evidence of one rule")


def _phases(report: dict[str, Json]) -> Iterator[str]:
    if report["phases"]:
        yield "share of the step, CPU time and span on the GPU's clock per step (~ estimated from samples):"
    for phase in report["phases"]:
        share = ("~" if phase["estimated"] else "") + percent(phase["share"])
        yield f"  {phase['name']}: {share}, {ms(phase['cpu_ms_per_step'])}{_on_gpu(phase)}"


def _on_gpu(phase: dict[str, Json]) -> str:
    """``, GPU span 25.6 ms (idle 6.1 to 25.4 ms)``."""
    if phase["gpu_ms_per_step"] is None:
        return ""
    idle = idle_text_of(phase)
    return f", GPU span {ms(phase['gpu_ms_per_step'])}" + (f" (idle {idle})" if idle else "")


def evidence(session: Session, findings: Sequence[Finding], rule: str) -> str:
    """The evidence of a finding, or the reason why its rule found nothing."""
    found = [finding for finding in findings if finding.rule == rule]
    if not found:
        reason = dict(unjudged(session)).get(rule)
        return bounded([f"{rule}: not judged, {reason}" if reason else f"{rule}: nothing found"])
    lines: list[str] = []
    for finding in found:
        lines += [f"{rule} ({finding.severity}): {finding.headline}"]
        lines += [f"  cause: {finding.cause}"] if finding.cause else []
        if finding.share_of_step is not None:
            lines.append(f"  share of the step: {share_text(finding.share_of_step, finding.evidence)}")
        if gain := speedup(finding):
            lines.append(f"  estimated gain: {gain} faster")
        lines += [f"  {name}: {value}" for name, value in evidence_rows(finding.evidence)]
        lines += [f"  at {_place(place)}" for place in finding.where[:5]]
        lines += [f"  fix: {fix_text(*fix[:4])}" for fix in finding.fixes]
    return bounded(lines)


def hot_lines(session: Session, phase: str | None, most: int) -> str:
    """The training thread's lines with most samples, over all phases or in one."""
    pid = session.trainer()
    lines = by_line(session.over("recent").hot_lines(pid, phase)) if pid is not None else []
    where = f" in {phase}" if phase in PHASES else ""
    if not lines:
        return f"no stack samples of the training thread{where}"
    head = f"lines of the training thread{where}, by share of {lines[0].total} samples (the last 30 s with samples):"
    return bounded(
        [head, *(f"  {percent(line.share)} ({line.samples}): {_place(line.place)}" for line in lines[:most])]
    )


def stacks(session: Session) -> str:
    """The latest stack of each thread, like ones together."""
    lines = stack_lines(session)
    return bounded(lines) if lines else "no threads are known"


def explain(rule: str, cause: str | None) -> str:
    """The page of a rule; of one with many causes without code, which a cause has."""
    page = page_of(rule, cause)
    if cause is None and len(page.code) > _PAIRS:
        with_code = ", ".join(code.cause for code in page.code if code.cause)
        advice = f"{page.advice} Code before and after: explain one of {with_code}."
        page = replace(page, code=[], advice=advice)
    return bounded(plain_page(page, 100).splitlines(), f"tuimon explain {cause or rule}")


def diff(before: str, after: str) -> str:
    """The comparison of two recordings. Raises TuimonError where there is none, or nothing to compare."""
    found = compare_logs(choose_all(before), choose_all(after))
    return bounded(text_diff(found).splitlines(), "tuimon diff")


def _place(place: Place) -> str:
    source = f": {place.source.strip()}" if place.source else ""
    return f"{place.file}:{place.line} {place.function}(){source}"
