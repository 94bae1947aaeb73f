"""A log folded into the report's one data structure; its field names are the JSON contract."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import NamedTuple

from msgspec.structs import asdict

from tuimon.diagnosis.finding import Finding, finding_json
from tuimon.diagnosis.judging import unjudged
from tuimon.diagnosis.verdicts import Change
from tuimon.node_ids import own_id
from tuimon.records import MemoryHistory, TraceTaken
from tuimon.session.goodput import goodput
from tuimon.session.progress import run_progress
from tuimon.session.ranks import which_training
from tuimon.session.sampling import Sampling
from tuimon.session.session import Session
from tuimon.session.state import RunState, run_state, unseen_trainings
from tuimon.views.gpu_text import with_idle_bounds
from tuimon.views.progress_text import goodput_json, memory_lines, progress_json
from tuimon.views.report.rows_json import (
    Json,
    nodes_json,
    phases_json,
    picked,
    ranks_json,
    rounded,
    steps_json,
    trainings_json,
)
from tuimon.views.report.sentences import summary_of
from tuimon.views.state_text import sampling_text, standstill_json, state_text, unseen_text
from tuimon.views.trace_text import trace_text

REPORT_SCHEMA = 1
_OF_END = ("exit_code", "signal", "last_line")
#: Tables of a trace.
_OF_TRACE = ("operators", "kernels", "syncs")


class ReportPage(NamedTuple):
    """One log: its report and the Session it was folded into."""

    report: dict[str, Json]
    session: Session


def report_of(
    session: Session, findings: Iterable[Finding], log: str, changes: Iterable[Change] = (), *, full: bool = False
) -> dict[str, Json]:
    """The object of ``report --format json``; ``full``: with all ranks, however many."""
    pid = session.trainer()
    trainings, whole = trainings_json(session), session.over("whole")
    table = with_idle_bounds(whole, pid)[0] if pid is not None else None
    findings = list(findings)
    progress = progress_json(run_progress(session, pid)) if pid is not None else {}
    past = [standstill_json(each, session) for each in session.standstills.past]
    process = session.process(pid) if pid is not None else None
    whose = which_training(session).text_of_rank(process.rank if process is not None else None)
    report = {
        "schema": REPORT_SCHEMA,
        "run": _run(session, log),
        **trainings,
        **ranks_json(session, full=full),
        "state": _state(run_state(session)),
        "unseen": [
            {
                "pid": own_id(each.pid),
                **picked(each, "command", "cores", "on_gpu", "reason"),
                "text": unseen_text(each),
            }
            for each in unseen_trainings(session)
        ],
        "steps": steps_json(whole.steps(pid) if pid is not None else None),
        **({"progress": progress} if progress else {}),
        **({"goodput": goodput_json(divided)} if (divided := goodput(session)) is not None else {}),
        "span": _span(session, pid),
        **({"phases_of": whose} if whose else {}),
        "phases": phases_json(table),
        "ranges": [
            {
                **picked(row, "path", "phase", "per_step"),
                "cpu_ms_per_step": rounded(row.ms_per_step),
                "share": row.share,
            }
            for row in (table.ranges if table else ())
        ],
        "sampling": _sampling(whole.sampling()),
        **({"memory": [_memory(each) for each in session.memory_history.values()]} if session.memory_history else {}),
        **({"traces": [_trace(each) for each in session.traces]} if session.traces else {}),
        **({"standstills": past} if past else {}),
        "findings": [finding_json(finding) for finding in findings],
        "changes": [
            {
                "at_s": rounded(change.t_s - session.start_s) if session.start_s is not None else None,
                "step": change.step,
                "from": change.before,
                "to": change.after,
            }
            for change in changes
        ],
        "unjudged": [{"rule": rule, "reason": reason} for rule, reason in unjudged(session)],
    }
    return {"schema": REPORT_SCHEMA, "summary": summary_of(report), **report}


def _memory(history: MemoryHistory) -> dict[str, Json]:
    return {
        "pid": own_id(history.pid),
        **picked(history, "trigger", "device", "steps", "live_bytes", "most_bytes"),
        "text": memory_lines(history),
        "lines": [
            {
                **picked(line, "file", "line", "function", "live_bytes", "blocks"),
                "growth_bytes_per_step": line.growth_bytes,
            }
            for line in history.lines
        ],
    }


def _trace(trace: TraceTaken) -> dict[str, Json]:
    """Times are sums over its steps."""
    idle = 1 - trace.gpu_busy_ns / trace.gpu_span_ns if trace.gpu_span_ns and trace.gpu_busy_ns is not None else None
    return {
        **picked(trace, "pid", "rank", "first_step", "steps", "file"),
        "pause_ms": trace.pause_ms,
        "gpu_idle": rounded(idle),
        "text": trace_text(trace),
        **{name: [asdict(row) for row in getattr(trace, name)] for name in _OF_TRACE},
        "flops": [asdict(row) for row in trace.flops] if trace.flops is not None else None,
    }


def _run(session: Session, log: str) -> dict[str, Json]:
    header, end = session.header, session.exit
    return {
        "log": log,
        "command": header.command if header else [],
        "mode": header.mode if header else None,
        "host": header.host if header else None,
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(header.wall_unix_s)) if header else None,
        "duration_s": round(session.now_s - session.start_s, 3) if session.start_s is not None else None,
        "cpu_count": header.cpu_count if header else None,
        **nodes_json(session),
        "versions": header.versions if header else {},
        "ended": end is not None,
        **(picked(end, *_OF_END) if end else dict.fromkeys(_OF_END)),
        "raised_at": picked(end.raised_at, "file", "line", "function") if end and end.raised_at else None,
        "survivors": [own_id(pid) for pid in end.survivors] if end else [],
        "notices": [picked(each, "source", "level", "message", "hint") for each in session.notices.values()],
    }


def _state(state: RunState) -> dict[str, Json]:
    """Its last state: while it only starts, there are no phases, and no findings except of harm."""
    place = state.place
    return {
        **picked(state, "name", "for_s", "doing", "doing_for_s"),
        "where": picked(place, "file", "line", "function") if place else None,
        "backwards": state.backwards,
        "text": state_text(state),
    }


def _span(session: Session, pid: int | None) -> dict[str, Json] | None:
    """The steps that phases, findings and their evidence are of; None without markers."""
    stats = session.step_stats.get(pid) if pid is not None else None
    totals = stats.over() if stats is not None else None
    if stats is None or totals is None or not totals.steps:
        return None
    return {
        "first_step": stats.steady_index,
        "last_step": stats.total - 1,
        "seconds": rounded(totals.sums.span_s),
    }


def _sampling(sampling: Sampling | None) -> dict[str, Json] | None:
    """The sampling over the whole run, or None where no stacks were sampled; ``coverage`` and ``cpu`` are ratios."""
    if sampling is None:
        return None
    return {
        "rate_hz": rounded(sampling.rate_hz),
        "coverage": rounded(sampling.coverage_ratio),
        "samples": sampling.samples,
        "failed_samples": sampling.failed,
        "lost_windows": sampling.lost,
        "cpu": rounded(sampling.cpu_ratio),
        "text": sampling_text(sampling),
    }
