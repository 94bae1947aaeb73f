"""GPUs: their latest record, their histories, and what takes many records to compute."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping

from msgspec import Struct, field, structs

from tuimon.records import Gpu, Process, Throttle, bare_uuid
from tuimon.session.rows import GpuRow
from tuimon.session.windows import Window, new_history

#: Least span of an energy difference: the counters advance every 0.1 s at the slowest, which is then an error of 2 %.
_LEAST_ENERGY_S = 5.0
#: Most Xid errors that are kept, the newest.
_XIDS = 32
#: Most GPUs and MIG instances of a node that are remembered.
_DEVICES = 256

#: What does not change, and is sent only now and then.
_SELDOM = ("memory_total_bytes", "power_limit_w", "sm_clock_max_mhz", "compute_capability", "parent_uuid")

History = deque[float | None]


class _Reading(Struct, frozen=True, gc=False):
    """What is kept of a record for 30 s: of hundreds of GPUs whole records would be most of what is held."""

    t: float
    energy_j: float | None
    throttled: tuple[Throttle, ...]


class _Device(Struct):
    """What is kept of one GPU or MIG instance."""

    latest: Gpu
    util: History = field(default_factory=new_history)
    sm: History = field(default_factory=new_history)
    tensor: History = field(default_factory=new_history)
    dram: History = field(default_factory=new_history)
    memory: History = field(default_factory=new_history)
    power: History = field(default_factory=new_history)
    xids: deque[int] = field(default_factory=lambda: deque(maxlen=_XIDS))
    window: Window[_Reading] = field(default_factory=Window)

    def add_window(self, record: Gpu) -> None:
        latest, seldom = self.latest, {}
        for name in _SELDOM:
            if getattr(record, name) is None and (value := getattr(latest, name)) is not None:
                seldom[name] = value
        if seldom:
            record = structs.replace(record, **seldom)
        self.latest = record
        self.util.append(record.util_ratio)
        self.sm.append(record.sm_ratio)
        self.tensor.append(record.tensor_ratio)
        self.dram.append(record.dram_ratio)
        self.memory.append(record.memory_used_bytes)
        self.power.append(record.power_w)
        self.xids.extend(record.xids)
        self.window.append(_Reading(record.t, record.energy_j, tuple(record.throttled)))

    def throttled(self) -> tuple[tuple[str, float], ...]:
        """Share of the window by cause, most first; share of the records where the driver does not count the time."""
        sums: dict[str, float] = {}
        for throttled in [record.throttled for record in self.window.records if record.throttled]:
            for throttle in throttled:
                ratio = throttle.ratio
                sums[throttle.cause] = sums.get(throttle.cause, 0.0) + (1.0 if ratio is None else ratio)
        shares = ((cause, total / len(self.window)) for cause, total in sums.items())
        return tuple(sorted(shares, key=lambda share: -share[1]))

    def watts(self) -> float | None:
        """Mean power over the window, by the energy counter."""
        readings = [(record.t, record.energy_j) for record in self.window.records if record.energy_j is not None]
        if len(readings) < 2:
            return None
        (first_s, first_j), (last_s, last_j) = readings[0], readings[-1]
        if last_s - first_s < _LEAST_ENERGY_S or last_j < first_j:  # lower than before: the driver was reloaded
            return None
        return (last_j - first_j) / (last_s - first_s)


class DeviceTable:
    """Folds Gpu records, by UUID."""

    def __init__(self) -> None:
        self._devices: dict[str, _Device] = {}

    def add_gpu(self, record: Gpu) -> None:
        """Fold one GPU's counters."""
        if record.uuid not in self._devices:
            if len(self._devices) >= _DEVICES:
                return
            self._devices[record.uuid] = _Device(record)
        self._devices[record.uuid].add_window(record)

    def latest(self) -> list[Gpu]:
        """The latest record of each."""
        return [device.latest for device in self._devices.values()]

    @property
    def is_held_down(self) -> bool:
        """Whether something has held the clocks of any down in the last 30 s."""
        return any(reading.throttled for device in self._devices.values() for reading in device.window.records)

    def rows(
        self,
        now_s: float,
        processes: Iterable[Process],
        focus: Process | None = None,
        steps_per_s: float | None = None,
    ) -> list[GpuRow]:
        """All GPUs, those that the run uses first. ``steps_per_s``: of the process in focus, over the window."""
        run = list(processes)
        pids = {process.pid for process in run}
        live = [process for process in run if not process.ended] or run
        used = self._used(live)
        joules = self._joules_per_step(focus, steps_per_s)
        rows = [
            self._row(device, now_s, used, pids, joules.get(device.latest.uuid)) for device in self._devices.values()
        ]
        return sorted(rows, key=_order)

    def _used(self, processes: Collection[Process]) -> set[str]:
        """UUIDs of what the run uses: as its processes report, the driver lists them, or its environment selects."""
        reported = {bare_uuid(uuid) for process in processes for uuid in process.gpu_uuids}
        pids = {process.pid for process in processes}
        used = set()
        for device in self._devices.values():
            gpu = device.latest
            if bare_uuid(gpu.uuid) in reported or pids.intersection(gpu.pids) or (gpu.chosen and not reported):
                used |= {gpu.uuid, gpu.parent_uuid or gpu.uuid}
        return used

    def _joules_per_step(self, focus: Process | None, steps_per_s: float | None) -> Mapping[str, float]:
        """Energy of a step by the UUID of the first GPU of the process in focus; empty unless known to be its own."""
        if focus is None or not steps_per_s:
            return {}
        uuids = {bare_uuid(uuid) for uuid in focus.gpu_uuids}
        devices = [device for device in self._devices.values() if bare_uuid(device.latest.uuid) in uuids]
        watts = [device.watts() for device in devices]
        if len(devices) < len(uuids) or not devices or None in watts:
            return {}
        first = min(devices, key=lambda device: device.latest.index)
        return {first.latest.uuid: sum(watt for watt in watts if watt is not None) / steps_per_s}

    def _row(
        self, device: _Device, now_s: float, used: set[str], pids: set[int], joules_per_step: float | None
    ) -> GpuRow:
        gpu = device.latest
        return GpuRow(
            latest=gpu,
            stale_s=max(0.0, now_s - gpu.t),
            used_by_run=gpu.uuid in used,
            run_pids=frozenset(process.pid for process in gpu.processes if process.pid in pids),
            util_history=tuple(device.util),
            sm_history=tuple(device.sm),
            tensor_history=tuple(device.tensor),
            dram_history=tuple(device.dram),
            memory_history=tuple(device.memory),
            power_history=tuple(device.power),
            throttled=device.throttled(),
            joules_per_step=joules_per_step,
            xids=tuple(device.xids),
        )


def _order(row: GpuRow) -> tuple[bool, int, bool, str]:
    """Sort key: GPUs that the run uses first, MIG instances after the GPU that they are part of."""
    return not row.used_by_run, row.latest.index, row.latest.parent_uuid is not None, row.latest.uuid
