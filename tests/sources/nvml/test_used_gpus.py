"""Which GPUs the run uses: by UUID, by process, by CUDA_VISIBLE_DEVICES. The real pynvml over a fake NVML library."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fake_nvml import FakeNvml, usual
from tests.fake_nvml.records import gpus

FOUR = {"devices": 4, "driver": "580.65.06", **usual(0), **usual(1), **usual(2), **usual(3)}


@pytest.fixture
def nvml(tmp_path: Path) -> Iterator[FakeNvml]:
    fake = FakeNvml(tmp_path)
    fake.set(**FOUR)
    yield fake
    fake.close()


def uuid(index: int) -> str:
    return f"GPU-0000000{index}-fake"


def chosen(nvml: FakeNvml, now_s: float, **facts: object) -> list[int]:
    return [gpu.index for gpu in gpus(nvml.read(now_s, **facts)) if gpu.chosen]


def test_what_visible_devices_name_stays_known_beside_what_a_process_uses(nvml: FakeNvml) -> None:
    assert chosen(nvml, 1.0, cuda_visible_devices="3,1") == [1, 3]
    assert chosen(nvml, 10.0, cuda_visible_devices="3,1", gpu_uuids=[uuid(3)]) == [1, 3]


def test_of_ranks_with_a_gpu_each_the_launchers_variable_names_the_rest(tmp_path: Path) -> None:
    nvml = FakeNvml(tmp_path, visible_devices="0,1,2")
    nvml.set(**FOUR)
    assert chosen(nvml, 1.0, cuda_visible_devices="0", gpu_uuids=[uuid(0)]) == [0, 1, 2]
    nvml.close()


def test_a_named_gpu_that_no_process_uses_is_read_less_often(nvml: FakeNvml) -> None:
    facts = {"cuda_visible_devices": "1,2", "gpu_uuids": [uuid(2)]}
    seen = [[gpu.index for gpu in gpus(nvml.read(float(t), **facts))] for t in range(3)]
    assert seen == [[0, 1, 2, 3], [2], [2]]


def test_until_a_process_with_torch_is_known_the_environment_of_the_run_counts(tmp_path: Path) -> None:
    nvml = FakeNvml(tmp_path, visible_devices="2")
    nvml.set(**FOUR)
    assert chosen(nvml, 1.0) == [2]
    assert chosen(nvml, 10.0, cuda_visible_devices="0") == [0]
    nvml.close()


def test_gpus_stay_in_use_when_the_run_has_ended_and_reports_no_more(nvml: FakeNvml) -> None:
    assert chosen(nvml, 1.0, cuda_visible_devices="0") == [0]
    assert chosen(nvml, 10.0) == [0]


def test_no_variable_chooses_nothing(nvml: FakeNvml) -> None:
    assert chosen(nvml, 1.0) == []
    assert chosen(nvml, 10.0, cuda_visible_devices=None) == []


def test_of_many_gpus_those_not_used_are_read_less_often(nvml: FakeNvml) -> None:
    seen = [[gpu.index for gpu in gpus(nvml.read(float(t), gpu_uuids=[uuid(2)]))] for t in range(7)]
    assert seen == [[0, 1, 2, 3], [2], [2], [2], [0, 1, 2, 3], [2], [2]]


def test_a_gpu_whose_process_is_of_the_run_is_used(nvml: FakeNvml) -> None:
    nvml.set(gpu1_pids=nvml.pid)
    seen = [[gpu.index for gpu in gpus(nvml.read(half / 2))] for half in range(9)]
    assert seen == [[0, 1, 2, 3], [], [1], [], [1], [], [1], [], [0, 1, 2, 3]]


def test_a_gpu_of_which_an_instance_is_used_is_used(nvml: FakeNvml) -> None:
    nvml.set({"3.mig": 1, "3.mig.0.uuid": "MIG-77", "3.mig.0.memory_total_mib": 9, "3.mig.0.memory_used_mib": 1})
    reported = "GPU-77"  # torch does not report that it is an instance
    seen = [[gpu.uuid for gpu in gpus(nvml.read(float(t), gpu_uuids=[reported]))] for t in range(2)]
    assert seen == [[*(uuid(index) for index in range(4)), "MIG-77"], [uuid(3), "MIG-77"]]


def test_a_process_with_many_gpus_gets_longer_windows(nvml: FakeNvml) -> None:
    reported = [uuid(index) for index in range(4)]
    assert [len(gpus(nvml.read(float(t), gpu_uuids=reported))) for t in range(5)] == [4, 0, 4, 0, 4]


def test_without_a_gpu_in_use_all_are_read(nvml: FakeNvml) -> None:
    assert [len(gpus(nvml.read(float(t)))) for t in range(4)] == [4, 0, 4, 0]
