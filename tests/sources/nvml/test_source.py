"""GpuSource: the real pynvml over a fake NVML library, one that hangs, and none."""

from types import SimpleNamespace

import pytest

from tests.fake_nvml import FakeNvml, gpus, notices, usual
from tests.waiting import until
from tuimon.records import Gpu, GpuProcess
from tuimon.sources.gpus import source as module
from tuimon.sources.gpus.nvml import Nvml
from tuimon.sources.gpus.source import GpuSource
from tuimon.sources.process_table import ProcessTable

SCENARIO = {"devices": 1, **usual(0)}


def test_every_figure_of_two_gpus(nvml: FakeNvml) -> None:
    nvml.set(devices=2, **usual(1))
    nvml.set(gpu1_name="NVIDIA Other", gpu1_util=99, gpu1_event_reasons="0x24", gpu1_pids="7 5")
    first, second = gpus(nvml.read(10.0))
    assert first == Gpu(
        t=10.0,
        pid=0,
        index=0,
        uuid="GPU-00000000-fake",
        name="NVIDIA Fake 80GB",
        util_ratio=0.37,
        memory_used_bytes=20480 << 20,
        memory_total_bytes=81920 << 20,
        power_w=310.5,
        power_limit_w=700.0,
        temperature_c=61.0,
        sm_clock_mhz=1755,
        sm_clock_max_mhz=1980,
        throttle=[],  # idling holds the clocks down too, and is no throttling
        pids=[4242],
        processes=[GpuProcess(4242, 19000 << 20)],
        cost_ms=first.cost_ms,
    )
    assert first.cost_ms
    assert (second.index, second.name, second.util_ratio) == (1, "NVIDIA Other", 0.99)
    assert second.throttle == ["power cap", "thermal (software)"]
    assert second.pids == [5, 7]


def test_samples_in_one_record_are_bounded(nvml: FakeNvml) -> None:
    nvml.set(gpu0_samples="1000:1")
    nvml.read(1.0)
    nvml.set(gpu0_samples=" ".join(f"{2000 + i}:{i % 100}" for i in range(200)))
    (gpu,) = gpus(nvml.read(2.0))
    assert len(gpu.util_samples) == 10
    assert gpu.util_ratio == pytest.approx(0.495)
    assert gpu.util_samples[:2] == [pytest.approx(0.095, abs=0.01), pytest.approx(0.295, abs=0.01)]  # means of twenty


def test_a_lost_gpu_does_not_stop_the_others(nvml: FakeNvml) -> None:
    nvml.set(devices=2, **usual(1))
    assert len(gpus(nvml.read(1.0))) == 2
    nvml.set(gpu1_error=15)
    records = nvml.read(2.0)
    assert [gpu.index for gpu in gpus(records)] == [0]
    (notice,) = notices(records)
    assert notice.level == "warning"
    assert notice.message == "GPU 1 (NVIDIA Fake 80GB) is lost: it does not answer any more"
    assert notice.hint and "Xid" in notice.hint
    assert not notices(nvml.read(3.0))  # reported once
    nvml.set(gpu1_error=None)
    assert [gpu.index for gpu in gpus(nvml.read(4.0))] == [0]  # left alone for a while
    records = nvml.read(8.0)
    assert [gpu.index for gpu in gpus(records)] == [0, 1]
    assert [notice.level for notice in notices(records)] == ["ok"]


def test_a_library_that_forgets_its_gpus_is_opened_anew(nvml: FakeNvml) -> None:
    assert gpus(nvml.read(0.0))
    nvml.set(gpu0_error=999)
    (notice,) = notices(nvml.read(1.0))
    assert "GPU 0" in notice.message
    nvml.read(7.0)  # fails again, alone as it is: the library is closed
    nvml.set(gpu0_error=None)
    assert not gpus(nvml.read(20.0))
    records = nvml.read(40.0)
    assert [notice.level for notice in notices(records)] == ["ok"]
    assert gpus(records)


def test_versions_that_do_not_match(nvml: FakeNvml) -> None:
    nvml.set(error_nvmlInitWithFlags=18)
    (notice,) = notices(nvml.read(1.0))
    assert (notice.source, notice.level) == ("gpu", "warning")
    assert "different versions" in notice.message
    assert notice.hint and "restart" in notice.hint
    nvml.set(error_nvmlInitWithFlags=None)
    assert nvml.read(5.0) == []  # no hurry
    records = nvml.read(31.5)
    assert [notice.level for notice in notices(records)] == ["ok"]
    assert len(gpus(records)) == 1


def test_no_gpu(nvml: FakeNvml) -> None:
    nvml.set(devices=0)
    (notice,) = notices(nvml.read(1.0))
    assert (notice.level, notice.message) == ("info", "the NVIDIA driver shows no GPU")


@pytest.mark.parametrize("nvml", [{"installed": False}], indirect=True)
def test_no_library_then_one(nvml: FakeNvml) -> None:
    (notice,) = notices(nvml.read(1.0))
    assert notice.level == "info"
    assert notice.message == "no NVIDIA driver on this machine (libnvidia-ml.so.1 not found)"
    assert nvml.read(2.0) == []
    nvml.install()
    records = nvml.read(32.0)
    assert [notice.level for notice in notices(records)] == ["ok"]
    assert len(gpus(records)) == 1


@pytest.mark.parametrize("nvml", [{"call_timeout_s": 0.2}], indirect=True)
def test_a_call_that_hangs_is_said_and_waited_for(nvml: FakeNvml) -> None:
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


@pytest.mark.parametrize("nvml", [{"call_timeout_s": 0.2}], indirect=True)
def test_closing_does_not_wait_for_a_call_that_hangs(nvml: FakeNvml) -> None:
    """The fixture fails if the process does not end."""
    nvml.set({"delay.nvmlInitWithFlags": 3_600_000})
    assert nvml.read(1.0) == []


@pytest.mark.parametrize("nvml", [{"costs": True}], indirect=True)
def test_a_driver_that_answers_slowly_is_asked_less_often(nvml: FakeNvml) -> None:
    nvml.set({"delay.nvmlDeviceGetComputeRunningProcesses_v3": 100})  # called twice: for their number, for themselves
    nvml.read(1.0)
    nvml.count_calls()
    for second in range(2, 10):
        nvml.read(float(second))
    assert nvml.count_calls()["nvmlDeviceGetComputeRunningProcesses_v3"] == 0  # at most 2 % of the time


@pytest.mark.parametrize("nvml", [{"costs": True}], indirect=True)
def test_a_driver_that_takes_long_for_every_window_gets_longer_windows(nvml: FakeNvml) -> None:
    nvml.set({"delay.nvmlDeviceGetTemperature": 150})  # 5 % of three seconds
    seen = [len(gpus(nvml.read(float(second)))) for second in range(13)]
    assert sum(seen) in (4, 5)  # every three seconds; every four where the machine is slow, too


@pytest.mark.parametrize(("waited_s", "reports"), [(0.0, 1), (4.0, 0)], ids=["idle", "starved"])
def test_a_call_that_waits_for_a_core_does_not_hang(monkeypatch, waited_s: float, reports: int) -> None:
    """As on a machine of which tuimon gets a twentieth."""
    calls = SimpleNamespace(pending=True, waited_s=0.0, call=lambda work, timeout_s: None)
    monkeypatch.setattr(module, "CallWithTimeout", lambda name: calls)
    times = iter((2.0, 8.0))
    source = GpuSource(Nvml, ProcessTable(1, None), 1.0, clock=lambda: next(times))
    assert list(source.read()) == []
    calls.waited_s = waited_s
    assert len(notices(list(source.read()))) == reports
