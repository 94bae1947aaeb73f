"""Model FLOPs utilisation (MFU): the operations of a traced step, at the pace of all steps, against the GPUs' peak."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from tuimon.records import Gpu, Process, TracedFlops, bare_uuid
from tuimon.session.session import Session

#: Dense peaks in TFLOPS by the driver's name of the GPU, from NVIDIA's data sheets (half of those given "with
#: sparsity"); of GeForce with sums in float32, as torch multiplies, from the whitepapers of Ampere GA102 and Ada AD102.
_PEAKS: dict[str, dict[str, float]] = {
    r"A100[- ].*": {"float32": 19.5, "tf32": 156, "float16": 312, "bfloat16": 312},
    r"A10": {"float32": 31.2, "tf32": 62.5, "float16": 125, "bfloat16": 125},
    r"H100 PCIe": {"float32": 51, "tf32": 378, "float16": 756, "bfloat16": 756, "float8": 1513},
    r"H100 80GB HBM3|H200": {"float32": 67, "tf32": 494.5, "float16": 989.5, "bfloat16": 989.5, "float8": 1979},
    r"B200": {"float32": 75, "tf32": 1125, "float16": 2250, "bfloat16": 2250, "float8": 4500},
    r"L4": {"float32": 30.3, "tf32": 60, "float16": 121, "bfloat16": 121, "float8": 242.5},
    r"L40S": {"float32": 91.6, "tf32": 183, "float16": 362, "bfloat16": 362, "float8": 733},
    r"T4": {"float32": 8.1, "float16": 65},
    r"V100-SXM2.*": {"float32": 15.7, "float16": 125},
    r"V100-PCIE.*": {"float32": 14, "float16": 112},
    r"RTX 3090": {"float32": 35.6, "tf32": 35.6, "float16": 71, "bfloat16": 71},
    r"RTX 4090": {"float32": 82.6, "tf32": 82.6, "float16": 165.2, "bfloat16": 165.2, "float8": 330.3},
}
_TERA = 1e12


class FlopsRate(NamedTuple):
    """Operations of one process; a rate is None where its pace is unknown, or the peak of its GPUs."""

    per_step: float
    per_s: float | None = None
    mfu_ratio: float | None = None


def flops_rate(session: Session, pid: int) -> FlopsRate | None:
    """By its latest trace in which they could be counted, and the pace of the last 30 s or of the run that has ended.

    Example: 1.2e12 operations of bfloat16 in a step, 400 steps a second: 48 % of the 989.5 TFLOPS of an H100.
    """
    trace = next((each for each in reversed(session.traces) if each.pid == pid and each.flops and each.steps), None)
    if trace is None or trace.flops is None:
        return None
    steps, process = session.shown().steps(pid), session.process(pid)
    per_step = sum(row.flops for row in trace.flops) / trace.steps
    per_s = steps.per_second if steps is not None else None
    if not per_s or process is None:
        return FlopsRate(per_step)
    seconds = _seconds_at_peak(trace.flops, process, gpus_of(session, [process]))
    return FlopsRate(per_step, per_step * per_s, None if seconds is None else seconds / trace.steps * per_s)


def gpus_of(session: Session, processes: list[Process]) -> dict[str, Gpu | None]:
    """The GPUs that processes report, and those on which the driver lists them, by bare UUID."""
    pids = {process.pid for process in processes}
    known = {bare_uuid(gpu.uuid): gpu for gpu in session.nodes.latest_gpus()}
    listed = [uuid for uuid, gpu in known.items() if pids.intersection(gpu.pids)]
    reported = [bare_uuid(uuid) for process in processes for uuid in process.gpu_uuids]
    return {uuid: known.get(uuid) for uuid in (*listed, *reported)}


def _seconds_at_peak(rows: Iterable[TracedFlops], process: Process, gpus: dict[str, Gpu | None]) -> float | None:
    """How long GPUs of one kind take for these operations at their peak; None where it is unknown."""
    peaks = [dict(_peaks(gpu)) for gpu in gpus.values()]
    if not peaks or any(each != peaks[0] for each in peaks):
        return None
    seconds = 0.0
    for row in rows:
        peak = peaks[0].get(_precision(row, process, has_tf32="tf32" in peaks[0]))
        if peak is None:
            return None
        seconds += row.flops / (peak * _TERA * len(peaks))
    return seconds


def _peaks(gpu: Gpu | None) -> dict[str, float]:
    """By type; none of a GPU that is not known, or a part of one."""
    if gpu is None or gpu.parent_uuid is not None:
        return {}
    name = re.sub(r"^(?:NVIDIA |Tesla |GeForce )+", "", gpu.name)
    return next((peaks for pattern, peaks in _PEAKS.items() if re.fullmatch(pattern, name)), {})


def _precision(row: TracedFlops, process: Process, *, has_tf32: bool) -> str:
    """The type that the GPU multiplies in; "" where torch's setting is unknown."""
    if row.dtype != "float32" or not has_tf32:
        return row.dtype
    by_cudnn = row.kind in ("convolution", "recurrent")
    rounds = process.cudnn_tf32 if by_cudnn else process.tf32
    return "" if rounds is None else "tf32" if rounds else "float32"
