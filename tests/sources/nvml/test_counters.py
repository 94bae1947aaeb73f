"""Counters read many at once, GPM, events, processes: the real pynvml over a fake NVML library."""

from pathlib import Path

import msgspec
import pytest

from tests.fake_nvml import FakeNvml, Reads, check_reads, gpus, modern, notices, usual
from tuimon.records import GPU_FACTS, Gpu, GpuProcess, Throttle

GB = 1_000_000_000
SCENARIO = {"devices": 1, "driver": "580.65.06", **usual(0), **modern(0)}


def read_one(nvml: FakeNvml, now_s: float) -> Gpu:
    (gpu,) = gpus(nvml.read(now_s))
    return gpu


#: The lines of a figure that not all GPUs support.
UNSUPPORTED = {
    "power_w": "power_mw field.185", "power_limit_w": "power_limit_mw", "temperature_c": "temperature",
    "sm_clock_mhz": "sm_clock", "sm_clock_max_mhz": "sm_clock_max", "util_ratio": "util",
    "memory_used_bytes": "memory_total_mib",
}  # fmt: skip
COURSES: dict[str, Reads] = {
    **{
        f"without {field}": [(1.0, {f"0.{line}": None for line in lines.split()}, {field: None, "pids": [4242]})]
        for field, lines in UNSUPPORTED.items()
    },
    "counters become rates": [
        (1.0, {}, {"pcie_rx_bytes_per_s": None, "energy_j": 1000.0}),  # one reading is no rate
        (3.0, {"0.field.197": 10 * GB + 3000, "0.field.198": 54 * GB, "0.field.138": 1_000_100, "0.field.83": 1.8e6},
         {"pcie_tx_bytes_per_s": 1500.0, "pcie_rx_bytes_per_s": 2.0 * GB, "nvlink_tx_bytes_per_s": 50 * 1024.0,
          "nvlink_rx_bytes_per_s": 0.0, "energy_j": 1800.0}),
    ],
    "a small counter that overflows goes on": [
        (0.0, {"0.field.198.type": "uint", "0.field.198": (1 << 32) - 1000}, {"pcie_rx_bytes_per_s": None}),
        (1.0, {"0.field.198": 500}, {"pcie_rx_bytes_per_s": 1500.0}),
    ],
    "a counter that was reset": [
        (0.0, {"0.field.198": 50 * GB}, {}),
        (1.0, {"0.field.198": 7}, {"pcie_rx_bytes_per_s": None}),
        (2.0, {"0.field.198": 1007}, {"pcie_rx_bytes_per_s": 1000.0}),
    ],
    "throttling by the time that was counted": [
        (1.0, {}, {}),
        (2.0, {"0.field.74": 5 * GB + 250_000_000, "0.field.270": 3 * GB, "0.event_reasons": "0x4"},
         {"throttled": [Throttle("power cap", 0.25), Throttle("thermal (hardware)", 1.0)], "throttle": ["power cap"]}),
        (3.0, {}, {"throttled": []}),  # the counters stand still, whatever the causes at the moment
    ],
    "throttling by moments where no time is counted": [
        (1.0, {f"0.field.{field}": None for field in (74, 76, 269, 270, 271)}, {}),
        (1.5, {"0.event_reasons": "0x48"}, None),  # "hardware slowdown" is only set beside one of its causes
        (2.0, {"0.event_reasons": "0x1"}, {"throttle": [], "throttled": [Throttle("thermal (hardware)")]}),
        (3.0, {}, {"throttled": []}),
    ],
    "GPM needs two samples": [
        (1.0, {}, {"sm_ratio": None, "tensor_ratio": None}),
        (2.0, {}, {"sm_ratio": 0.915, "occupancy_ratio": 0.4025, "tensor_ratio": 0.12, "dram_ratio": 0.555}),
        (3.0, {"0.gpm.2": 3, "0.gpm.5": None, "0.gpm.10": "nan", "0.gpm.3": 9e9},
         {"sm_ratio": 0.03, "occupancy_ratio": None, "tensor_ratio": None, "dram_ratio": None}),
    ],
    "after a sample that failed GPM begins anew": [
        (1.0, {}, {}),
        (2.0, {"0.error.nvmlGpmSampleGet": 999}, {"sm_ratio": None}),
        (3.0, {"0.error.nvmlGpmSampleGet": None}, {"sm_ratio": None}),
        (4.0, {}, {"sm_ratio": 0.915}),
    ],
    "links by GPM where they have no counters": [
        (1.0, {"0.field.197": None, "0.field.198": None}, {}),
        (2.0, {}, {"pcie_tx_bytes_per_s": 100.0 * 2**20, "pcie_rx_bytes_per_s": 2000.0 * 2**20}),
    ],
    "the driver's own utilisation comes before that of GPM": [
        (1.0, {"0.gpm.1": 81}, {}),
        (2.0, {}, {"util_ratio": 0.37}),
    ],
    "samples of the driver are taken once": [
        (1.0, {"0.samples": "1000:90 2000:90 3000:90"}, {"util_samples": [], "util_ratio": 0.37}),  # of before
        (2.0, {"0.samples": "2000:90 3000:90 4000:10 5000:20 6000:60"},
         {"util_samples": [0.1, 0.2, 0.6], "util_ratio": 0.3}),
        (3.0, {}, {"util_samples": [], "util_ratio": 0.37}),  # nothing new: the driver's own average
        (4.0, {"0.samples": "6000:60 7000:130"}, {"util_samples": [1.0], "util_ratio": 1.0}),
    ],
    "a PCIe link without a known bound is queried on": [
        (1.0, {"0.pcie_generation": 1, "0.pcie_generation_max": None}, {"pcie_generation": 1, "pcie_width": 16}),
        (3.0, {"0.pcie_generation": 5}, {"pcie_generation": 5, "pcie_width": 16}),
    ],
    "a figure that fails now and then": [
        (1.0, {"0.error.nvmlDeviceGetTemperature": 999}, {"temperature_c": None}),
        (2.0, {"0.error.nvmlDeviceGetTemperature": None}, {"temperature_c": 61.0}),
    ],
    "a field that fails now and then, and one that may not be read": [
        (1.0, {"0.field.185.error": 999, "0.field.82.error": 4},
         {"energy_j": 1000.0, "memory_temperature_c": None, "power_w": 310.5}),
        (2.0, {"0.field.185.error": None, "0.field.82.error": None}, {"power_w": 398.0, "memory_temperature_c": None}),
    ],
    "memory temperature, errors and capability": [
        (1.0, {"0.ecc": 3}, {"memory_temperature_c": 74.0, "ecc_errors": 3, "compute_capability": 9.0}),
        (2.0, {"0.field.82": 0}, {"memory_temperature_c": None}),  # what boards without that sensor report
    ],
    "processes with memory and share": [
        (1.0, {"0.pids": "7 8:100 9:3000", "0.process_samples": "9:1000:99"},  # most memory first
         {"pids": [7, 8, 9], "processes": [GpuProcess(9, 3000 << 20), GpuProcess(8, 100 << 20), GpuProcess(7)]}),
        (3.0, {"0.process_samples": "9:1000:99 9:2000:40 9:3000:60 8:2500:5 7:2600:4000000"},  # no measurement
         {"processes": [GpuProcess(9, 3000 << 20, 0.5), GpuProcess(8, 100 << 20, 0.05), GpuProcess(7)]}),
        (5.0, {}, {"processes": [GpuProcess(9, 3000 << 20), GpuProcess(8, 100 << 20), GpuProcess(7)]}),  # idle
    ],
    "of many processes all pids": [
        (1.0, {"0.pids": " ".join(f"{pid}:{pid}" for pid in range(1, 41))},
         {"pids": [*range(1, 41)], "processes": [GpuProcess(pid, pid << 20) for pid in range(40, 24, -1)]}),
    ],
    "who computes is queried every two seconds": [
        (1.0, {}, {"pids": [4242]}),
        (2.0, {"0.pids": "1 2 3"}, {"pids": [4242]}),
        (3.0, {}, {"pids": [1, 2, 3]}),
    ],
    "a name with control sequences": [(1.0, {"0.name": "\x1b[31m[bold]GPU\x07"}, {"name": "[bold]GPU"})],
    **{f"C2C {told}": [(1.0, {"0.c2c": told}, {"c2c": c2c})] for told, c2c in ((None, None), (0, False), (1, True))},
    **{
        f"a PCIe link that {why}": [(1.0, lines, {"pcie_generation": None, "pcie_width": None, "power_w": 398.0})]
        for why, lines in {
            "is not supported": {"0.pcie_generation": None, "0.pcie_width": None},
            "is 0": {"0.pcie_generation": 0, "0.pcie_width": 0},
            "is not in the library": {f"error.nvmlDeviceGetCurrPcieLink{name}": 13 for name in ("Generation", "Width")},
        }.items()
    },
}  # fmt: skip


