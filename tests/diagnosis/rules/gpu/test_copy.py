"""Copies to the GPU: the rule on simulated GPU trainings."""

import pytest

from tests.diagnosis.gpu import PID, TO_DEVICE, USUAL, findings
from tuimon.records import Loader, LoaderFacts, MeasuredBatches


def batches(mean_bytes, pinned=False, window_s=10.0):
    """A loader with a batch each step of 17 ms, in memory that is pinned or not."""
    fetches = round(window_s * 1e3 / 17)
    measured = MeasuredBatches(4, 4 * mean_bytes, 4 * 256, 4, 4 if pinned else 0)
    facts = LoaderFacts("Photos", "map", 4, batch_size=256, pin_memory=pinned)
    return Loader(
        t=1020.0, pid=PID, window_s=window_s, number=0, role="train", fetches=fetches, facts=facts, batches=measured
    )


def copied(*more, **figures):
    found = findings("transfer", *USUAL[:2], ([TO_DEVICE], 400), util=0.6, cpu=0.99, more=more, **figures)
    return found["transfer_bound"]


LINK = {"pcie_generation": 5, "pcie_width": 16}


def test_bytes_and_link_tell_what_pinned_memory_gains():
    """63 MB in 6.6 ms; over PCIe 5 x16 they take 1.25 ms."""
    found = copied(batches(63_000_000), **LINK)
    assert "at 9.5 GB/s" in found.headline
    assert found.evidence["copy_bytes_per_step"] == pytest.approx(63e6, rel=0.02)
    ahead, alone, *_ = found.fixes
    assert "pin_memory=True in the DataLoader and non_blocking=True" in ahead.action
    share = found.evidence["copy_ms_per_step"] / 16.96
    assert share < found.share_of_step < 0.6  # forward is a third of backward at least
    assert ahead.gain.low == pytest.approx(1 / (1 - share), rel=0.001)
    left = 63e6 / 50.4e9 * 1e3 / 16.96
    assert alone.gain.low == pytest.approx(1 / (1 - share + left), rel=0.02)
    assert alone.estimated_speedup < ahead.estimated_speedup


@pytest.mark.parametrize("unknown", [{"pcie_generation": None}, {"name": "NVIDIA GH200 480GB"}])
def test_without_a_link_half_of_the_copy_is_assumed_to_be_left(unknown):
    alone = copied(batches(63_000_000), **LINK | unknown).fixes[1]
    assert alone.gain.low < alone.gain.high


def test_of_pinned_memory_only_copying_ahead_gains():
    found = copied(batches(63_000_000, pinned=True), **LINK)
    assert ["pin" not in fix.action for fix in found.fixes] == [True]
