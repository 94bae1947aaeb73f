"""A trace in words, from its record: what was traced, what took longest, and the figures before it."""

from __future__ import annotations

from collections.abc import Sequence

from tuimon.records import TracedFlops, TraceTaken
from tuimon.session.session import Session
from tuimon.trace.raw import TakenBy
from tuimon.views.format import ABSENT, count, flops, ms, percent, phase_name, plain

#: Rows of each table in the report.
_ROWS = 5
_KINDS = {"product": "matrix products", "convolution": "convolutions", "recurrent": "recurrent layers"}


def head_text(trace: TraceTaken) -> str:
    """``Trace of steps 120 to 124 of rank 0: 12.1 ms each (9.80 ms before), held up for 140 ms: /home/t.json.gz``."""
    whose = f"process {trace.pid}" if trace.rank is None else f"rank {trace.rank}"
    length_ms = (trace.end_s - trace.begin_s) * 1000 / trace.steps if trace.steps else None
    before = f" ({ms(trace.step_ms_before)} before)" if trace.step_ms_before else ""
    held = f", held up for {ms(trace.pause_ms)} to stop and to write" if trace.pause_ms is not None else ""
    each = "" if trace.steps == 1 else " each"
    return f"Trace of {_steps_text(trace)} of {whose}: {ms(length_ms)}{each}{before}{held}: {plain(trace.file)}"


def trace_text(trace: TraceTaken) -> list[str]:
    """The head, then idle time, waits of the CPU, operators and kernels; times are of one step."""
    lines = [head_text(trace)]
    if trace.gpu_span_ns and trace.gpu_busy_ns is not None:
        lines.append(f"GPU idle {percent(1 - trace.gpu_busy_ns / trace.gpu_span_ns)}")
    if trace.flops:
        lines.append(flops_text(trace.flops, trace.steps or 1))
    steps = trace.steps or 1
    for sync in trace.syncs[:_ROWS]:
        waited, times = ms(sync.total_ns / steps / 1e6), _times(sync.count)
        where = plain(sync.where) or ABSENT
        lines.append(f"the CPU waited {waited} for the GPU in {plain(sync.name)}, {times}, at {where}")
    for kind, rows in (("operator", trace.operators), ("kernel", trace.kernels)):
        for row in rows[:_ROWS]:
            gpu = f", its kernels {ms(row.gpu_ns / steps / 1e6)}" if row.gpu_ns else ""
            at = f", at {plain(row.where)}" if row.where else ""
            text = f"{kind} {plain(row.name)}: {ms(row.total_ns / steps / 1e6)}{gpu}, {_times(row.count)}"
            lines.append(f"{text}, {plain(phase_name(row.phase)) or ABSENT}{at}")
    if trace.folded:
        lines.append(f"{count(trace.folded)} more operators, kernels and waits are in the file alone")
    return lines


def flops_text(rows: Sequence[TracedFlops], steps: int) -> str:
    """``2.41 TFLOP a step: 96 % matrix products in bfloat16, 4 % attention in bfloat16``."""
    total = sum(row.flops for row in rows)
    parts = ", ".join(
        f"{percent(row.flops / total)} {_KINDS.get(row.kind, plain(row.kind))} in {plain(row.dtype)}" for row in rows
    )
    return f"{flops(total / steps)} a step: {parts}"


def _steps_text(trace: TraceTaken) -> str:
    ordered = f", of {count(trace.wanted)} that were ordered," if trace.wanted > trace.steps else ""
    if trace.first_step is None:
        return f"{trace.steps} steps{ordered}"
    if trace.steps == 1:
        return f"step {count(trace.first_step)}{ordered}"
    return f"steps {count(trace.first_step)} to {count(trace.first_step + trace.steps - 1)}{ordered}"


def _times(number: int) -> str:
    return "once in all" if number == 1 else f"{count(number)} times in all"


def known_before(session: Session, pid: int) -> TakenBy:
    """Command, rank and length of a step, as far as they are known."""
    process, steps = session.process(pid), session.over("recent").steps(pid)
    return TakenBy(
        pid=pid,
        rank=process.rank if process is not None else None,
        command=" ".join(process.command)[:500] if process is not None else "",
        step_ms=steps.median_ms if steps is not None else None,
    )
