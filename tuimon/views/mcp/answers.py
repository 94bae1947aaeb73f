"""The answers, as lines of text: every number with its unit, every place with file and line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from tuimon.diagnosis.explain.page import page_of
from tuimon.diagnosis.finding import Finding
from tuimon.diagnosis.judging import unjudged
from tuimon.node_ids import own_id
from tuimon.records import PHASES, Place
from tuimon.session.loop_tree.hot_lines import by_line
from tuimon.session.loop_tree.stacks import Stack
from tuimon.session.loop_tree.tree import program_part
from tuimon.session.rows import ThreadRow
from tuimon.session.session import Session
from tuimon.session.standing.text import rank_list
from tuimon.sources.log.joined.opening import choose_all
from tuimon.views.diff import compare_logs, text_diff
from tuimon.views.evidence_text import evidence_rows, share_text
from tuimon.views.explain import plain_page
from tuimon.views.finding_text import fix_text, speedup
from tuimon.views.format import ms, number, percent
from tuimon.views.gpu_idle import idle_text_of
from tuimon.views.mcp.limits import bounded
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


_FRAMES = 12  # of a stack
_GROUPS = 12


class _Group(NamedTuple):
    """Threads of one role at one stack; without samples, all of the role that have none."""

    role: str
    is_main: bool  # of a training process
    rows: list[ThreadRow]


def stack_lines(session: Session) -> list[str]:
    """A few lines for each group, innermost frame first; the main threads first, then those that use most CPU."""
    groups = sorted(_groups(session), key=lambda group: (not group.is_main, -_most_cpu(group)))
    lines = [line for group in groups[:_GROUPS] for line in _group_lines(session, group)]
    if len(groups) > _GROUPS:
        lines.append(f"({sum(len(group.rows) for group in groups[_GROUPS:])} threads more, at other stacks)")
    return lines


def _groups(session: Session) -> list[_Group]:
    trainers = session.trainers()
    training = {(pid, session.training_tid(pid)) for pid in trainers}
    now = session.over("recent")
    mains = [row for pid in trainers for row in now.threads_of(pid) if (pid, row.tid) in training]
    rest = [row for row in now.threads() if (row.pid, row.tid) not in training]
    found: dict[tuple[str, bool, Stack], _Group] = {}
    for row in (*mains, *rest):
        role, is_main = (row.role or row.name).rstrip(" 0123456789"), (row.pid, row.tid) in training
        group = found.setdefault((role, is_main, _frames(session, row)), _Group(role, is_main, []))
        group.rows.append(row)
    return list(found.values())


def _frames(session: Session, row: ThreadRow) -> Stack:
    """A thread's most frequent stack, root first; empty without samples."""
    sampled = session.samples.get(row.pid)
    found = sampled.threads.stack_of(row.tid) if sampled is not None else None
    return program_part(session.frames.stack(found[0])) if found is not None else ()


def _group_lines(session: Session, group: _Group) -> Iterator[str]:
    if len(group.rows) == 1:
        yield _thread_line(session, group.rows[0])
        yield from _how_long(session, group.rows[0])
    else:
        yield _threads_line(session, group)
    for frame in list(reversed(_frames(session, group.rows[0])))[:_FRAMES]:
        yield f"  {frame.file}:{frame.line} {frame.function}() {frame.source.strip()}".rstrip()


def _thread_line(session: Session, row: ThreadRow) -> str:
    several = f" x {row.count}" if row.count > 1 else ""
    delay = f", waits {percent(row.delay_ratio)} for a core" if row.delay_ratio else ""
    ranks = _ranks(session, [row])
    ids = f"({f'rank {ranks[0]}, ' if ranks else ''}pid {own_id(row.pid)}, thread {own_id(row.tid)})"
    return f"{row.role or row.name}{several} {ids}: {row.state}, CPU {percent(row.cpu_ratio)} of a core{delay}"


def _threads_line(session: Session, group: _Group) -> str:
    """``main x 7 (ranks 0-2, 4-7): running, CPU 71 % to 79 % of a core``."""
    ranks = _ranks(session, group.rows)
    states = ", ".join(sorted({row.state for row in group.rows}))
    shares = [row.cpu_ratio for row in group.rows if row.cpu_ratio is not None]
    ends = list(dict.fromkeys((percent(min(shares)), percent(max(shares))))) if shares else []
    cpu = f", CPU {' to '.join(ends)} of a core" if ends else ""
    named = f" (ranks {rank_list(ranks)})" if ranks else ""
    return f"{group.role} x {sum(row.count for row in group.rows)}{named}: {states}{cpu}"


def _how_long(session: Session, row: ThreadRow) -> Iterator[str]:
    sampled = session.samples.get(row.pid)
    found = sampled.threads.stack_of(row.tid) if sampled is not None else None
    same_s = sampled.threads.same_stack_s(row.tid) if sampled is not None else None
    if same_s is not None and same_s >= 1:
        yield f"  the same stack for {number(same_s)} s"
    elif found is not None and found[1] < 1:
        yield f"  {percent(found[1])} of its last samples:"


def _ranks(session: Session, rows: list[ThreadRow]) -> list[int]:
    """Ranks of main threads; empty where the run has but one."""
    known = (session.process(row.pid) for row in rows if row.tid == row.pid)
    return sorted({process.rank for process in known if process is not None and process.rank is not None})


def _most_cpu(group: _Group) -> float:
    return max(row.cpu_ratio or 0.0 for row in group.rows)
