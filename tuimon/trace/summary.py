"""All that a trace shows, computed once, and the record of it in the log: its heaviest rows, few and short."""

from __future__ import annotations

from typing import NamedTuple, TypeVar

from msgspec.structs import asdict, replace

from tuimon.records import TracedFlops, TracedSync, TracedWork, TraceTaken
from tuimon.text import plain
from tuimon.trace.events import Kind, Stretch
from tuimon.trace.flops import flops_of
from tuimon.trace.gpu import Gpu, gpus_of
from tuimon.trace.nesting import Nesting
from tuimon.trace.phases import phases_of, whole
from tuimon.trace.raw import TakenBy
from tuimon.trace.reader import Trace
from tuimon.trace.syncs import cpu_waits
from tuimon.trace.tables import kernel_rows, operator_rows, sync_rows

#: Rows of each table, and characters of a name (of a path): a record has 6 kB at most, most have 2.
_RECORD_ROWS = 8
_RECORD_SYNCS = 6
_NAME = 100
_PATH = 400
Row = TypeVar("Row", TracedWork, TracedSync)


class GpuRow(NamedTuple):
    """One GPU over the steps."""

    device: int
    name: str
    span_ns: int  # from when its main stream reached the first step's beginning to when it reached the last one's end
    busy_ns: int  # any stream ran something
    kernels: int


class Summary(NamedTuple):
    """The tables of a trace; all figures are sums over ``steps`` steps."""

    steps: int
    has_steps: bool  # False: the file has no steps, all of it counts as one
    span_ns: int
    gpus: list[GpuRow]
    operators: list[TracedWork]
    kernels: list[TracedWork]
    syncs: list[TracedSync]
    flops: list[TracedFlops] | None = None
    has_lines: bool = False  # True if lines of the user's code are known


def summarize(trace: Trace) -> Summary:
    """The summary of a trace."""
    events, span, phases = trace.events, whole(trace), phases_of(trace)
    nesting = Nesting(events)
    gpus = gpus_of(trace, span)
    return Summary(
        steps=len(trace.steps.all) or 1,
        has_steps=bool(trace.steps),
        span_ns=span.length_ns,
        gpus=[_gpu_row(trace, gpu, span) for gpu in gpus],
        operators=operator_rows(events, nesting, phases, span, gpus, trace.lines),
        kernels=kernel_rows(events, phases, gpus),
        syncs=sync_rows(events, nesting, phases, cpu_waits(events, nesting, span), trace.lines),
        flops=None if trace.dropped or trace.ended_early else flops_of(trace.products, events, span, gpus),
        has_lines=bool(trace.lines) or Kind.PYTHON in events.kind,
    )


def _gpu_row(trace: Trace, gpu: Gpu, span: Stretch) -> GpuRow:
    events = trace.events
    begin_ns, end_ns = gpu.reached_ns(span.begin_ns), gpu.reached_ns(span.end_ns)
    return GpuRow(
        device=gpu.device,
        name=gpu.name,
        span_ns=end_ns - begin_ns,
        busy_ns=gpu.busy.within_ns(begin_ns, end_ns),
        kernels=sum(events.kind[i] == Kind.KERNEL for i in gpu.works),
    )


def record_of(path: str, taken: TakenBy, summary: Summary) -> TraceTaken:
    """The record; ``path``: of the file. Its ``t`` is the trace's end; the number of its first step is unknown here."""
    operators, kernels = summary.operators[:_RECORD_ROWS], summary.kernels[:_RECORD_ROWS]
    syncs = summary.syncs[:_RECORD_SYNCS]
    rows = len(summary.operators) + len(summary.kernels) + len(summary.syncs)
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
        operators=[_shortened(row) for row in operators],
        kernels=[_shortened(row) for row in kernels],
        syncs=[_shortened(row) for row in syncs],
        flops=summary.flops[:_RECORD_ROWS] if summary.flops is not None else None,
        folded=rows - len(operators) - len(kernels) - len(syncs),
    )


def _shortened(row: Row) -> Row:
    """The row with all of its names cut."""
    return replace(row, **{name: _short(text) for name, text in asdict(row).items() if isinstance(text, str)})


def _short(name: str) -> str:
    name = plain(name)
    return name if len(name) <= _NAME else f"{name[: _NAME - 1]}…"
