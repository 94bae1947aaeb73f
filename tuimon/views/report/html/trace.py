"""A trace in the log as tables: what of the steps it took, by operator, kernel and wait."""

from __future__ import annotations

from typing import Any

from tuimon.views.format import count, ms
from tuimon.views.report.step_json import Json

_ROWS = 12


def trace_tables(trace: dict[str, Json]) -> dict[str, Any]:  # Any: what the template draws
    """Times are a step's: sums over the trace, divided by its steps."""
    steps = max(1, trace["steps"])
    operators = [_work(row, steps, row["gpu_ns"]) for row in trace["operators"][:_ROWS]]
    kernels = [_work(row, steps) for row in trace["kernels"][:_ROWS]]
    waits = [
        (row["cause"], row["what"], row["phase"], _each(row["total_ns"], steps), row["where"])
        for row in trace["waits"][:_ROWS]
    ]
    tables = (
        ("Kernels", ("kernel", "phase", "a step", "calls", "line"), kernels),
        ("What the GPU waited for", ("cause", "what", "phase", "a step", "line"), waits),
        ("Operators", ("operator", "phase", "a step", "GPU a step", "calls", "line"), operators),
    )
    return {**trace, "head": trace["text"][:1], "tables": [table for table in tables if table[2]]}


def _work(row: dict[str, Json], steps: int, *more_ns: float | None) -> tuple[str, ...]:
    calls = count(round(row["count"] / steps)) if row["count"] >= steps else "<1"
    times = (_each(ns, steps) for ns in (row["total_ns"], *more_ns))
    return (row["name"], row["phase"], *times, calls, row["where"])


def _each(total_ns: float | None, steps: int) -> str:
    return ms(None if total_ns is None else total_ns / steps / 1e6)
