"""All that a trace shows, computed once, and the record of it in the log: its heaviest rows, few and short."""

from __future__ import annotations

from typing import NamedTuple, TypeVar

from msgspec.structs import asdict, replace

from tuimon.records import TracedFlops, TracedPhase, TracedSync, TracedWait, TracedWork, TraceTaken
from tuimon.text import plain
from tuimon.trace.events import Kind, Stretch, Stretches
from tuimon.trace.flops import flops_of
from tuimon.trace.gaps import Gap, GapFinder, cpu_waits
from tuimon.trace.gpu import Gpu, gpus_of
from tuimon.trace.nesting import Nesting
from tuimon.trace.phases import phases_of, whole
from tuimon.trace.raw import PhaseBefore, TakenBy
from tuimon.trace.reader import Trace
from tuimon.trace.tables import (
    CopyRow,
    KernelRow,
    LaunchRow,
    WaitRow,
    copy_rows,
    kernel_rows,
    launch_rows,
    operator_rows,
    sync_rows,
    wait_rows,
)

#: Rows of each table, and characters of a name (of a path): a record has 6 kB at most, most have 2.
_RECORD_ROWS = 8
_RECORD_WAITS = 6
_RECORD_PHASES = 8
_NAME = 100
_PATH = 400
Row = TypeVar("Row", TracedWork, TracedSync)


class PhaseRow(NamedTuple):
    """A phase, all steps together; the GPU's figures are None without one.

    ``gpu_ns``: from when the main stream reached its beginning to when it reached its end. ``gpu_idle_ns``: how much of
    that the main stream ran nothing. ``before``: of a step before the trace.
    """

    name: str
    cpu_ns: int
    gpu_ns: int | None
    gpu_idle_ns: int | None
    before: PhaseBefore | None


class GpuRow(NamedTuple):
    """One GPU over the steps."""

    device: int
    name: str
    span_ns: int  # from when its main stream reached the first step's beginning to when it reached the last one's end
    busy_ns: int  # any stream ran something
    kernels: int
    launch_ns: int  # CPU time in the calls that launched


class Summary(NamedTuple):
    """The tables of a trace; all figures are sums over ``steps`` steps."""

    steps: int
    has_steps: bool  # False: the file has no steps, all of it counts as one
    span_ns: int
    phases: list[PhaseRow]
    gpus: list[GpuRow]
    operators: list[TracedWork]
    kernels: list[KernelRow]
    waits: list[WaitRow]
    syncs: list[TracedSync]
    copies: list[CopyRow]
    launches: list[LaunchRow]
    flops: list[TracedFlops] | None = None
    has_lines: bool = False  # True if lines of the user's code are known


def summarize(trace: Trace) -> Summary:
    """The summary of a trace."""
    events, span, phases = trace.events, whole(trace), phases_of(trace)
    nesting = Nesting(events)
    gpus = gpus_of(trace, span)
    gaps: list[Gap] = []
    for gpu in gpus:
        gaps += GapFinder(events, nesting, phases, gpu).gaps(span)
    return Summary(
        steps=len(trace.steps.all) or 1,
        has_steps=bool(trace.steps),
        span_ns=span.length_ns,
        phases=_phase_rows(trace, phases, span, gpus),
        gpus=[_gpu_row(trace, gpu, span) for gpu in gpus],
        operators=operator_rows(events, nesting, phases, span, gpus, trace.lines),
        kernels=kernel_rows(events, phases, gpus),
        waits=wait_rows(events, gaps, trace.lines),
        syncs=sync_rows(events, nesting, phases, cpu_waits(events, nesting, span), trace.lines),
        copies=copy_rows(events, phases, gpus),
        launches=launch_rows(events, gpus),
        flops=None if trace.dropped or trace.ended_early else flops_of(trace.products, events, span, gpus),
        has_lines=bool(trace.lines) or Kind.PYTHON in events.kind,
    )


def _phase_rows(trace: Trace, phases: Stretches, span: Stretch, gpus: list[Gpu]) -> list[PhaseRow]:
    """The phases in the order in which they first come."""
    before = {row.phase: row for row in (trace.taken.before if trace.taken is not None else ())}
    gpu = max(gpus, key=lambda each: len(each.works), default=None)
    sums: dict[str, list[int]] = {}
    for stretch in phases.all:
        if not stretch.name or not span.begin_ns <= stretch.begin_ns < span.end_ns:
            continue
        row = sums.setdefault(stretch.name, [0, 0, 0])
        row[0] += stretch.length_ns
        if gpu is not None:
            begin_ns, end_ns = gpu.reached_ns(stretch.begin_ns), gpu.reached_ns(stretch.end_ns)
            row[1] += end_ns - begin_ns
            row[2] += end_ns - begin_ns - gpu.main_busy.within_ns(begin_ns, end_ns)
    known = gpu is not None
    return [
        PhaseRow(name, cpu, on_gpu if known else None, idle if known else None, before.get(name))
        for name, (cpu, on_gpu, idle) in sums.items()
    ]


def _gpu_row(trace: Trace, gpu: Gpu, span: Stretch) -> GpuRow:
    events = trace.events
    begin_ns, end_ns = gpu.reached_ns(span.begin_ns), gpu.reached_ns(span.end_ns)
    launches = {events.correlation[i] for i in gpu.works} & gpu.launches.keys()
    return GpuRow(
        device=gpu.device,
        name=gpu.name,
        span_ns=end_ns - begin_ns,
        busy_ns=gpu.busy.within_ns(begin_ns, end_ns),
        kernels=sum(events.kind[i] == Kind.KERNEL for i in gpu.works),
        launch_ns=sum(gpu.launches[each].end_ns - gpu.launches[each].begin_ns for each in launches),
    )


def record_of(path: str, taken: TakenBy, summary: Summary) -> TraceTaken:
    """The record; ``path``: of the file. Its ``t`` is the trace's end; the number of its first step is unknown here."""
    operators, kernels = summary.operators[:_RECORD_ROWS], summary.kernels[:_RECORD_ROWS]
    waits, syncs = summary.waits[:_RECORD_WAITS], summary.syncs[:_RECORD_WAITS]
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
        phases=[_phase(row) for row in summary.phases[:_RECORD_PHASES]],
        operators=[_shortened(row) for row in operators],
        kernels=[TracedWork(_short(row.name), _short(row.phase), row.count, row.total_ns) for row in kernels],
        waits=[
            TracedWait(row.cause, _short(row.what), _short(row.phase), _short(row.where), row.count, row.total_ns)
            for row in waits
        ],
        syncs=[_shortened(row) for row in syncs],
        flops=summary.flops[:_RECORD_ROWS] if summary.flops is not None else None,
        folded=rows - len(operators) - len(kernels) - len(waits) - len(syncs),
    )


def _shortened(row: Row) -> Row:
    """The row with all of its names cut."""
    return replace(row, **{name: _short(text) for name, text in asdict(row).items() if isinstance(text, str)})


def _phase(row: PhaseRow) -> TracedPhase:
    then = row.before or PhaseBefore(row.name)
    before = (then.cpu_ms, then.gpu_ms, then.gpu_idle_ms, then.estimated)
    return TracedPhase(_short(row.name), row.cpu_ns, row.gpu_ns, row.gpu_idle_ns, *before)


def _short(name: str) -> str:
    name = plain(name)
    return name if len(name) <= _NAME else f"{name[: _NAME - 1]}…"
