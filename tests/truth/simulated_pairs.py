"""Pairs that need a GPU: the page's lines in the samples of a simulated training; or what NVML shows of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from tests.diagnosis.gpu import BACKWARD, FETCH, FORWARD, ITEM, LINES, STEP, TO_DEVICE, USUAL, gpu
from tests.gpu_simulator import loops
from tests.gpu_simulator.sessions import UUID
from tests.gpu_simulator.training import PID
from tests.scenarios.streams import STREAMS, Step, simulate
from tests.session.records import header, process, stacks, threads
from tests.truth.pairs import Side, When
from tuimon.records import Frame, Frames, GpuProcess, GpuTime, Record, Steps, TorchMemory

_SECONDS = 8.0
#: A frame of the simulated program -> what its line has in it, one or another.
_LINES = {
    FETCH: ("for ",),
    TO_DEVICE: (".to(",),
    FORWARD: ("model(",),
    BACKWARD: (".backward(",),
    STEP: ("optimizer.step(",),
    ITEM: (".item(", "[mask]"),
}
#: Rule -> the loop of ``tests/scenarios`` that is the same, with and without its fault.
_STREAMS = {
    "launch_bound": "small kernels",
    "sync_point": "item() every step, work after it",
    "transfer_bound": "pageable copies",
}
Samples = Iterable[tuple[list[int], int]]


def simulated_records(side: Side) -> list[Record]:
    """The records of a training with this code. Raises KeyError for a rule that has no simulation."""
    return _of_stream(side) if side.rule in _STREAMS else _FACTS[side.rule](side.when)


def _of_stream(side: Side) -> list[Record]:
    stream = next(each for each in STREAMS if each.name == _STREAMS[side.rule])
    if side.when == "before":
        return _training(stream.step, _frames(side.text), stream.samples)
    assert stream.fixed is not None
    return _training(stream.fixed, _frames(side.text), [*USUAL, ([FETCH], 5)])


def _frames(code: str) -> Frames:
    """The simulated program's frames, its lines those of the code; a line that the code lacks is in none."""
    rows = list(LINES.frames)
    for number, parts in _LINES.items():
        lines = enumerate(code.splitlines(), 1)
        found = next(((n, text) for n, text in lines if any(part in text for part in parts)), (0, ""))
        rows[number] = Frame("/home/me/train.py", found[0], "main", found[1].strip(), True)
    return msgspec.structs.replace(LINES, frames=rows)


def _training(step: Step, lines: Frames, samples: Samples, *facts: Record, **figures: object) -> list[Record]:
    """A loop's records: its steps and GPU times, samples of these frames, threads, NVML's figures with ``figures``."""
    simulated, _, busy = simulate(step, _SECONDS)
    begun_s = simulated[0].t - 1.0
    known = [(ids, n) for ids, n in samples if all(lines.frames[i].line for i in ids)]
    records: list[Record] = [header(pid=PID, cpu_count=8, t=begun_s), lines]
    records += facts or [process(PID, t=begun_s, torch="2.13.0+cu130", gpu_uuids=[UUID])]
    for record in simulated:
        records.append(record)
        if isinstance(record, Steps):
            rows = [(PID, "python", 0.99, "running", 0.0), (PID + 1, "pt_autograd_0", 0.0, "running", 0.0)]
            beside = {"pcie_rx_bytes_per_s": 2e9} | {"util": round(busy, 3)} | figures
            records += [gpu(record.t, **beside), threads(record.t, *rows), stacks(record.t, *known)]
    return records


def _busy(*facts: Record, **figures: object) -> list[Record]:
    """A training whose GPU is the bottleneck."""
    return _training(loops.gpu_bound, LINES, USUAL, *facts, **{"util": 0.99, **figures})


def _precision(when: When) -> list[Record]:
    """The use of the GPU's tensor cores in float32, and under autocast with TF32."""
    low = when == "after"
    reported = process(PID, torch="2.13.0+cu130", gpu_uuids=[UUID], parameter_dtypes=["float32"], tf32=low)
    return _busy(reported, tensor_ratio=0.35 if low else 0.0)


def _retries(when: When) -> list[Record]:
    """torch's allocator, which has to try again, and later need not."""
    records = _busy()
    end_s = records[-1].t
    counts = (4, 7) if when == "before" else (0, 0)
    return records + [
        TorchMemory(t=end_s + 6 + n, pid=PID, device=0, allocated_bytes=70, reserved_bytes=78, alloc_retries=count)
        for n, count in enumerate(counts)
    ]


def _room(when: When) -> list[Record]:
    """Without GPU times, which would tell more: a GPU that is used for a third, then for most of the time."""
    used = {"util": 0.3, "memory_used_bytes": 8 << 30} if when == "before" else {"util": 0.9}
    return [record for record in _training(loops.queue_full, LINES, USUAL, **used) if not isinstance(record, GpuTime)]


def _others(when: When) -> list[Record]:
    """Another program's share of the GPU that the training is on."""
    ours, other = GpuProcess(PID, 1 << 30, 0.5), GpuProcess(9, 1 << 30, 0.4)
    return _busy(processes=[ours, other] if when == "before" else [ours])


def _on_gpu(_when: When) -> list[Record]:
    """The same training with its work on a GPU."""
    return _busy()


_FACTS: dict[str, Callable[[When], list[Record]]] = {
    "low_precision_unused": _precision,
    "allocator_retries": _retries,
    "small_batch": _room,
    "neighbour": _others,
    "compute_bound_cpu": _on_gpu,
}
