"""Trace-event JSON for Perfetto (https://ui.perfetto.dev): counters over time, slowest steps, the user's marks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TextIO

from tuimon.records import Exit, Gpu, GpuTime, Mark, Process, Record, Steps, Threads
from tuimon.views.json_text import json_text

_Event = dict[str, Any]  # Any: JSON


def write_perfetto(records: Iterable[Record], out: TextIO) -> None:
    """Write the file, event by event: a log of a day has millions. Times are microseconds of the monotonic clock."""
    separator = '{"displayTimeUnit":"ms","traceEvents":['
    for record in records:
        for event in _events(record):
            out.write(separator + json_text(event).rstrip("\n"))
            separator = ","
    out.write("]}\n" if separator == "," else separator + "]}\n")


def _events(record: Record) -> Iterator[_Event]:
    match record:
        case Process():
            name = f"{record.role} {' '.join(record.command)[:80]}"
            yield {"ph": "M", "name": "process_name", "pid": record.pid, "tid": 0, "args": {"name": name}}
        case Steps() if record.count:
            if record.usual:
                per_step = {p.name: p.total_ns / record.usual / 1e6 for p in record.phases}
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
