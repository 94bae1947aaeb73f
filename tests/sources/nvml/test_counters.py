"""Counters read many at once, GPM, events, processes: the real pynvml over a fake NVML library."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.fake_nvml import FakeNvml, gpus, modern, notices, usual
from tuimon.records import GPU_FACTS, Gpu, GpuProcess, Throttle

GB = 1_000_000_000


SCENARIO = {"devices": 1, "driver": "580.65.06", **usual(0), **modern(0)}


def read_one(nvml: FakeNvml, now_s: float) -> Gpu:
    (gpu,) = gpus(nvml.read(now_s))
    return gpu


def test_counters_become_rates(nvml: FakeNvml) -> None:
    first = read_one(nvml, 1.0)
    assert first.pcie_rx_bytes_per_s is None  # one reading of a counter is no rate
    assert first.energy_j == 1000.0
    nvml.set({"0.field.197": 10 * GB + 3000, "0.field.198": 54 * GB, "0.field.138": 1_000_100, "0.field.83": 1_800_000})
    gpu = read_one(nvml, 3.0)
    assert (gpu.pcie_tx_bytes_per_s, gpu.pcie_rx_bytes_per_s) == (1500.0, 2.0 * GB)
    assert (gpu.nvlink_tx_bytes_per_s, gpu.nvlink_rx_bytes_per_s) == (50 * 1024.0, 0.0)
    assert gpu.energy_j == 1800.0


@pytest.mark.parametrize(
    ("kind", "readings", "rates"),
    [
        ("uint", ((1 << 32) - 1000, 500), [None, 1500.0]),  # a small counter that overflows goes on
        ("ullong", (50 * GB, 7, 1007), [None, None, 1000.0]),  # it was reset
    ],
)
def test_a_counter_that_falls(nvml: FakeNvml, kind: str, readings: tuple[int, ...], rates: list[float | None]) -> None:
    found = []
    for second, reading in enumerate(readings):
        nvml.set({"0.field.198.type": kind, "0.field.198": reading})
        found.append(read_one(nvml, float(second)).pcie_rx_bytes_per_s)
    assert found == rates


def test_throttling_is_told_by_the_time_that_was_counted(nvml: FakeNvml) -> None:
    read_one(nvml, 1.0)
    nvml.set({"0.field.74": 5 * GB + 250_000_000, "0.field.270": 3 * GB, "0.event_reasons": "0x4"})
    gpu = read_one(nvml, 2.0)
    assert gpu.throttled == [Throttle("power cap", 0.25), Throttle("thermal (hardware)", 1.0)]
    assert gpu.throttle == ["power cap"]
    assert read_one(nvml, 3.0).throttled == []  # the counters stand still, whatever the causes at the moment


def test_throttling_that_is_not_counted_is_told_by_moments(nvml: FakeNvml) -> None:
    nvml.set({f"0.field.{field}": None for field in (74, 76, 269, 270, 271)})
    read_one(nvml, 1.0)
    nvml.set({"0.event_reasons": "0x48"})  # "hardware slowdown" is only set beside one of its causes
    nvml.read(1.5)
    nvml.set({"0.event_reasons": "0x1"})
    gpu = read_one(nvml, 2.0)
    assert (gpu.throttle, gpu.throttled) == ([], [Throttle("thermal (hardware)")])
    assert read_one(nvml, 3.0).throttled == []


def test_gpm_needs_two_samples(nvml: FakeNvml) -> None:
    first = read_one(nvml, 1.0)
    assert (first.sm_ratio, first.tensor_ratio) == (None, None)
    gpu = read_one(nvml, 2.0)
    assert (gpu.sm_ratio, gpu.occupancy_ratio, gpu.tensor_ratio, gpu.dram_ratio) == (0.915, 0.4025, 0.12, 0.555)
    nvml.set({"0.gpm.2": 3, "0.gpm.5": None, "0.gpm.10": "nan", "0.gpm.3": 9e9})
    gpu = read_one(nvml, 3.0)
    assert (gpu.sm_ratio, gpu.occupancy_ratio, gpu.tensor_ratio, gpu.dram_ratio) == (0.03, None, None, None)


def test_after_a_sample_that_failed_gpm_begins_anew(nvml: FakeNvml) -> None:
    read_one(nvml, 1.0)
    nvml.set({"0.error.nvmlGpmSampleGet": 999})
    assert read_one(nvml, 2.0).sm_ratio is None
    nvml.set({"0.error.nvmlGpmSampleGet": None})
    assert read_one(nvml, 3.0).sm_ratio is None
    assert read_one(nvml, 4.0).sm_ratio == 0.915


def test_links_are_told_by_gpm_where_they_have_no_counters(nvml: FakeNvml) -> None:
    nvml.set({"0.field.197": None, "0.field.198": None})
    read_one(nvml, 1.0)
    gpu = read_one(nvml, 2.0)
    assert (gpu.pcie_tx_bytes_per_s, gpu.pcie_rx_bytes_per_s) == (100.0 * 2**20, 2000.0 * 2**20)


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


def test_a_pcie_link_without_a_known_bound_is_queried_on(nvml: FakeNvml) -> None:
    nvml.set({"0.pcie_generation": 1, "0.pcie_generation_max": None})
    assert link(read_one(nvml, 1.0)) == (1, 16)
    nvml.set({"0.pcie_generation": 5})
    assert link(read_one(nvml, 3.0)) == (5, 16)


@pytest.mark.parametrize(
    "missing",
    [
        {"0.pcie_generation": None, "0.pcie_width": None},
        {"0.pcie_generation": 0, "0.pcie_width": 0},
        {f"error.nvmlDeviceGetCurrPcieLink{name}": 13 for name in ("Generation", "Width")},  # not in the library
    ],
)
def test_a_pcie_link_that_is_not_known_is_none(nvml: FakeNvml, missing: dict[str, object]) -> None:
    nvml.set(missing)
    gpu = read_one(nvml, 1.0)
    assert (link(gpu), gpu.power_w) == ((None, None), 398.0)


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


def test_a_field_that_fails_now_and_then_comes_back_and_one_that_may_not_be_read_does_not(nvml: FakeNvml) -> None:
    nvml.set({"0.field.185.error": 999, "0.field.82.error": 4})
    gpu = read_one(nvml, 1.0)
    assert (gpu.energy_j, gpu.memory_temperature_c, gpu.power_w) == (1000.0, None, 310.5)
    nvml.set({"0.field.185.error": None, "0.field.82.error": None})
    gpu = read_one(nvml, 2.0)
    assert (gpu.power_w, gpu.memory_temperature_c) == (398.0, None)


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


def test_the_numa_nodes_near_a_gpu(tmp_path: Path) -> None:
    node = tmp_path / "sys/bus/pci/devices/0000:3b:00.0/numa_node"
    node.parent.mkdir(parents=True)
    node.write_text("1\n")
    nvml = FakeNvml(tmp_path, root=str(tmp_path))
    nvml.set({"0.bus_id": "00000000:3B:00.0"}, devices=2, **usual(0), **usual(1))
    assert [gpu.near_nodes for gpu in gpus(nvml.read(1.0))] == [[1], None]
    nvml.close()


def test_memory_temperature_ecc_and_capability(nvml: FakeNvml) -> None:
    nvml.set({"0.ecc": 3})
    gpu = read_one(nvml, 1.0)
    assert (gpu.memory_temperature_c, gpu.ecc_errors, gpu.compute_capability) == (74.0, 3, 9.0)
    nvml.set({"0.field.82": 0})  # what boards without that sensor report
    gpu = read_one(nvml, 2.0)
    assert gpu.memory_temperature_c is None


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


def test_of_many_processes_all_pids_are_told(nvml: FakeNvml) -> None:
    nvml.set({"0.pids": " ".join(f"{pid}:{pid}" for pid in range(1, 41))})
    gpu = read_one(nvml, 1.0)
    assert gpu.pids == list(range(1, 41))
    assert [process.pid for process in gpu.processes] == list(range(40, 24, -1))


def test_processes_with_memory_and_share(nvml: FakeNvml) -> None:
    nvml.set({"0.pids": "7 8:100 9:3000", "0.process_samples": "9:1000:99"})
    gpu = read_one(nvml, 1.0)
    assert gpu.pids == [7, 8, 9]
    assert gpu.processes == [GpuProcess(9, 3000 << 20), GpuProcess(8, 100 << 20), GpuProcess(7)]  # most memory first
    nvml.set({"0.process_samples": "9:1000:99 9:2000:40 9:3000:60 8:2500:5 7:2600:4000000"})
    gpu = read_one(nvml, 3.0)
    assert [process.sm_ratio for process in gpu.processes] == [0.5, 0.05, None]  # 4,000,000 % is no measurement
    assert [process.sm_ratio for process in read_one(nvml, 5.0).processes] == [None, None, None]  # idle


@pytest.mark.parametrize(("told", "c2c"), [(None, None), (0, False), (1, True)])
def test_whether_copies_go_over_c2c(nvml: FakeNvml, told: int | None, c2c: bool | None) -> None:
    nvml.set({"0.c2c": told})
    assert read_one(nvml, 1.0).c2c is c2c


def test_the_driver_s_own_utilisation_comes_before_that_of_gpm(nvml: FakeNvml) -> None:
    nvml.set({"0.gpm.1": 81})
    read_one(nvml, 1.0)
    assert read_one(nvml, 2.0).util_ratio == 0.37


def test_an_old_driver_lacks_functions(tmp_path: Path) -> None:
    nvml = FakeNvml(tmp_path, old_driver=True)
    nvml.set(devices=1, driver="470.256.02", **usual(0))
    nvml.set(gpu0_event_reasons="0x40")
    read_one(nvml, 1.0)
    gpu = read_one(nvml, 2.0)
    assert gpu.memory_used_bytes == (20480 + 512) << 20  # version 1 counts the driver's own
    assert (gpu.throttle, gpu.throttled) == (["thermal (hardware)"], [Throttle("thermal (hardware)")])
    assert (gpu.sm_ratio, gpu.power_w, gpu.util_ratio) == (None, 310.5, 0.37)
    assert [process.memory_bytes for process in gpu.processes] == [19000 << 20]
    nvml.close()


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
