"""Trace-event JSON for Perfetto (https://ui.perfetto.dev): counters over time and the user's marks, by process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TextIO

from tuimon.node_ids import id_on_node, own_id
from tuimon.records import Exit, Gpu, GpuTime, Mark, Node, Process, Record, Steps, Threads
from tuimon.views.export.process_names import ProcessNames
from tuimon.views.json_text import json_text

_Event = dict[str, Any]  # Any: JSON


def write_perfetto(records: Iterable[Record], out: TextIO) -> None:
    """Write the file, event by event: a log of a day has millions. Times are microseconds of the monotonic clock."""
    separator = '{"displayTimeUnit":"ms","traceEvents":['
    names = ProcessNames()
    for record in records:
        names.add_record(record)
        for event in _events(record, names):
            event["pid"] = names.number(event["pid"])
            out.write(separator + json_text(event).rstrip("\n"))
            separator = ","
    out.write("]}\n" if separator == "," else separator + "]}\n")


def _events(record: Record, names: ProcessNames) -> Iterator[_Event]:
    match record:
        case Node():  # facts that a node has once
            yield _meta(id_on_node(record.number, 0), "process_name", name=f"node {record.host}")
        case Process():
            command = f"{record.role} {' '.join(record.command)[:80]}"
            yield _meta(record.pid, "process_name", name=": ".join(filter(None, (names.title(record.pid), command))))
            rank = names.rank(record.pid)
            if rank is not None:
                yield _meta(record.pid, "process_sort_index", sort_index=rank)
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
            yield _instant(record, "p", record.name)
        case Exit():
            yield _instant(record, "g", f"ended: {record.signal or record.exit_code}")


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


def _instant(record: Record, scope: str, name: str) -> _Event:
    """``scope``: "p", of its process, or "g", of all."""
    return {"ph": "i", "s": scope, "name": name, "pid": record.pid, "tid": own_id(record.pid), "ts": record.t * 1e6}


def _meta(pid: int, kind: str, **args: object) -> _Event:
    return {"ph": "M", "name": kind, "pid": pid, "tid": 0, "args": args}
