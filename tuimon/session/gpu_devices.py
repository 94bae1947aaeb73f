"""GPUs: their latest record, their histories, and what takes many records to compute."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec import Struct, field, structs

from tuimon.records import GPU_FACTS, Gpu, Process, Throttle, bare_uuid
from tuimon.session.counter_means import CounterHistory, GpuMeans, SteppingSpan
from tuimon.session.rows import GpuRow
from tuimon.session.windows import Window, new_history

#: Most Xid errors that are kept, the newest.
_XIDS = 32
#: Most GPUs and MIG instances of a node that are remembered.
_DEVICES = 256

History = deque[float | None]


class _Throttled(Struct, frozen=True, gc=False):
    """The part of a record that is kept for 30 s: whole records of hundreds of GPUs would be most of what is held."""

    t: float
    causes: tuple[Throttle, ...]


class _Device(Struct):
    """The data kept of one GPU or MIG instance."""

    latest: Gpu
    util: History = field(default_factory=new_history)
    sm: History = field(default_factory=new_history)
    tensor: History = field(default_factory=new_history)
    dram: History = field(default_factory=new_history)
    memory: History = field(default_factory=new_history)
    power: History = field(default_factory=new_history)
    xids: deque[int] = field(default_factory=lambda: deque(maxlen=_XIDS))
    counters: CounterHistory = field(default_factory=CounterHistory)
    window: Window[_Throttled] = field(default_factory=Window)

    def add_window(self, record: Gpu) -> None:
        latest, seldom = self.latest, {}
        for name in GPU_FACTS:
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
        self.counters.add_record(record)
        self.window.append(_Throttled(record.t, tuple(record.throttled)))

    def utilisation(self, spans: Sequence[SteppingSpan]) -> float | None:
        mean = self.counters.util_mean(spans)
        return mean if mean is not None else self.latest.util_ratio

    def throttled(self) -> tuple[tuple[str, float], ...]:
        """Share of the window by cause, most first; share of the records where the driver does not count the time."""
        sums: dict[str, float] = {}
        for causes in [record.causes for record in self.window.records if record.causes]:
            for throttle in causes:
                ratio = throttle.ratio
                sums[throttle.cause] = sums.get(throttle.cause, 0.0) + (1.0 if ratio is None else ratio)
        shares = ((cause, total / len(self.window)) for cause, total in sums.items())
        return tuple(sorted(shares, key=lambda share: -share[1]))


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

    def utilisations(self, uuids: Collection[str], spans: Sequence[SteppingSpan]) -> dict[str, float | None]:
        """The utilisation of each of these GPUs, as ``GpuRow.figures`` has it."""
        return {uuid: self._devices[uuid].utilisation(spans) for uuid in self._devices.keys() & uuids}

    def windows_within(self, uuid: str, begin_s: float, end_s: float) -> slice:
        """Which of a GPU's histories' windows lie between two moments."""
        return self._devices[uuid].counters.within(begin_s, end_s)

    @property
    def is_held_down(self) -> bool:
        """True if something has held the clocks of any down in the last 30 s."""
        return any(reading.causes for device in self._devices.values() for reading in device.window.records)

    def rows(
        self,
        now_s: float,
        processes: Iterable[Process],
        focus: Process | None = None,
        steps_per_s: float | None = None,
        spans: Sequence[SteppingSpan] = (),
    ) -> list[GpuRow]:
        """All GPUs, those that the run uses first.

        ``steps_per_s`` and ``spans``: of the process in focus, and when it made these steps.
        """
        run = list(processes)
        pids = {process.pid for process in run}
        live = [process for process in run if not process.ended] or run
        used = self._used(live)
        means = {uuid: device.counters.means(spans) for uuid, device in self._devices.items()}
        joules = self._joules_per_step(focus, steps_per_s, means)
        rows = [
            GpuRow(
                latest=device.latest,
                stale_s=max(0.0, now_s - device.latest.t),
                used_by_run=uuid in used,
                run_pids=frozenset(process.pid for process in device.latest.processes if process.pid in pids),
                util_history=tuple(device.util),
                sm_history=tuple(device.sm),
                tensor_history=tuple(device.tensor),
                dram_history=tuple(device.dram),
                memory_history=tuple(device.memory),
                power_history=tuple(device.power),
                throttled=device.throttled(),
                joules_per_step=joules.get(uuid),
                xids=tuple(device.xids),
                means=means[uuid],
            )
            for uuid, device in self._devices.items()
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

    def _joules_per_step(
        self, focus: Process | None, steps_per_s: float | None, means: Mapping[str, GpuMeans | None]
    ) -> Mapping[str, float]:
        """Energy of a step by the UUID of the first GPU of the process in focus; empty unless known to be its own."""
        if focus is None or not steps_per_s:
            return {}
        uuids = {bare_uuid(uuid) for uuid in focus.gpu_uuids}
        gpus = [device.latest for device in self._devices.values() if bare_uuid(device.latest.uuid) in uuids]
        watts = [found.watts for gpu in gpus if (found := means[gpu.uuid]) is not None and found.watts is not None]
        if not gpus or len(watts) < len(uuids):
            return {}
        return {min(gpus, key=lambda gpu: gpu.index).uuid: sum(watts) / steps_per_s}


def _order(row: GpuRow) -> tuple[bool, int, bool, str]:
    """Sort key: GPUs that the run uses first, MIG instances after the GPU that they are part of."""
    return not row.used_by_run, row.latest.index, row.latest.parent_uuid is not None, row.latest.uuid
