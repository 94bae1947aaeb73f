"""Why bounds of idle time are wide: what hides the rest is named, and what would show it."""

import pytest

from tests.diagnosis.gpu import gpu
from tuimon.diagnosis.evidence.gpu_steps import Copies, why_wide
from tuimon.diagnosis.interval import Interval
from tuimon.records import GpuProcess
from tuimon.session.gpus import GpuRow

FAR_APART, CLOSE = Interval(0.1, 0.5), Interval(0.1, 0.25)
SAMPLED, UNKNOWN = Copies(0.3, 0.01), Copies(0.3)


def row(**figures):
    return GpuRow(gpu(1.0, **figures), 0.0, True)


@pytest.mark.parametrize(
    ("gpus", "copies", "ranks", "reasons"),
    [
        ([row()], SAMPLED, 2, ["NCCL"]),
        ([row()], UNKNOWN, 1, ["PCIe"]),
        ([row(pcie_rx_bytes_per_s=1e9)], UNKNOWN, 8, ["NCCL"]),
        ([row()], UNKNOWN, 8, ["NCCL", "PCIe"]),
        ([row(processes=[GpuProcess(8), GpuProcess(9)])], SAMPLED, 1, ["other programs"]),
        ([row()], SAMPLED, 1, ["launches are hardly ahead"]),
        ([row(processes=[GpuProcess(0)])], SAMPLED, 1, ["launches are hardly ahead"]),  # the training itself
    ],
)
def test_each_reason_is_named_with_what_measures_it(gpus, copies, ranks, reasons):
    why = why_wide(FAR_APART, FAR_APART, gpus, copies, ranks)
    assert [word for word in ("NCCL", "other programs", "PCIe", "launches are hardly ahead") if word in why] == reasons
    assert why.endswith("tuimon trace measures it")


def test_without_counters_that_is_the_reason():
    assert why_wide(FAR_APART, None, [], UNKNOWN, 8).startswith("NVML's utilisation is not known;")


def test_close_bounds_need_none():
    assert why_wide(CLOSE, CLOSE, [row()], UNKNOWN, 8) is None
