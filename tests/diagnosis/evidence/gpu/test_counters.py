"""Why bounds of idle time are wide: what hides the rest is named, and what would show it."""

import pytest

from tests.diagnosis.gpu import gpu
from tuimon.diagnosis.evidence.gpu import why_wide
from tuimon.interval import Interval
from tuimon.session.gpus import GpuRow

FAR_APART, CLOSE = Interval(0.1, 0.5), Interval(0.1, 0.25)
SAMPLED, UNKNOWN = 0.01, None
COUNTED = {"pcie_rx_bytes_per_s": 1e6, "pcie_tx_bytes_per_s": 1e6}


def row(**figures):
    return GpuRow(gpu(1.0, **figures), 0.0, used_by_run=True)


@pytest.mark.parametrize(
    ("gpus", "copying", "are_shared", "reasons"),
    [
        ([row()], UNKNOWN, False, ["does not count copies"]),
        ([row(c2c=True, **COUNTED)], UNKNOWN, False, ["does not count copies"]),
        ([row(pcie_tx_bytes_per_s=1e6)], UNKNOWN, False, ["does not count copies"]),
        ([row(pcie_rx_bytes_per_s=0.0, pcie_tx_bytes_per_s=0.0)], UNKNOWN, False, ["does not count copies"]),
        ([row(**COUNTED)], UNKNOWN, False, ["launches hardly run ahead"]),
        ([row()], SAMPLED, True, ["other processes"]),
        ([row()], UNKNOWN, True, ["other processes", "does not count copies"]),
        ([row()], SAMPLED, False, ["launches hardly run ahead"]),
    ],
)
def test_each_reason_is_named_with_what_measures_it(gpus, copying, are_shared, reasons):
    why = why_wide(FAR_APART, FAR_APART, gpus, copying, are_shared)
    words = ("other processes", "does not count copies", "launches hardly run ahead")
    assert [word for word in words if word in why] == reasons
    assert why.endswith("tuimon trace measures the idle time")


def test_without_counters_that_is_the_reason():
    assert why_wide(FAR_APART, None, [], UNKNOWN, False).startswith("NVML's utilisation is not known;")


def test_close_bounds_need_none():
    assert why_wide(CLOSE, CLOSE, [row()], UNKNOWN, False) is None
