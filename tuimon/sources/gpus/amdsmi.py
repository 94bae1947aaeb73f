"""AMD's driver: its system management library through its binding (``import amdsmi``), and its errors explained.

Never called: ``amdsmi_get_violation_status``, which sleeps 100 ms between two readings of counters that
``amdsmi_get_gpu_metrics_info`` gives at once, and ``amdsmi_get_gpu_pci_throughput``, which takes a second.

Units are those of amdsmi.h. One call, ``amdsmi_get_gpu_metrics_info``, answers most of it; the binding writes "N/A" for
what a GPU does not report. The first partition of a partitioned GPU reports the whole GPU's power and load.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from tuimon.installation import install_command
from tuimon.proc.numa import nodes_near
from tuimon.records import GpuProcess, Throttle
from tuimon.sources.gpus.driver import (
    Device,
    DriverError,
    Handle,
    VendorLibrary,
    in_first_pid_namespace,
    process_fields,
)

# Codes of amdsmi_status_t (amdsmi.h), and our own for errors that it lacks.
LIBRARY_NOT_FOUND, NO_PACKAGE, OTHER_VERSION = -1, -2, -3
NOT_SUPPORTED, NOT_YET_IMPLEMENTED, NO_PERMISSION = 2, 3, 10
NOT_FOUND, NOT_INITIALISED, DRIVER_NOT_LOADED = 31, 32, 34
NO_DATA = 40

_NAME = "libamd_smi.so"


def _install(*, upgrade: bool) -> str:
    return f"{install_command('amdsmi', upgrade=upgrade)}, in the version of your ROCm"


class AmdSmi(VendorLibrary):
    """amdsmi; error codes are of amdsmi_status_t, or our own."""

    name, says, vendor, tool, figures = "amdsmi", "amdsmi", "AMD", "amd-smi", "figures of AMD GPUs"
    PROBLEMS: ClassVar = {
        LIBRARY_NOT_FOUND: ("no AMD driver on this machine (libamd_smi.so not found)", None),
        NO_PACKAGE: ("no figures of AMD GPUs: the package amdsmi is not installed", partial(_install, upgrade=False)),
        OTHER_VERSION: (
            "no figures of AMD GPUs: the package amdsmi and libamd_smi.so have different versions",
            partial(_install, upgrade=True),
        ),
        NO_PERMISSION: ("no permission to query the AMD driver", "Join the groups render and video"),
        DRIVER_NOT_LOADED: ("the AMD driver is not loaded", "sudo modprobe amdgpu"),
    }
    numbered = False  # HIP numbers them in an order of its own
    FATAL: ClassVar = frozenset({NOT_INITIALISED, DRIVER_NOT_LOADED})
    NEVER: ClassVar = frozenset({NOT_SUPPORTED, NOT_YET_IMPLEMENTED, NO_PERMISSION})
    NOTHING_NEW: ClassVar = frozenset({NO_DATA})
    NOT_SUPPORTED, SHUT_DOWN = NOT_SUPPORTED, "amdsmi_shut_down"

    def __init__(self) -> None:
        """Load and initialise it. Raises DriverError."""
        if not self.is_installed():  # the binding itself would print an error
            raise DriverError(LIBRARY_NOT_FOUND, f"{_NAME} not found")
        try:
            import amdsmi  # costs 60 ms and is of no use on most machines

            self.api = amdsmi
            _ = amdsmi.amdsmi_get_gpu_enumeration_info
        except ImportError as error:
            raise DriverError(NO_PACKAGE, str(error)) from error
        except AttributeError as error:  # the binding knows functions that the library lacks, or is too old itself
            raise DriverError(OTHER_VERSION, str(error)) from error
        self.call(amdsmi.amdsmi_init)

    @staticmethod
    def is_installed() -> bool:
        """True if the library can be loaded, from one of the places that the binding tries, in its order."""
        home, rocm = os.environ.get("ROCM_HOME"), os.environ.get("ROCM_PATH")
        package = importlib.util.find_spec("amdsmi")
        beside = os.path.dirname(package.origin) if package is not None and package.origin else None
        first, last = home or rocm, rocm or "/opt/rocm"
        for path in (first and f"{first}/lib/{_NAME}", _NAME, beside and f"{beside}/{_NAME}", f"{last}/lib/{_NAME}"):
            with contextlib.suppress(OSError):
                if path:
                    ctypes.CDLL(path)
                    return True
        return False

    def device_count(self) -> int:
        """Number of GPUs."""
        return len(self.handles())

    def devices(self, handle: Handle, index: int, parts: Sequence[Handle]) -> Iterator[Device]:
        """The GPU of this index."""
        yield AmdDevice(handle, index)

    def call(self, function: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401  (what amdsmi returns has no types)
        """Any function of amdsmi. Raises DriverError."""
        try:
            return function(*arguments)
        except self.api.AmdSmiException as error:
            code, text = getattr(error, "err_code", None), getattr(error, "err_info", None)
            raise DriverError(int(code or 0), str(text or error)) from error
        except ValueError as error:  # the binding cannot decode an answer
            raise DriverError(0, str(error)) from error

    def handles(self) -> list[object]:
        """The binding's handles of all GPUs, as ``amd-smi`` numbers them. Raises DriverError."""
        return list(self.call(self.api.amdsmi_get_processor_handles))

    def handle(self, index: int) -> Handle:
        """The handle of one GPU. Raises DriverError when it does not answer.

        Before ROCm 7.3 the partitions of a GPU may have one UUID: from the second on, a number is added to it.
        """
        raw = self.handles()
        if index >= len(raw):
            raise DriverError(NOT_FOUND, "it is not listed any more")
        handle = Handle(self, raw[index])
        number = 0
        for other in raw[:index]:
            with contextlib.suppress(DriverError):  # it does not answer; this one does
                number += self.uuid_of(other) == handle.uuid
        handle.uuid += f"/{number}" if number else ""
        return handle

    def uuid_of(self, raw: object) -> str:
        return str(self.call(self.api.amdsmi_get_gpu_enumeration_info, raw)["hip_uuid"])


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