@pytest.mark.parametrize("reads", COURSES.values(), ids=COURSES)
def test_figures_of_reads(nvml: FakeNvml, reads: Reads) -> None:
    check_reads(nvml, reads)


def link(gpu: Gpu) -> tuple[int | None, int | None]:
    return gpu.pcie_generation, gpu.pcie_width


def test_the_pcie_link_is_the_highest_seen_and_queried_seldom(nvml: FakeNvml) -> None:
    """No more at its bound; the second one is in a slot that has fewer lanes than its card."""
    generation, width = (f"nvmlDeviceGetCurrPcieLink{what}" for what in ("Generation", "Width"))
    for now_s, lines, known, calls in (
        (1.0, {"generation": 1, "width": 8}, (1, 8), {generation, width}),
        (2.0, {"generation": 5}, (1, 8), set()),
        (3.0, {}, (5, 8), {generation, width}),
        (5.0, {"generation": 1, "width": 4}, (5, 8), {width}),
    ):
        nvml.set({f"0.pcie_{name}": value for name, value in lines.items()})
        nvml.count_calls()
        assert link(read_one(nvml, now_s)) == known
        assert {name for name in nvml.count_calls() if "CurrPcieLink" in name} == calls


def test_what_is_not_supported_is_not_asked_for_again(nvml: FakeNvml) -> None:
    nvml.set({"0.gpm": 0, "0.xids": None, "0.ecc": None, "0.sm_clock": None})
    nvml.set({key: None for key in modern(0) if key.startswith("0.field")})
    read_one(nvml, 1.0)
    nvml.count_calls()
    gpu = read_one(nvml, 4.0)
    calls = nvml.count_calls()
    assert calls["nvmlDeviceGetTemperature"] == 1
    unsupported = ("FieldValues", "TotalEccErrors", "ClockInfo", "Samples", "ProcessUtilization")
    assert not [name for name in calls if "Gpm" in name or "Event" in name.removesuffix("EventReasons")]
    assert not [name for name in unsupported if calls[f"nvmlDeviceGet{name}"]]
    assert (gpu.power_w, gpu.ecc_errors, gpu.sm_ratio) == (310.5, None, None)


