"""GpuSource over AMD's driver: the real amdsmi over a fake library; which drivers there are."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests import fake_amdsmi
from tests.fake_amdsmi import FakeAmdSmi, usual
from tests.fake_nvml import Reads, Scenario, check_reads, gpus, notices
from tuimon.records import Gpu, GpuProcess, Throttle
from tuimon.sources.gpus.amdsmi import NO_PACKAGE, OTHER_VERSION, AmdDevice, AmdSmi
from tuimon.sources.gpus.driver import DriverError, in_first_pid_namespace


@pytest.fixture
def amdsmi(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[FakeAmdSmi]:
    fake = FakeAmdSmi(tmp_path, **getattr(request, "param", {}))
    fake.set(usual(0), amd_devices=1)
    yield fake
    fake.close()


def test_every_figure_of_two_gpus(amdsmi: FakeAmdSmi) -> None:
    amdsmi.set(usual(1), amd_devices=2)
    amdsmi.set(gpu9_name="AMD Other", gpu9_average_gfx_activity=7)
    first, second = gpus(amdsmi.read(10.0))
    pid = 4242 if in_first_pid_namespace() else 0
    assert first == Gpu(
        t=10.0,
        pid=0,
        index=0,
        uuid="GPU-f0000000000000a0",
        name="AMD Fake MI300X",
        util_ratio=0.83,
        memory_used_bytes=65536 << 20,
        memory_total_bytes=196592 << 20,
        power_w=612.0,
        power_limit_w=750.0,
        energy_j=15.3,
        temperature_c=74.0,
        memory_temperature_c=61.0,
        sm_clock_mhz=1890,
        sm_clock_max_mhz=2100,
        pcie_generation=5,
        pcie_width=16,
        ecc_errors=0,
        pids=[pid] if pid else [],
        processes=[GpuProcess(pid, 60000 << 20)],
        cost_ms=first.cost_ms,
    )
    assert first.cost_ms
    assert (second.index, second.name, second.util_ratio) == (1, "AMD Other", 0.07)


#: The line of a figure that not all cards support.
UNSUPPORTED = {
    "util_ratio": "average_gfx_activity", "memory_used_bytes": "memory_used_mib", "power_w": "current_socket_power",
    "power_limit_w": "power_cap_uw", "energy_j": "energy_accumulator", "temperature_c": "temperature_hotspot",
    "memory_temperature_c": "temperature_mem", "sm_clock_mhz": "current_gfxclk", "sm_clock_max_mhz": "gfx_clock_max",
    "pcie_width": "pcie_link_width", "pcie_generation": "pcie_link_speed", "ecc_errors": "ecc",
}  # fmt: skip
COURSES: dict[str, Reads] = {
    **{
        f"without {field}": [(1.0, {f"8.{line}": None}, {field: None, "name": "AMD Fake MI300X"})]
        for field, line in UNSUPPORTED.items()
    },
    "no power cap and no name": [(1.0, {"8.power_cap_uw": 0, "8.name": ""}, {"power_limit_w": None, "name": "GPU"})],
    "power that other cards report elsewhere": [
        (1.0, {"8.current_socket_power": None, "8.average_socket_power": 203}, {"power_w": 203.0})
    ],
    "temperature that other cards report elsewhere": [
        (1.0, {"8.temperature_hotspot": None, "8.temperature_edge": 55}, {"temperature_c": 55.0})
    ],
    "one clock a die": [(1.0, {"8.current_gfxclk": None, "8.current_gfxclks": 1305}, {"sm_clock_mhz": 1305})],
    "utilisation is the mean of the polls of a window": [
        (0.0, {"8.average_gfx_activity": "10 20 60 30"}, {"util_ratio": 0.1}),
        (0.5, {}, None),
        (1.0, {}, {"util_ratio": 0.4}),
    ],
    "the link of an idle GPU is as wide as it was": [
        (0.0, {}, {}),
        (1.0, {"8.pcie_link_width": 8, "8.pcie_link_speed": 25}, {"pcie_width": 16, "pcie_generation": 5}),
    ],
    "throttling is the share of the samples that found it": [
        (0.0, {"8.accumulation_counter": "1000 1500 2000 3000", "8.ppt_residency_acc": "70 170 170 170",
               "8.socket_thm_residency_acc": "0 150 150 150", "8.hbm_thm_residency_acc": "0 50 300 300"},
         {"throttle": [], "throttled": []}),  # counted before this run
        (0.5, {}, None),
        (1.0, {}, {"throttle": ["thermal (hardware)"],  # since the latest poll
                   "throttled": [Throttle("power cap", 0.1), Throttle("thermal (hardware)", 0.3)]}),
        (2.0, {}, {"throttle": [], "throttled": []}),
    ],
    "counters that begin anew are no throttling": [
        (0.0, {"8.accumulation_counter": "1000 10", "8.ppt_residency_acc": "900 5"}, {}),
        (1.0, {}, {"throttled": []}),
    ],
}  # fmt: skip


@pytest.mark.parametrize("reads", COURSES.values(), ids=COURSES)
def test_figures_of_reads(amdsmi: FakeAmdSmi, reads: Reads) -> None:
    check_reads(amdsmi, reads)


def test_parts_of_a_gpu_that_the_library_gives_one_uuid_are_told_apart(amdsmi: FakeAmdSmi) -> None:
    amdsmi.set(usual(1), amd_devices=3)
    amdsmi.set(usual(2))
    amdsmi.set(gpu9_uuid="GPU-f0000000000000a0", gpu10_uuid="GPU-f0000000000000a0", gpu9_average_gfx_activity=None)
    found = gpus(amdsmi.read(1.0))
    assert [gpu.uuid.removeprefix("GPU-f0000000000000a0") for gpu in found] == ["", "/1", "/2"]
    assert [gpu.util_ratio for gpu in found] == [0.83, None, 0.83]


def test_the_metrics_are_queried_once_and_a_query_that_sleeps_never(amdsmi: FakeAmdSmi) -> None:
    amdsmi.read(0.0)
    amdsmi.count_calls()
    amdsmi.read(1.0)
    calls = amdsmi.count_calls()
    assert (calls["amdsmi_get_gpu_metrics_info"], calls["amdsmi_get_violation_status"]) == (1, 0)


def test_pids_of_the_machine_mean_nothing_in_a_container(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {"amdsmi_get_gpu_process_list": [{"pid": 7, "memory_usage": {"vram_mem": 5}}]}
    handle = SimpleNamespace(
        library=SimpleNamespace(root=""),
        api=SimpleNamespace(AmdSmiClkType=SimpleNamespace(GFX=0)),
        uuid="GPU-1",
        cost_s=0.0,
        reset_counts=lambda: None,
        end_window=lambda: None,
        query=lambda function, *_: answers.get(function),
    )
    monkeypatch.setattr(os, "readlink", lambda _: "pid:[4026532201]")
    gpu = AmdDevice(handle, 0).read(0.0)  # type: ignore[arg-type]
    assert (gpu.pids, gpu.processes) == ([], [GpuProcess(0, 5)])
    monkeypatch.setattr(os, "readlink", lambda _: "pid:[4026531836]")
    gpu = AmdDevice(handle, 0).read(0.0)  # type: ignore[arg-type]
    assert (gpu.pids, gpu.processes) == ([7], [GpuProcess(7, 5)])


def test_the_node_that_a_gpu_hangs_on(amdsmi: FakeAmdSmi, tmp_path: Path) -> None:
    device = tmp_path / "sys/bus/pci/devices/0000:c0:00.0"
    device.mkdir(parents=True)
    (device / "numa_node").write_text("0\n")
    (tmp_path / "sys/devices/system/node/node0").mkdir(parents=True)
    (tmp_path / "sys/devices/system/node/node0/distance").write_text("10\n")
    assert gpus(amdsmi.read(1.0))[0].near_nodes == [0]


@pytest.mark.parametrize("amdsmi", [{"visible_devices": "0"}], indirect=True)
def test_the_numbers_in_cuda_visible_devices_are_not_those_of_the_library(amdsmi: FakeAmdSmi) -> None:
    assert not gpus(amdsmi.read(1.0))[0].chosen


@pytest.mark.parametrize(
    ("call", "code", "message"),
    [
        ("amdsmi_init", 34, "the AMD driver is not loaded"),
        ("amdsmi_get_socket_handles", 12, "no figures of AMD GPUs: amdsmi says AMDSMI_STATUS_IO - I/O Error (12)"),
    ],
)
def test_a_library_that_fails_is_tried_again(amdsmi: FakeAmdSmi, call: str, code: int, message: str) -> None:
    amdsmi.set({f"error.{call}": code})
    amdsmi.count_calls()
    (notice,) = notices(amdsmi.read(1.0))
    assert (notice.source, notice.level, notice.message) == ("gpu", "warning", message)
    assert amdsmi.count_calls()["amdsmi_shut_down"] == (call != "amdsmi_init")
    amdsmi.set({f"error.{call}": None})
    records = amdsmi.read(32.0)
    assert [notice.level for notice in notices(records)] == ["ok"]
    assert len(gpus(records)) == 1


@pytest.mark.parametrize("code", [NO_PACKAGE, OTHER_VERSION])
def test_what_is_to_be_installed(code: int) -> None:
    problem = AmdSmi.explain(DriverError(code, "no module"))
    assert "amdsmi" in problem.message and not problem.expected
    assert problem.hint and problem.hint.endswith(" amdsmi, in the version of your ROCm")


NO_OTHERS = """
import ctypes, sys

