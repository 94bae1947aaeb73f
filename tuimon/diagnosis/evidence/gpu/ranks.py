"""Ranks compared on the clocks of their GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tuimon.diagnosis.evidence.gpu.steps import GpuSteps
from tuimon.session.ranks.row import RankRow
from tuimon.session.ranks.stats import MainThread
from tuimon.session.ranks.waits import NO_SAMPLES, RankTimes, split_ranks


def on_gpu_clock(rows: Sequence[RankRow], gpus: Mapping[int, GpuSteps | None]) -> tuple[RankRow, ...]:
    """The rows with GPU times, as far as all measured ranks have some; else as they are."""
    measured = [row for row in rows if row.late_ms is not None]
    times = [gpus.get(row.pid) for row in measured]
    known = [gpu for gpu in times if gpu is not None]
    if not known or len(known) < len(measured):
        return tuple(rows)
    splits = split_ranks([_times(gpu) for gpu in known])
    changed = {
        row.pid: row._replace(
            step_ms=gpu.step_ms,
            phases=tuple((name, phase.ms / gpu.step_ms) for name, phase in gpu.phases.items()),
            wait_ms=None,
            waits=(),
            late_ms=split.late_ms,
            excess=tuple(split.excess_ms.items()),
        )
        for row, gpu, split in zip(measured, known, splits, strict=True)
    }
    return tuple(changed.get(row.pid, row) for row in rows)


def _times(gpu: GpuSteps) -> RankTimes:
    return RankTimes({name: phase.ms for name, phase in gpu.phases.items()}, MainThread(), NO_SAMPLES, on_gpu=True)
