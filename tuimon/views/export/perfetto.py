"""Trace-event JSON for Perfetto (https://ui.perfetto.dev): counters over time, slowest steps, the user's marks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from tuimon.records import Exit, Gpu, GpuTime, Mark, Process, Record, Steps, Threads

_Event = dict[str, Any]  # Any: JSON


def perfetto(records: Iterable[Record]) -> dict[str, Any]:  # Any: JSON
    """The whole file as JSON values; times are microseconds of the monotonic clock."""
    events: list[_Event] = []
    for record in records:
        events.extend(_events(record))
    return {"displayTimeUnit": "ms", "traceEvents": events}


def _events(record: Record) -> Iterator[_Event]:
    match record:
        case Process():
            name = f"{record.role} {' '.join(record.command)[:80]}"
            yield {"ph": "M", "name": "process_name", "pid": record.pid, "tid": 0, "args": {"name": name}}
        case Steps() if record.count:
            per_step = {p.name: p.total_ns / record.count / 1e6 for p in record.phases}
            yield _counter(record, "ms per step", per_step)
            yield _counter(record, "steps per second", {"steps": record.count / record.window_s})
        case Threads() if record.cpu_ratio is not None:
            yield _counter(record, "CPU cores", {"cores": record.cpu_ratio})
        case Gpu() if record.util_ratio is not None:
            yield _counter(record, f"GPU {record.index} utilisation", {"percent": 100 * record.util_ratio})
        case GpuTime():
            yield from _gpu_time(record)
        case Mark():
            yield {"ph": "i", "s": "p", "name": record.name, "pid": record.pid, "tid": record.pid, "ts": record.t * 1e6}
        case Exit():
            name = f"ended: {record.signal or record.exit_code}"
            yield {"ph": "i", "s": "g", "name": name, "pid": record.pid, "tid": record.pid, "ts": record.t * 1e6}


def _gpu_time(record: GpuTime) -> Iterator[_Event]:
    leads = {lead.boundary: lead.median_us / 1000 for lead in record.leads if lead.median_us is not None}
    if leads:
        yield _counter(record, "launches run ahead, ms", leads)
    if record.total_ns:
        shares = {phase.name: phase.span_ns / record.total_ns for phase in record.phases if phase.name != "eval"}
        yield _counter(record, "GPU time by phase", shares)
        idle = sum(phase.idle_ns for phase in record.phases if phase.name != "eval") / record.total_ns
        yield _counter(record, "GPU idle, certain", {"ratio": idle})


def _counter(record: Record, name: str, values: dict[str, float]) -> _Event:
    return {"ph": "C", "name": name, "pid": record.pid, "ts": record.t * 1e6, "args": values}