class AmdDevice(Device):
    """A whole GPU."""

    def __init__(self, handle: Handle, index: int) -> None:
        asic = handle.query("amdsmi_get_gpu_asic_info") or {}
        name = asic.get("market_name")
        super().__init__(handle, index, None if name == _UNKNOWN else name)
        clock = handle.query("amdsmi_get_clock_info", handle.api.AmdSmiClkType.GFX) or {}
        bus = str(handle.query("amdsmi_get_gpu_device_bdf") or "")
        self.slow["sm_clock_max_mhz"] = _whole(clock.get("max_clk"))
        self.slow["near_nodes"] = nodes_near(bus, handle.library.root)
        self._energy_unit_uj: float | None = None
        self._busy: list[float] = []  # at each poll of the window
        self._metrics: Metrics = {}  # at the latest poll
        self._polled_before: Metrics = {}
        self._window_began: Metrics = {}

    def poll(self) -> None:
        """Query the metrics."""
        self._polled_before = self._metrics
        self._metrics = self.handle.query("amdsmi_get_gpu_metrics_info") or {}
        percent = _first(self._metrics, "average_gfx_activity")
        if percent is not None:
            self._busy.append(min(percent / 100, 1.0))
        speed, width = (int(_first(self._metrics, f"pcie_link_{what}") or 0) for what in ("speed", "width"))
        for name, now in (("pcie_generation", _GENERATIONS.get(speed, 0)), ("pcie_width", width)):
            self.slow[name] = max(now, self.slow.get(name) or 0) or None  # an idle GPU lowers both

    def poll_slow(self) -> None:
        """Query processes, the power limit, the unit of energy, and memory errors."""
        query, valid = self.handle.query, in_first_pid_namespace()  # the driver lists the machine's pids
        self.slow |= process_fields(
            [
                GpuProcess(int(process["pid"]) if valid else 0, _whole(process["memory_usage"]["vram_mem"]))
                for process in query("amdsmi_get_gpu_process_list") or ()
            ]
        )
        cap = query("amdsmi_get_power_cap_info") or {}
        self.slow["power_limit_w"] = round(cap.get("power_cap", 0) / 1e6, 1) or None  # 0: only others were found
        # unlike the metrics, this count is not checked by the binding: all bits are set if there is none
        self._energy_unit_uj = (query("amdsmi_get_energy_count") or {}).get("counter_resolution")
        errors = query("amdsmi_get_gpu_total_ecc_count")
        self.slow["ecc_errors"] = None if errors is None else int(errors["uncorrectable_count"])

    def figures(self, t: float) -> dict[str, Any]:  # Any: fields of one record
        """Load, memory, power, temperatures, clocks and the causes that lower them."""
        vram = self.handle.query("amdsmi_get_gpu_vram_usage") or {}
        metrics, busy, self._busy = self._metrics, self._busy, []
        throttled = _throttling(self._window_began, metrics)
        self._window_began = metrics
        count, unit_uj = _first(metrics, "energy_accumulator"), self._energy_unit_uj
        return {
            "util_ratio": round(sum(busy) / len(busy), 3) if busy else None,
            "memory_used_bytes": _whole(vram.get("vram_used"), _MIB),
            "memory_total_bytes": _whole(vram.get("vram_total"), _MIB),
            "power_w": _first(metrics, "current_socket_power", "average_socket_power"),
            "energy_j": round(count * unit_uj / 1e6, 1) if count is not None and unit_uj is not None else None,
            "temperature_c": _first(metrics, "temperature_hotspot", "temperature_edge"),
            "memory_temperature_c": _first(metrics, "temperature_mem"),
            "sm_clock_mhz": _whole(_first(metrics, "current_gfxclk", "current_gfxclks")),
            "throttle": list(_throttling(self._polled_before, metrics)),
            "throttled": [Throttle(cause, ratio) for cause, ratio in throttled.items()],
        }


def _first(metrics: Metrics, *names: str) -> float | None:
    """The first of these figures that the GPU reports; of a list with one figure for each part, the first."""
    for value in map(metrics.get, names):
        for each in value if isinstance(value, list) else (value,):
            if isinstance(each, int | float):
                return float(each)
    return None


def _whole(value: Any, unit: int = 1) -> int | None:  # noqa: ANN401  (a number, or "N/A")
    return int(value) * unit if isinstance(value, int | float) else None


def _throttling(older: Metrics, newer: Metrics) -> dict[str, float]:
    """The share of the time between two readings in which each cause lowered the clocks."""
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
