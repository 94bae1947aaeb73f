"""One AMD GPU, queried in tiers by cost: what changes fast, a record a window, and the slow queries every two seconds.

Units are those of amdsmi.h. One call, ``amdsmi_get_gpu_metrics_info``, answers most of it; the binding writes "N/A" for
what a GPU does not report. Of a GPU that is partitioned, the first partition reports the whole GPU's power and load.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tuimon.proc.numa import nodes_near
from tuimon.records import Gpu, GpuProcess, Throttle
from tuimon.sources.gpus.driver import (
    Handle,
    Processes,
    Slot,
    SlowSchedule,
    VendorLibrary,
    VisibleGpu,
    in_first_pid_namespace,
)
from tuimon.text import plain

Metrics = Mapping[str, Any]  # as the binding gives them

#: How many of the firmware's samples (``accumulation_counter``) found the clocks held down, by cause.
_RESIDENCIES = {
    "ppt_residency_acc": "power cap",
    "prochot_residency_acc": "thermal (hardware)",
    "socket_thm_residency_acc": "thermal (hardware)",
    "vr_thm_residency_acc": "thermal (hardware)",
    "hbm_thm_residency_acc": "thermal (hardware)",
}
#: PCIe generation by the speed of a lane in 0.1 GT/s.
_GENERATIONS = {25: 1, 50: 2, 80: 3, 160: 4, 320: 5, 640: 6}
_MIB = 1 << 20
_UNKNOWN = "N/A"


class AmdDevice:
    """A whole GPU. Each figure is None where it is not supported."""

    def __init__(self, handle: Handle, index: int, root: str) -> None:
        """``root``: where /sys is. Raises DriverError when the GPU is gone."""
        self._index = index
        self._handle = handle
        asic = handle.query("amdsmi_get_gpu_asic_info") or {}
        name = str(asic.get("market_name", _UNKNOWN))
        self.name = plain("GPU" if name == _UNKNOWN else name)[:80]
        clock = handle.query("amdsmi_get_clock_info", handle.api.AmdSmiClkType.GFX) or {}
        self._processes = Processes()
        self._slow = SlowSchedule()
        self._energy_unit_uj: float | None = None
        self._seldom: dict[str, Any] = {  # values that are not queried for each record, by its fields
            "sm_clock_max_mhz": _whole(clock.get("max_clk")),
            "near_nodes": nodes_near(str(handle.query("amdsmi_get_gpu_device_bdf") or ""), root),
        }
        self._busy: list[float] = []  # at each poll of the window
        self._metrics: Metrics = {}  # at the latest poll
        self._polled_before: Metrics = {}
        self._window_began: Metrics = {}
        handle.reset_counts()

    def poll(self) -> None:
        """Query what changes within a window. Raises DriverError when the GPU is gone."""
        self._polled_before = self._metrics
        self._metrics = self._handle.query("amdsmi_get_gpu_metrics_info") or {}
        percent = _first(self._metrics, "average_gfx_activity")
        if percent is not None:
            self._busy.append(min(percent / 100, 1.0))
        speed, width = (int(_first(self._metrics, f"pcie_link_{what}") or 0) for what in ("speed", "width"))
        for name, now in (("pcie_generation", _GENERATIONS.get(speed, 0)), ("pcie_width", width)):
            self._seldom[name] = max(now, self._seldom.get(name) or 0) or None  # an idle GPU lowers both

    def read(self, t: float) -> Gpu:
        """The record of the window that ends now. Raises DriverError when nothing answers."""
        self.poll()
        if self._slow.is_due(t):
            before_s = self._handle.cost_s
            self._poll_slow_figures()
            self._slow.made(t, self._handle.cost_s - before_s)
        record = self._record(t)
        self._handle.end_window()
        self._busy = []
        self._window_began = self._metrics
        return record

    def close(self) -> None:
        """Nothing is held for one GPU."""

    def _record(self, t: float) -> Gpu:
        vram = self._handle.query("amdsmi_get_gpu_vram_usage") or {}
        metrics = self._metrics
        throttled = _throttling(self._window_began, metrics)
        count, unit_uj = _first(metrics, "energy_accumulator"), self._energy_unit_uj
        return Gpu(
            t=t,
            pid=0,
            index=self._index,
            uuid=self._handle.uuid,
            name=self.name,
            util_ratio=round(sum(self._busy) / len(self._busy), 3) if self._busy else None,
            memory_used_bytes=_whole(vram.get("vram_used"), _MIB),
            memory_total_bytes=_whole(vram.get("vram_total"), _MIB),
            power_w=_first(metrics, "current_socket_power", "average_socket_power"),
            energy_j=round(count * unit_uj / 1e6, 1) if count is not None and unit_uj is not None else None,
            temperature_c=_first(metrics, "temperature_hotspot", "temperature_edge"),
            memory_temperature_c=_first(metrics, "temperature_mem"),
            sm_clock_mhz=_whole(_first(metrics, "current_gfxclk", "current_gfxclks")),
            throttle=list(_throttling(self._polled_before, metrics)),
            throttled=[Throttle(cause, ratio) for cause, ratio in throttled.items()],
            pids=self._processes.pids,
            processes=self._processes.found,
            cost_ms=round(self._handle.cost_s * 1000, 2),
            **self._seldom,
        )

    def _poll_slow_figures(self) -> None:
        valid = in_first_pid_namespace()  # the driver lists the machine's pids
        self._processes.keep(
            [
                GpuProcess(int(process["pid"]) if valid else 0, _whole(process["memory_usage"]["vram_mem"]))
                for process in self._handle.query("amdsmi_get_gpu_process_list") or ()
            ]
        )
        cap = self._handle.query("amdsmi_get_power_cap_info") or {}
        self._seldom["power_limit_w"] = round(cap.get("power_cap", 0) / 1e6, 1) or None  # 0: only others were found
        # unlike the metrics, this count is not checked by the binding: all bits are set if there is none
        energy = self._handle.query("amdsmi_get_energy_count") or {}
        self._energy_unit_uj = energy.get("counter_resolution")
        errors = self._handle.query("amdsmi_get_gpu_total_ecc_count")
        self._seldom["ecc_errors"] = None if errors is None else int(errors["uncorrectable_count"])


def _first(metrics: Metrics, *names: str) -> float | None:
    """The first of these figures that the GPU reports; of a list with one figure for each part, the first."""
    found: Iterable[Any] = (metrics.get(name) for name in names)
    for value in found:
        for each in value if isinstance(value, list) else (value,):
            if isinstance(each, int | float):
                return float(each)
    return None


def _whole(value: Any, unit: int = 1) -> int | None:  # noqa: ANN401  (a number, or "N/A")
    return int(value) * unit if isinstance(value, int | float) else None


def _throttling(older: Metrics, newer: Metrics) -> dict[str, float]:
    """The share of the time between two readings in which each cause held the clocks down."""
    samples = _growth(older, newer, "accumulation_counter")
    found: dict[str, float] = {}
    for name, cause in _RESIDENCIES.items():
        ratio = round(min(_growth(older, newer, name) / samples, 1.0), 3) if samples else 0.0
        if ratio:
            found[cause] = max(ratio, found.get(cause, 0.0))
    return found


def _growth(older: Metrics, newer: Metrics, name: str) -> float:
    before, now = _first(older, name), _first(newer, name)
    return 0.0 if before is None or now is None else max(now - before, 0.0)


class AmdSlot(Slot):
    """One GPU by the index that ``amd-smi`` gives it."""

    def __init__(self, library: VendorLibrary, index: int, root: str) -> None:
        super().__init__(library, index)
        self._root = root

    def _open(self, now_s: float) -> None:
        handle = self.library.handle(self.index)
        device = AmdDevice(handle, self.index, self._root)
        self._devices = (device,)
        self.gpu = VisibleGpu(handle.uuid, device.name, numbered=False)  # HIP numbers them in an order of its own