def test_a_look_between_records_costs_two_calls(nvml: FakeNvml) -> None:
    nvml.set({"0.samples": "1000:50"})
    read_one(nvml, 1.0)
    nvml.set({"0.samples": "1000:50 2000:70"})
    nvml.count_calls()
    assert nvml.read(1.5) == []
    calls = nvml.count_calls()
    assert set(calls) == {"nvmlDeviceGetSamples", "nvmlDeviceGetCurrentClocksEventReasons"}
    nvml.set({"0.samples": "2000:70 3000:90"})
    gpu = read_one(nvml, 2.0)
    assert (gpu.util_samples, gpu.util_ratio) == ([0.7, 0.9], 0.8)


def test_the_numa_nodes_near_a_gpu(nvml: FakeNvml, tmp_path: Path) -> None:
    node = tmp_path / "sys/bus/pci/devices/0000:3b:00.0/numa_node"
    node.parent.mkdir(parents=True)
    node.write_text("1\n")
    nvml.set({"0.bus_id": "00000000:3B:00.0"}, devices=2, **usual(1))
    assert [gpu.near_nodes for gpu in gpus(nvml.read(1.0))] == [[1], None]


@pytest.mark.parametrize(
    ("rows", "remap"), [("0 1 0 0", "none"), ("0 1 1 0", "pending"), ("2 8 1 1", "failed"), (None, None)]
)
def test_what_hardly_ever_changes_is_queried_once_a_minute(nvml: FakeNvml, rows: str | None, remap: str | None) -> None:
    nvml.set({"0.remapped_rows": rows, "0.pcie_generation": 3, "0.pcie_replays": None if rows is None else 7})
    gpu = read_one(nvml, 1.0)
    assert (gpu.pcie_replays, gpu.row_remap) == (None if rows is None else 7, remap)
    assert (gpu.pcie_generation, gpu.pcie_generation_max, gpu.pcie_width_max) == (3, 5, 16)
    assert (gpu.power_limit_w, gpu.power_limit_default_w) == (700.0, 700.0)
    nvml.set({"0.pcie_replays": 12})
    rare = {"nvmlDeviceGetPcieReplayCounter", "nvmlDeviceGetRemappedRows"}
    nvml.count_calls()
    assert read_one(nvml, 60.0).pcie_replays == gpu.pcie_replays
    assert not rare & set(nvml.count_calls())
    assert read_one(nvml, 61.0).pcie_replays == (None if rows is None else 12)
    assert set(nvml.count_calls()) & rare == (set() if rows is None else rare)


