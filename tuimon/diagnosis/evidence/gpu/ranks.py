"""Ranks compared on the clocks of their GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tuimon.diagnosis.evidence.gpu.steps import has_enough_steps
from tuimon.records import PHASES
from tuimon.session.gpu.gpu_time import GpuShares
from tuimon.session.ranks.row import RankRow
from tuimon.session.ranks.stats import MainThread
from tuimon.session.ranks.waits import NO_SAMPLES, RankTimes, split_ranks


def on_gpu_clock(rows: Sequence[RankRow], gpus: Mapping[int, GpuShares | None]) -> tuple[RankRow, ...]:
    """The rows with GPU times, as far as all measured ranks have some; else as they are."""
    times: dict[int, RankTimes] = {}
    for row in rows:
        if row.late_ms is not None:
            known = _times(row, gpus.get(row.pid))
            if known is None:
                return tuple(rows)
            times[row.pid] = known
    splits = dict(zip(times, split_ranks(list(times.values())), strict=True))
    return tuple(
        row._replace(
            step_ms=(step_ms := times[row.pid].step_ms),
            phases=tuple((name, ms / step_ms) for name, ms in times[row.pid].ms.items()),
            wait_ms=None,
            waits=(),
            late_ms=splits[row.pid].late_ms,
            excess=tuple(splits[row.pid].excess_ms.items()),
        )
        if row.pid in times
        else row
        for row in rows
    )


def _times(row: RankRow, gpu: GpuShares | None) -> RankTimes | None:
    """Times of a rank; None without GPU times of enough steps."""
    if gpu is None or not row.step_ms or not has_enough_steps(gpu.steps, gpu.total_ns / 1e9):
        return None
    shares = {name: share for name in PHASES if (share := gpu.of(name)) is not None}
    ms = {name: share.span * row.step_ms for name, share in shares.items()}
    return RankTimes(ms, MainThread(), NO_SAMPLES, on_gpu=True) if sum(ms.values()) > 0 else None
