"""The tables of a trace as lines: phases beside those before it, waits, syncs, operators, kernels, copies, launches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from tuimon.records import TracedSync, TracedWork
from tuimon.trace.raw import TakenBy
from tuimon.trace.reader import Trace
from tuimon.trace.summary import PhaseRow, Summary
from tuimon.trace.tables import CopyRow, KernelRow, LaunchRow, WaitRow
from tuimon.views.format import ABSENT, count, ms, percent, phase_name, plain, size
from tuimon.views.trace_text import CAUSES, flops_text
from tuimon.views.tui.drawing.lines import Line, Span, column, line, paragraph

_ROWS = 12
#: Characters of a line of the user's code beside an operator.
_WHERE = 32
_PHASE = len("data+forward") + 1
_ROLES = ("data", "forward", "backward", "optimizer", "other", "eval", "between")


def trace_lines(trace: Trace, summary: Summary, width: int) -> list[Line]:
    """All tables; figures are of one step, in the mean of those traced."""
    parts = (
        _notes(trace, summary, width),
        _phases(summary),
        _waits(summary),
        _syncs(summary),
        _operators(summary, width),
        _kernels(summary, width),
        _copies(summary),
        _launches(summary),
    )
    lines: list[Line] = []
    for part in parts:
        lines += [(), *part] if lines and part else part
    return lines


def headline(taken: TakenBy | None, summary: Summary) -> str:
    """``5 steps · 12.1 ms each``."""
    if not summary.has_steps:
        return f"no steps marked · {ms(summary.span_ns / 1e6)}"
    text = f"{summary.steps} step{'s' if summary.steps > 1 else ''} · {ms(summary.span_ns / summary.steps / 1e6)} each"
    if taken is not None and taken.step_ms:
        text += f" (before the trace: {ms(taken.step_ms)})"
    return text


def _notes(trace: Trace, summary: Summary, width: int) -> list[Line]:
    taken = trace.taken
    lines = [line((headline(taken, summary), "strong"))]
    if summary.flops:
        lines += paragraph(f"{flops_text(summary.flops, summary.steps)}.", width)
    if taken is not None and taken.stop_ms is not None:
        lines += paragraph(
            f"The profiler slows the traced steps; to stop and to write held the training up for {ms(taken.stop_ms)}.",
            width,
            "dim",
        )
        if taken.held_limit_ms is not None and taken.stop_ms > taken.held_limit_ms:
            text = f"That is more than the {ms(taken.held_limit_ms)} allowed: it was estimated from one step before"
            lines += paragraph(f"{text}, and torch cannot be interrupted.", width, "warning")
        if taken.wanted > taken.steps:
            text = f"{taken.wanted} steps were ordered; more would have held the training up for longer than allowed."
            lines += paragraph(text, width, "warning")
    if trace.ended_early:
        lines += paragraph(f"The file was not read to its end: {trace.ended_early}.", width, "warning")
    if trace.dropped or trace.unreadable:
        text = f"Not shown: {count(trace.dropped)} events beyond the limit, {count(trace.unreadable)} damaged."
        lines += paragraph(text, width, "warning")
    return lines


def _phases(summary: Summary) -> list[Line]:
    if not summary.phases:
        return []
    has_gpu = bool(summary.gpus)
    has_before = any(row.before is not None for row in summary.phases)
    head = ["phase", "CPU", "before"] if has_before else ["phase", "CPU"]
    if has_gpu:
        head += ["GPU span", "before", "GPU idle"] if has_before else ["GPU span", "GPU idle"]
    note = ": traced, and before the trace (~: estimated from samples)" if has_before else ""
    lines = [_heading("Phases", f"a step, in ms{note}")]
    lines.append(_head_row(head))
    for row in summary.phases:
        lines.append(_phase_line(row, summary.steps, has_gpu=has_gpu, has_before=has_before))
    for gpu in summary.gpus:
        idle = 1 - gpu.busy_ns / gpu.span_ns if gpu.span_ns else None
        name = f" ({gpu.name})" if gpu.name else ""
        lines.append(
            line(
                (f"GPU {gpu.device}{name} ", "text"),
                (f"idle {percent(idle)}", "strong"),
                (f" · {count(round(gpu.kernels / summary.steps))} kernels a step", "dim"),
                (f" · launching took the CPU {ms(gpu.launch_ns / summary.steps / 1e6)}", "dim"),
            )
        )
    return lines


def _phase_line(row: PhaseRow, steps: int, *, has_gpu: bool, has_before: bool) -> Line:
    before = row.before
    parts = [Span(column(phase_name(row.name), _PHASE), _role(row.name)), _ms(row.cpu_ns, steps, "strong")]
    if has_before:
        parts.append(_before(before.cpu_ms, estimated=before.estimated) if before else _before(None))
    if has_gpu:
        parts.append(_ms(row.gpu_ns, steps, "strong"))
        if has_before:
            parts.append(_before(before.gpu_ms if before else None))
        parts.append(_ms(row.gpu_idle_ns, steps, "text"))
    return tuple(parts)


def _waits(summary: Summary) -> list[Line]:
    total = sum(gpu.span_ns for gpu in summary.gpus) or 1

    def drawn(row: WaitRow) -> Line:
        return line(
            *_lead(row.total_ns, summary.steps, total),
            (CAUSES.get(row.cause, row.cause), _role(row.phase)),
            (f" {plain(row.what)}" if row.what else "", "text"),
            (_where(row.where, summary), "key"),
            (f" · {count(round(row.count / summary.steps))}×, longest {ms(row.longest_ns / 1e6)}", "dim"),
        )

    return _table("What the GPU waited for", "a step; share of its time", summary.waits, drawn)


def _syncs(summary: Summary) -> list[Line]:
    def drawn(row: TracedSync) -> Line:
        return line(
            *_lead(row.total_ns, summary.steps, summary.span_ns or 1),
            (plain(row.name), _role(row.phase)),
            (f" {plain(row.call)}" if row.operator else "", "text"),
            (_where(row.where, summary), "key"),
            (f" · {_per_step(row.count, summary.steps)}", "dim"),
        )

    return _table("Where the CPU waited for the GPU", "a step; share of the step", summary.syncs, drawn)


def _where(where: str, summary: Summary) -> str:
    return f" · {plain(where) or ABSENT}" if where or summary.has_lines else ""


def _operators(summary: Summary, width: int) -> list[Line]:
    has_gpu = bool(summary.gpus)
    total = sum(row.total_ns for row in summary.operators) or 1

    def drawn(row: TracedWork) -> Line:
        gpu = f"GPU {ms((row.gpu_ns or 0) / summary.steps / 1e6, unit=False)}" if has_gpu else ""
        where = column(plain(row.where) or ABSENT, _WHERE).rstrip() if summary.has_lines else ""
        room = width - 36 - (_WHERE + 3 if where else 0)
        return line(
            _ms(row.total_ns, summary.steps, "strong"),
            (column(percent(row.total_ns / total), 6, ">"), "text"),
            (column(gpu, 11, ">") if has_gpu else "", "gpu-edge"),
            *_named(row.name, row.phase, row.count, summary.steps, room),
            (f" · {where}" if where else "", "key"),
        )

    note = "own time on the CPU a step" + (", and of the kernels they launched" if has_gpu else "")
    return _table("Operators", note, summary.operators, drawn)


def _kernels(summary: Summary, width: int) -> list[Line]:
    total = sum(row.total_ns for row in summary.kernels) or 1

    def drawn(row: KernelRow) -> Line:
        shape = f"{count(row.blocks)}×{row.threads}" if row.blocks and row.threads else ABSENT
        return line(
            _ms(row.total_ns, summary.steps, "strong"),
            (column(percent(row.total_ns / total), 6, ">"), "text"),
            (column(shape, 13, ">"), "dim"),
            *_named(row.name, row.phase, row.count, summary.steps, width - 38),
        )

    return _table("Kernels", "time on the GPU a step; blocks × threads of a launch", summary.kernels, drawn)


def _copies(summary: Summary) -> list[Line]:
    def drawn(row: CopyRow) -> Line:
        memory = {True: " from pinned memory", False: " from memory that is not pinned", None: ""}[row.pinned]
        memory = memory.replace("from", "to") if row.kind == "GPU to host" else memory
        speed = f" · {row.total_bytes / row.total_ns:.1f} GB/s" if row.total_bytes and row.total_ns else ""
        return line(
            (column(ms(row.total_ns / summary.steps / 1e6), 9, ">"), "strong"),
            (column(size(row.total_bytes / summary.steps), 10, ">"), "text"),
            "  ",
            (row.kind, _role(row.phase)),
            (memory, "warning" if row.pinned is False else "text"),
            (f" · {_per_step(row.count, summary.steps)}{speed}", "dim"),
        )

    return _table("Copies", "a step", summary.copies, drawn)


def _launches(summary: Summary) -> list[Line]:
    kernels, total = sum(row.count for row in summary.launches), sum(row.total_ns for row in summary.launches)

    def drawn(row: LaunchRow) -> Line:
        small = f" · {count(row.small)} with fewer blocks than multiprocessors" if row.small else ""
        return line(
            (column(row.name, 16), "text"),
            (column(percent(row.count / kernels), 7, ">"), "strong"),
            (column(percent(row.total_ns / total if total else None), 7, ">"), "text"),
            (f" · {_per_step(row.count, summary.steps)}{small}", "dim"),
        )

    return _table("Kernels by their length", "share of launches, share of GPU time", summary.launches, drawn)


Row = TypeVar("Row")


def _table(title: str, note: str, rows: Sequence[Row], drawn: Callable[[Row], Line]) -> list[Line]:
    """The first rows below their heading; nothing without any."""
    hidden = len(rows) - _ROWS
    more = [line((f"           … {hidden} more", "dim"))] if hidden > 0 else []
    return [_heading(title, note), *map(drawn, rows[:_ROWS]), *more] if rows else []


def _lead(total_ns: int, steps: int, whole_ns: int) -> Line:
    """The time of a step, and its share of a whole."""
    return line(
        (column(ms(total_ns / steps / 1e6), 9, ">"), "strong"),
        (column(percent(total_ns / whole_ns), 6, ">"), "text"),
        "  ",
    )


def _heading(title: str, note: str) -> Line:
    return line((title, "strong"), (f"  {note}", "dim"))


def _head_row(names: Sequence[str]) -> Line:
    return tuple(
        Span(column(name, _PHASE if i == 0 else 10, "<" if i == 0 else ">"), "dim") for i, name in enumerate(names)
    )


def _named(name: str, phase: str, number: int, steps: int, room: int) -> tuple[Span, ...]:
    return (
        Span("  "),
        Span(column(plain(name), max(room, 20)).rstrip(), _role(phase)),
        Span(f" · {_per_step(number, steps)}", "dim"),
    )


def _per_step(number: int, steps: int) -> str:
    mean = number / steps
    return f"{count(round(mean))}×" if mean >= 0.95 else f"{count(number)}× in {steps} steps"


def _ms(value_ns: int | None, steps: int, role: str) -> Span:
    return Span(column(ms(value_ns / steps / 1e6 if value_ns is not None else None, unit=False), 10, ">"), role)


def _before(value_ms: float | None, *, estimated: bool = False) -> Span:
    mark = "~" if estimated and value_ms is not None else ""
    return Span(column(f"{mark}{ms(value_ms, unit=False)}", 10, ">"), "dim")


def _role(phase: str) -> str:
    return phase if phase in _ROLES else "text"