def test_xids_are_told_once_and_of_their_gpu(nvml: FakeNvml) -> None:
    nvml.set(devices=2, **usual(1))
    nvml.set(modern(1))
    found = []
    for second, xids in enumerate(({}, {"0.xids": "13 31", "1.xids": "48"}, {"0.xids": "13 31 79"}, {})):
        nvml.set(xids)
        found.append([gpu.xids for gpu in gpus(nvml.read(float(second)))])
    assert found == [[[], []], [[13, 31], [48]], [[79], []], [[], []]]


@pytest.mark.parametrize("now_s", [1.5, 2.0])
def test_a_gpu_that_falls_off_the_bus_says_why(nvml: FakeNvml, now_s: float) -> None:
    read_one(nvml, 1.0)
    nvml.set({"0.xids": "79", "0.error": 15})
    told = nvml.read(now_s)
    (notice,) = notices(told)
    assert notice.message == "GPU 0 (NVIDIA Fake 80GB) is lost: it does not answer any more (Xid 79)"
    later = [gpu for at_s in (2.5, 3.5, 4.5) for gpu in gpus(nvml.read(at_s))]
    (last,) = [*gpus(told), *later]
    assert (last.uuid, last.xids, last.util_ratio) == ("GPU-00000000-fake", [79], None)


@pytest.mark.parametrize("nvml", [{"old_driver": True}], indirect=True)
def test_an_old_driver_lacks_functions(nvml: FakeNvml) -> None:
    nvml.set(dict.fromkeys(modern(0)), driver="470.256.02", gpu0_event_reasons="0x40")
    read_one(nvml, 1.0)
    gpu = read_one(nvml, 2.0)
    assert gpu.memory_used_bytes == (20480 + 512) << 20  # version 1 counts the driver's own
    assert (gpu.throttle, gpu.throttled) == (["thermal (hardware)"], [Throttle("thermal (hardware)")])
    assert (gpu.sm_ratio, gpu.power_w, gpu.util_ratio) == (None, 310.5, 0.37)
    assert [process.memory_bytes for process in gpu.processes] == [19000 << 20]


def test_an_hour_of_a_gpu_is_a_few_megabytes_of_log(nvml: FakeNvml) -> None:
    """Two GPUs a process get a record a second, more of them fewer: well below the 10 MB that a rank may write."""
    nvml.set({"0.pids": "11234:19000 11235:900", "0.samples": "1:1", "0.xids": "13", "0.event_reasons": "0x24"})
    read_one(nvml, 1.0)
    busy = {"0.field.74": 5_333_000_000, "0.field.197": 98_765_432_109, "0.field.198": 99_999_999_999}
    samples = " ".join(f"{1000 + i}:{i}" for i in range(60))
    nvml.set({**busy, "0.samples": samples, "0.process_samples": "11234:1000:47"})
    gpu = read_one(nvml, 2.0)
    assert len(gpu.util_samples) == 10
    each = msgspec.structs.replace(gpu, **dict.fromkeys(GPU_FACTS))  # which a log has once
    assert 2 * 3600 * len(msgspec.json.encode(each)) < 6_500_000
