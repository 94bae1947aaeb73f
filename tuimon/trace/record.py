"""A trace as a record of the log: its heaviest rows, few and short enough for any log."""

from __future__ import annotations

from tuimon.records import TracedPhase, TracedSync, TracedWait, TracedWork, TraceTaken
from tuimon.text import plain
from tuimon.trace.raw import PhaseBefore, TakenBy
from tuimon.trace.summary import PhaseRow, Summary
from tuimon.trace.tables import OperatorRow

#: Rows of each table, and characters of a name (of a path): a record has 6 kB at most, most have 2.
ROWS = 8
_WAITS = 6
_PHASES = 8
_NAME = 100
_PATH = 400


def record_of(path: str, taken: TakenBy, summary: Summary) -> TraceTaken:
    """The record; ``path``: of the file. Its ``t`` is the trace's end; the number of its first step is unknown here."""
    operators, kernels = summary.operators[:ROWS], summary.kernels[:ROWS]
    waits, syncs = summary.waits[:_WAITS], summary.syncs[:_WAITS]
    rows = len(summary.operators) + len(summary.kernels) + len(summary.waits) + len(summary.syncs)
    has_gpu = bool(summary.gpus)
    return TraceTaken(
        t=taken.end_s,
        pid=taken.pid,
        begin_s=taken.begin_s,
        end_s=taken.end_s,
        steps=taken.steps,
        wanted=taken.wanted,
        rank=taken.rank,
        file=plain(path)[-_PATH:],
        torch=taken.torch[:_NAME],
        pause_ms=taken.stop_ms,
        step_ms_before=taken.step_ms,
        gpu_span_ns=sum(gpu.span_ns for gpu in summary.gpus) if has_gpu else None,
        gpu_busy_ns=sum(gpu.busy_ns for gpu in summary.gpus) if has_gpu else None,
        phases=[_phase(row) for row in summary.phases[:_PHASES]],
        operators=[_operator(row, has_gpu=has_gpu) for row in operators],
        kernels=[TracedWork(_short(row.name), _short(row.phase), row.count, row.total_ns) for row in kernels],
        waits=[
            TracedWait(row.cause, _short(row.what), _short(row.phase), _short(row.where), row.count, row.total_ns)
            for row in waits
        ],
        syncs=[_sync(row) for row in syncs],
        folded=rows - len(operators) - len(kernels) - len(waits) - len(syncs),
    )


def _operator(row: OperatorRow, *, has_gpu: bool) -> TracedWork:
    gpu_ns = row.gpu_ns if has_gpu else None
    return TracedWork(_short(row.name), _short(row.phase), row.count, row.self_ns, gpu_ns, _short(row.where))


def _sync(row: TracedSync) -> TracedSync:
    names = (_short(row.call), _short(row.operator), _short(row.phase), _short(row.where))
    return TracedSync(*names, row.count, row.total_ns)


def _phase(row: PhaseRow) -> TracedPhase:
    then = row.before or PhaseBefore(row.name)
    before = (then.cpu_ms, then.gpu_ms, then.gpu_idle_ms, then.estimated)
    return TracedPhase(_short(row.name), row.cpu_ns, row.gpu_ns, row.gpu_idle_ns, *before)


def _short(name: str) -> str:
    name = plain(name)
    return name if len(name) <= _NAME else f"{name[: _NAME - 1]}…"
