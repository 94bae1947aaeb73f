"""GPUs: their latest figures and the history of their utilisation."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from tuimon.records import Gpu, Process
from tuimon.session.rows import GpuRow

_HISTORY_LIMIT = 1800


class DeviceTable:
    """Folds Gpu records, by UUID."""

    def __init__(self) -> None:
        self._latest: dict[str, Gpu] = {}
        self._history: dict[str, deque[float | None]] = {}

    def add(self, record: Gpu) -> None:
        """Fold one GPU's counters."""
        self._latest[record.uuid] = record
        self._history.setdefault(record.uuid, deque(maxlen=_HISTORY_LIMIT)).append(record.util_ratio)

    def rows(self, now_s: float, processes: Iterable[Process]) -> list[GpuRow]:
        """All GPUs, those that the run uses first."""
        live = [process for process in processes if not process.ended]
        pids = {process.pid for process in live}
        uuids = {uuid for process in live for uuid in process.gpu_uuids}
        rows = [self._row(gpu, now_s, pids, uuids) for gpu in self._latest.values()]
        return sorted(rows, key=lambda row: (not row.used_by_run, row.index))

    def _row(self, gpu: Gpu, now_s: float, pids: set[int], uuids: set[str]) -> GpuRow:
        return GpuRow(
            index=gpu.index,
            uuid=gpu.uuid,
            name=gpu.name,
            util_ratio=gpu.util_ratio,
            util_history=tuple(self._history[gpu.uuid]),
            memory_used_bytes=gpu.memory_used_bytes,
            memory_total_bytes=gpu.memory_total_bytes,
            power_w=gpu.power_w,
            power_limit_w=gpu.power_limit_w,
            temperature_c=gpu.temperature_c,
            sm_clock_mhz=gpu.sm_clock_mhz,
            sm_clock_max_mhz=gpu.sm_clock_max_mhz,
            throttle=tuple(gpu.throttle),
            stale_s=max(0.0, now_s - gpu.t),
            used_by_run=gpu.uuid in uuids or bool(pids.intersection(gpu.pids)),
        )
