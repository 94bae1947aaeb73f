"""The answers, as lines of text: every number with its unit, every place with file and line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tuimon.diagnosis import unjudged
from tuimon.diagnosis.explain.page import page_of
from tuimon.diagnosis.finding import Finding
from tuimon.node_ids import own_id
from tuimon.records import PHASES, Place
from tuimon.session.rows import ThreadRow
from tuimon.session.samples.hot_lines import by_line
from tuimon.session.samples.tree import program_part
from tuimon.session.session import Session
from tuimon.sources.log.joined.opening import choose_all
from tuimon.views.diff.logs import compare_logs
from tuimon.views.diff.text import text_diff
from tuimon.views.evidence_text import evidence_text
from tuimon.views.explain.text import plain_page
from tuimon.views.finding_text import fix_text, speedup
from tuimon.views.format import ms, number, percent
from tuimon.views.mcp.limits import bounded
from tuimon.views.report.step_json import Json

_FRAMES = 12  # of a stack
_THREADS = 12


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
        yield "share of the step, CPU and GPU time per step (~ estimated from samples):"
    for phase in report["phases"]:
        share = ("~" if phase["estimated"] else "") + percent(phase["share"])
        gpu = f", GPU {ms(phase['gpu_ms_per_step'])}" if phase["gpu_ms_per_step"] is not None else ""
        yield f"  {phase['name']}: {share}, {ms(phase['cpu_ms_per_step'])}{gpu}"


def evidence(session: Session, findings: Sequence[Finding], rule: str) -> str:
    """What a finding rests on; or why its rule found nothing."""
    found = [finding for finding in findings if finding.rule == rule]
    if not found:
        reason = dict(unjudged(session)).get(rule)
        return bounded([f"{rule}: not judged, {reason}" if reason else f"{rule}: nothing found"])
    lines: list[str] = []
    for finding in found:
        lines += [f"{rule} ({finding.severity}): {finding.headline}"]
        lines += [f"  cause: {finding.cause}"] if finding.cause else []
        if finding.share_of_step is not None:
            lines.append(f"  share of the step: {percent(finding.share_of_step)}")
        if finding.estimated_speedup is not None:
            lines.append(f"  estimated gain: steps {speedup(finding.estimated_speedup)} as fast")
        lines += [
            f"  {name}: {value}" for name, value in map(evidence_text, finding.evidence, finding.evidence.values())
        ]
        lines += [f"  at {_place(place)}" for place in finding.where[:5]]
        lines += [f"  fix: {fix_text(*fix[:4])}" for fix in finding.fixes]
    return bounded(lines)


def hot_lines(session: Session, phase: str | None, most: int) -> str:
    """The training thread's lines with most samples, over all phases or in one."""
    pid = session.trainer()
    lines = by_line(session.hot_lines(pid, phase)) if pid is not None else []
    where = f" in {phase}" if phase in PHASES else ""
    if not lines:
        return f"no stack samples of the training thread{where}"
    head = f"lines of the training thread{where}, by share of {lines[0].total} samples (the last 30 s with samples):"
    return bounded(
        [head, *(f"  {percent(line.share)} ({line.samples}): {_place(line.place)}" for line in lines[:most])]
    )


def stacks(session: Session) -> str:
    """The latest stack of each thread, the busiest first, innermost frame first."""
    rows = sorted(session.threads(), key=lambda row: -(row.cpu_ratio or 0.0))
    lines = [line for row in rows[:_THREADS] for line in _stack(session, row)]
    if len(rows) > _THREADS:
        lines.append(f"({len(rows) - _THREADS} threads more, with less CPU)")
    return bounded(lines) if lines else "no threads are known"


def _stack(session: Session, row: ThreadRow) -> Iterator[str]:
    several = f" x {row.count}" if row.count > 1 else ""
    delay = f", waits {percent(row.delay_ratio)} for a core" if row.delay_ratio else ""
    cpu = f"CPU {percent(row.cpu_ratio)} of a core{delay}"
    yield f"{row.role or row.name}{several} (pid {own_id(row.pid)}, thread {own_id(row.tid)}): {row.state}, {cpu}"
    sampled = session.process_samples(row.pid)
    found = sampled.threads.stack_of(row.tid) if sampled is not None else None
    if found is None:
        return
    numbers, share = found
    same_s = session.same_stack_s(row.pid, row.tid)
    if same_s is not None and same_s >= 1:
        yield f"  the same stack for {number(same_s)} s"
    elif share < 1:
        yield f"  {percent(share)} of its last samples:"
    frames = [session.frames[each] for each in program_part(numbers, session.frames)]
    for frame in list(reversed(frames))[:_FRAMES]:
        yield f"  {frame.file}:{frame.line} {frame.function}() {frame.source.strip()}".rstrip()


def explain(rule: str) -> str:
    """The page of a rule, without its thresholds and links where it is long."""
    lines = plain_page(page_of(rule), 100).splitlines()
    return bounded(lines, f"tuimon explain {rule}")


def diff(before: str, after: str) -> str:
    """The comparison of two recordings. Raises TuimonError where there is none, or nothing to compare."""
    found = compare_logs(choose_all(before), choose_all(after))
    return bounded(text_diff(found).splitlines(), "tuimon diff")


def _place(place: Place) -> str:
    source = f": {place.source.strip()}" if place.source else ""
    return f"{place.file}:{place.line} {place.function}(){source}"
