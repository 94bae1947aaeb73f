"""MIG instances: devices of their own, by the real pynvml over a fake NVML library."""

import pytest

from tests.fake_nvml import FakeNvml, gpus, modern, usual
from tuimon.records import GpuProcess


def instance(gpu: int, place: int) -> dict[str, object]:
    """The lines of a MIG instance."""
    lines: dict[str, object] = {
        "name": "NVIDIA Fake 80GB MIG 3g.40gb",
        "uuid": f"MIG-0000000{gpu}-000{place}",
        "memory_total_mib": 40192,
        "memory_used_mib": 1000 * (place + 1),
        "pids": f"{500 + place}:900",
        "gpm.1": 80 + place,
        "gpm.2": 70 + place,
        "gpm.5": 10,
    }
    return {f"{gpu}.mig.{place}.{key}": value for key, value in lines.items()}


#: A GPU that is cut does not tell its utilisation, nor who computes.
CUT = {"0.mig": 2, "0.util": None, "0.pids": None, **instance(0, 0), **instance(0, 1)}
SCENARIO = {"devices": 1, "driver": "580.65.06", **usual(0), **modern(0), **CUT}


def test_instances_follow_their_gpu(nvml: FakeNvml) -> None:
    whole, first, second = gpus(nvml.read(1.0))
    assert (whole.uuid, whole.parent_uuid, whole.util_ratio, whole.pids) == ("GPU-00000000-fake", None, None, [])
    assert (first.uuid, first.parent_uuid, first.index) == ("MIG-00000000-0000", "GPU-00000000-fake", 0)
    assert (first.name, second.name) == ("NVIDIA Fake 80GB MIG 3g.40gb",) * 2
    assert (first.memory_used_bytes, second.memory_used_bytes) == (1000 << 20, 2000 << 20)
    assert second.processes == [GpuProcess(501, 900 << 20)]
    assert (first.util_ratio, first.power_w, first.temperature_c) == (None, None, None)  # the GPU's, not its own
    assert [(gpu.pcie_generation, gpu.pcie_width) for gpu in (whole, first)] == [(5, 16), (None, None)]


def test_gpm_tells_instances_apart(nvml: FakeNvml) -> None:
    assert [(gpu.util_ratio, gpu.sm_ratio) for gpu in gpus(nvml.read(1.0))] == [(None, None)] * 3
    nvml.set({"0.gpm.1": 81})
    known = [(gpu.util_ratio, gpu.sm_ratio) for gpu in gpus(nvml.read(2.0))]
    assert known == [(0.81, 0.915), (0.8, 0.7), (0.81, 0.71)]


def test_a_gpu_is_cut_anew(nvml: FakeNvml) -> None:
    assert len(gpus(nvml.read(1.0))) == 3
    nvml.set({"0.mig": 1})
    assert len(gpus(nvml.read(40.0))) == 2
    nvml.set({"0.mig": 0, "0.util": 50, "0.pids": "7"})
    (gpu,) = gpus(nvml.read(80.0))
    assert (gpu.util_ratio, gpu.pids) == (0.5, [7])


def test_a_gpu_that_is_not_cut_goes_on_undisturbed(nvml: FakeNvml) -> None:
    nvml.set({"0.mig": 0})
    nvml.read(1.0)
    nvml.read(39.0)
    assert gpus(nvml.read(40.0))[0].sm_ratio == 0.915  # its samples were not thrown away


def test_one_more_instance_that_may_not_be_seen_is_left_out(nvml: FakeNvml) -> None:
    nvml.set({"0.mig.1.error.nvmlDeviceGetUUID": 4})
    nvml.read(1.0)
    assert [gpu.uuid for gpu in gpus(nvml.read(2.0))] == ["GPU-00000000-fake", "MIG-00000000-0000"]


def test_a_gpu_of_which_only_an_instance_may_be_seen(nvml: FakeNvml) -> None:
    denied = ("MemoryInfo_v2", "MemoryInfo", "PowerUsage", "FieldValues", "TotalEccErrors")
    nvml.set({f"0.error.nvmlDeviceGet{name}": 4 for name in denied})
    whole, first, _ = gpus(nvml.read(1.0))
    assert (whole.memory_used_bytes, whole.power_w, whole.temperature_c) == (None, None, 61.0)
    assert first.memory_used_bytes == 1000 << 20


@pytest.mark.parametrize("call", ["0.mig.1.error.nvmlDeviceGetName", "0.error.nvmlDeviceGetMaxClockInfo"])
def test_a_gpu_that_is_lost_while_it_is_opened_leaves_nothing_open(nvml: FakeNvml, call: str) -> None:
    nvml.set({"0.xids": "", call: 15})
    nvml.count_calls()
    assert not gpus(nvml.read(1.0))
    calls = nvml.count_calls()
    assert calls["nvmlEventSetCreate"] == calls["nvmlEventSetFree"]