def of_the_test(name, *more, load=ctypes.CDLL, **options):
    if name and not str(name).startswith(sys.argv[1]) and "libamd_smi" in str(name) or name in sys.argv[2:]:
        raise OSError(f"{name}: cannot open shared object file")
    return load(name, *more, **options)

ctypes.CDLL = of_the_test
from tuimon.sources.gpus.source import gpu_sources
"""
DRIVERS = """
from tuimon.sources.process_table import ProcessTable
names = [(source.name, source.driver.name) for source in gpu_sources(ProcessTable(1, None), 1.0)]
print(*names, "amdsmi" in sys.modules, "pynvml" in sys.modules)
"""


def said(code: str, directory: Path, *missing: str, **variables: str) -> str:
    env = {name: value for name, value in os.environ.items() if not name.startswith("ROCM_")}
    command = [sys.executable, "-c", NO_OTHERS + code, str(directory), *missing]
    return subprocess.run(command, env=env | variables, capture_output=True, text=True, timeout=60, check=True).stdout


NVML = """
from tuimon.sources.gpus.driver import DriverError
from tuimon.sources.gpus.nvml import Nvml
try:
    Nvml()
except DriverError:
    print("pynvml" in sys.modules)
"""


def test_nvml_is_asked_where_there_is_no_library_and_not_imported_to_find_that_there_is_none(tmp_path: Path) -> None:
    assert said(NVML, tmp_path, "libnvidia-ml.so.1") == "False\n"
    assert said(DRIVERS, tmp_path, "libnvidia-ml.so.1") == "('gpu', 'nvml') False False\n"


def test_amd_alone_and_beside_nvml(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path)
    rocm = fake_amdsmi.install(tmp_path)
    assert said(DRIVERS, tmp_path, "libnvidia-ml.so.1", **rocm) == "('gpu', 'amdsmi') False False\n"
    both = said(DRIVERS, tmp_path, **rocm, LD_LIBRARY_PATH=scenario.environment["LD_LIBRARY_PATH"])
    assert both == "('gpu', 'nvml') ('amdsmi', 'amdsmi') False False\n"  # neither replaces the other's notices


def test_a_library_beside_the_binding_is_found(tmp_path: Path) -> None:
    (tmp_path / "modules/amdsmi").mkdir(parents=True)
    (tmp_path / "modules/amdsmi/__init__.py").touch()
    shutil.copy(fake_amdsmi.build(), tmp_path / "modules/amdsmi")
    code = f"sys.path.insert(0, {str(tmp_path / 'modules')!r})\n" + DRIVERS
    assert said(code, tmp_path, "libnvidia-ml.so.1") == "('gpu', 'amdsmi') False False\n"


OPENED = """
from tuimon.sources.gpus.amdsmi import AmdSmi
print(AmdSmi.opened(lambda *_: None).message)
"""


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (None, "no AMD driver on this machine (libamd_smi.so not found)"),  # the binding itself would print an error
        ("raise ImportError('none')", "no figures of AMD GPUs: the package amdsmi is not installed"),
        *(
            (module, "no figures of AMD GPUs: the package amdsmi and libamd_smi.so have different versions")
            for module in ("raise AttributeError('undefined symbol: amdsmi_get_gpu_news')", "pass")
        ),
    ],
)
def test_a_library_or_a_binding_that_is_missing_or_does_not_fit(
    tmp_path: Path, module: str | None, message: str
) -> None:
    rocm = {} if module is None else fake_amdsmi.install(tmp_path)
    (tmp_path / "modules").mkdir()
    if module is not None:
        (tmp_path / "modules/amdsmi.py").write_text(module)
    code = f"sys.path.insert(0, {str(tmp_path / 'modules')!r})\n" + OPENED
    assert said(code, tmp_path, **rocm) == f"{message}\n"
