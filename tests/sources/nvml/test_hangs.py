"""A driver that does not answer: the real pynvml over a fake NVML library that takes its time."""

from __future__ import annotations

from pathlib import Path

from tests.fake_nvml import FakeNvml, usual
from tests.fake_nvml.records import gpus, notices
from tests.waiting import until


def test_a_call_that_hangs_is_said_and_waited_for(tmp_path: Path) -> None:
    nvml = FakeNvml(tmp_path, call_timeout_s=0.2)
    nvml.set(devices=1, **usual(0))
    until(lambda: gpus(nvml.read(1.0)))
    nvml.set({"delay.nvmlDeviceGetTemperature": 3_600_000})
    assert nvml.read(2.0) == []
    assert nvml.read(3.0) == []  # not worth a word yet
    (notice,) = notices(nvml.read(8.0))
    assert (notice.level, notice.message) == ("warning", "the NVIDIA driver does not answer")
    assert nvml.read(9.0) == []  # reported once
    nvml.set({"delay.nvmlDeviceGetTemperature": None})
    records = until(lambda: nvml.read(10.0))
    assert [notice.level for notice in notices(records)] == ["ok"]
    assert [gpu.t for gpu in gpus(records)] == [2.0]  # that is when they were queried
    assert [gpu.t for gpu in until(lambda: gpus(nvml.read(11.0)))] == [11.0]
    nvml.close()


def test_closing_does_not_wait_for_a_call_that_hangs(tmp_path: Path) -> None:
    nvml = FakeNvml(tmp_path, call_timeout_s=0.2)
    nvml.set({"devices": 1, "delay.nvmlInitWithFlags": 3_600_000})
    assert nvml.read(1.0) == []
    nvml.close()  # fails where the process does not end


def test_a_driver_that_answers_slowly_is_asked_less_often(tmp_path: Path) -> None:
    nvml = FakeNvml(tmp_path, costs=True)
    nvml.set(devices=1, **usual(0))
    nvml.set({"delay.nvmlDeviceGetComputeRunningProcesses_v3": 100})  # called twice: for their number, for themselves
    nvml.read(1.0)
    nvml.count_calls()
    for second in range(2, 10):
        nvml.read(float(second))
    assert nvml.count_calls()["nvmlDeviceGetComputeRunningProcesses_v3"] == 0  # at most 2 % of the time
    nvml.close()


def test_a_driver_that_takes_long_for_every_window_gets_longer_windows(tmp_path: Path) -> None:
    nvml = FakeNvml(tmp_path, costs=True)
    nvml.set(devices=1, **usual(0))
    nvml.set({"delay.nvmlDeviceGetTemperature": 150})  # 5 % of three seconds
    seen = [len(gpus(nvml.read(float(second)))) for second in range(13)]
    assert sum(seen) in (4, 5)  # every three seconds; every four where the machine is slow, too
    nvml.close()
