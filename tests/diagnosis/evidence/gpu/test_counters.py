"""Why bounds of idle time are wide: what hides the rest is named, and what would show it."""

import pytest

from tests.diagnosis.gpu import gpu
from tuimon.diagnosis.evidence.gpu import why_wide
from tuimon.interval import Interval
from tuimon.records import GpuProcess
from tuimon.session.gpus import GpuRow

FAR_APART, CLOSE = Interval(0.1, 0.5), Interval(0.1, 0.25)
SAMPLED, UNKNOWN = 0.01, None


def row(run_pids=(), **figures):
    return GpuRow(gpu(1.0, **figures), 0.0, used_by_run=True, run_pids=dict.fromkeys(run_pids))


@pytest.mark.parametrize(
    ("gpus", "copying", "reasons"),
    [
        ([row()], UNKNOWN, ["does not count copies"]),
        ([row(c2c=True, pcie_rx_bytes_per_s=1e6)], UNKNOWN, ["does not count copies"]),
        ([row(pcie_rx_bytes_per_s=1e6)], UNKNOWN, ["launches hardly run ahead"]),
        ([row(processes=[GpuProcess(8), GpuProcess(9)])], SAMPLED, ["other processes"]),
        (
            [row({8, 9}, processes=[GpuProcess(8), GpuProcess(9)])],
            UNKNOWN,
            ["other processes", "does not count copies"],
        ),
        ([row()], SAMPLED, ["launches hardly run ahead"]),
        ([row(processes=[GpuProcess(0)])], SAMPLED, ["launches hardly run ahead"]),  # the training itself
    ],
)
def test_each_reason_is_named_with_what_measures_it(gpus, copying, reasons):
    why = why_wide(FAR_APART, FAR_APART, gpus, copying)
    words = ("other processes", "does not count copies", "launches hardly run ahead")
    assert [word for word in words if word in why] == reasons
    assert why.endswith("tuimon trace measures it")


def test_without_counters_that_is_the_reason():
    assert why_wide(FAR_APART, None, [], UNKNOWN).startswith("NVML's utilisation is not known;")


def test_close_bounds_need_none():
    assert why_wide(CLOSE, CLOSE, [row()], UNKNOWN) is None
