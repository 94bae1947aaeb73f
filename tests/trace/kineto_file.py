"""Writes trace files as kineto does: field by field as torch 2.13 writes them, with the GPU's events of a recording."""

import gzip
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.gpu_simulator import recording
from tuimon.agent.ring import layout

#: Kineto's times count from a moment some months ago, in us.
BASE_US = 4_437_816_935_090.11
PID, TID = 4321, 4321

_WAITS = {
    "synchronise": "cudaStreamSynchronize",
    "stream_wait": "cudaStreamWaitEvent",
    "malloc": "cudaMalloc",
    "free": "cudaFree",
}


def event(
    cat: str, name: str, begin_ns: int, end_ns: int, tid: Any = TID, pid: Any = PID, **args: Any
) -> dict[str, Any]:
    """One event of a length."""
    ts = BASE_US + begin_ns / 1000
    return {
        "ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": (end_ns - begin_ns) / 1000,
        "args": args,
    }  # fmt: skip


def kernel(
    name: str, begin_ns: int, end_ns: int, correlation: int, stream: int = 7, device: int = 0, **args: Any
) -> dict[str, Any]:
    """A kernel on a stream."""
    whole = {
        "External id": 1, "queued": 0, "device": device, "context": 1, "stream": stream, "correlation": correlation,
        "registers per thread": 32, "shared memory": 0, "blocks per SM": 1.0, "warps per SM": 8.0,
        "grid": [80, 1, 1], "block": [256, 1, 1], "est. achieved occupancy %": 50,
    }  # fmt: skip
    return event("kernel", name, begin_ns, end_ns, stream, device, **(whole | args))


def copy(name: str, begin_ns: int, end_ns: int, correlation: int, stream: int = 7, **args: Any) -> dict[str, Any]:
    """A copy on a stream."""
    whole = {"device": 0, "context": 1, "stream": stream, "correlation": correlation, "bytes": 1 << 20}
    return event("gpu_memcpy", name, begin_ns, end_ns, stream, 0, **(whole | args))


def call(name: str, begin_ns: int, end_ns: int, correlation: int = 0, tid: int = TID) -> dict[str, Any]:
    """A call of the CUDA runtime."""
    return event("cuda_runtime", name, begin_ns, end_ns, tid, cbid=211, correlation=correlation)


def contents(events: list[dict[str, Any]], **head: Any) -> str:
    """A whole file, laid out as kineto does it."""
    properties = [{"id": 0, "name": "Tesla V100", "totalGlobalMem": 1 << 35, "numSms": 80}]
    top = {"schemaVersion": 1, "deviceProperties": properties, **head, "displayTimeUnit": "ms"}
    lines = ",\n".join("  " + json.dumps(each, indent=2).replace("\n", "\n  ") for each in events)
    return json.dumps(top)[:-1] + ',\n"traceEvents": [\n' + lines + '\n  ],"traceName": "/tmp/trace.json" }'


def write(path: Path, events: list[dict[str, Any]], **head: Any) -> str:
    """Write the file, packed where its name ends in .gz; returns its path."""
    data = contents(events, **head).encode()
    path.write_bytes(gzip.compress(data, 1) if path.suffix == ".gz" else data)
    return str(path)


def of_recording(name: str) -> list[dict[str, Any]]:
    """A recorded GPU training as a trace: its calls, its works, and its loop as tuimon marks it."""
    recorded = recording.load(name)
    found = []
    for number, work in enumerate(recorded.works, 1):
        called = work.called_ns, max(work.returned_ns, work.called_ns)
        if work.kind == recording.COPY:
            found.append(call("cudaMemcpyAsync", *called, number))
            found.append(copy("Memcpy HtoD (Pageable -> Device)", work.start_ns, work.end_ns, number, work.stream))
        else:
            found.append(call("cudaLaunchKernel", *called, number))
            found.append(kernel("gemm", work.start_ns, work.end_ns, number, work.stream))
    for wait in recorded.waits:
        found.append(call(_WAITS[wait.kind], wait.begin_ns, wait.end_ns))
    return found + _loop(recorded)


def _loop(recorded: recording.Recording) -> list[dict[str, Any]]:
    """Steps from fetch to fetch, or from backward to backward; after the warm-up."""
    marks = recorded.marks
    kinds = {mark.kind for mark in marks}
    first = layout.FETCH_BEGIN if layout.FETCH_BEGIN in kinds else layout.BACKWARD_BEGIN
    begins = [mark.time_ns for mark in marks if mark.kind == first][recorded.skip_first_steps :]
    found = [event("tuimon_step", f"step {n}", *pair) for n, pair in enumerate(pairwise(begins))]
    for before, after in pairwise(marks):
        if begins[0] <= before.time_ns < begins[-1]:
            found.append(event("tuimon_phase", recording.phase(before.kind, after.kind), before.time_ns, after.time_ns))
    return found
