"""Copies to the GPU: the rule on simulated GPU trainings."""

import pytest

from tests.diagnosis.gpu import PID, TO_DEVICE, USUAL, findings
from tuimon.records import Loader, LoaderFacts, MeasuredBatches


def batches(mean_bytes, pinned=False, window_s=10.0):
    """A loader with a batch each step of 17 ms, in memory that is pinned or not."""
    fetches = round(window_s * 1e3 / 17)
    measured = MeasuredBatches(4, 4 * mean_bytes, 4 * 256, 4, 4 if pinned else 0)
    facts = LoaderFacts("Photos", "map", 4, batch_size=256, pin_memory=pinned)
    counted = {"role": "train", "fetches": fetches, "facts": facts, "batches": measured}
    return Loader(t=1020.0, pid=PID, window_s=window_s, number=0, **counted)


def copied(*more, **figures):
    found = findings("transfer", *USUAL[:2], ([TO_DEVICE], 400), util=0.6, cpu=0.99, more=more, **figures)
    return found["transfer_bound"]


def test_of_pinned_memory_half_of_the_copy_is_assumed_to_be_left_at_most():
    found = copied(batches(63_000_000))
    ahead, alone, *_ = found.fixes
    assert "pin_memory=True in the DataLoader and non_blocking=True" in ahead.action
    share = found.evidence["copy_ms_per_step"] / 16.96
    assert share < found.share_of_step < 0.6  # forward is a third of backward at least
    assert ahead.gain.low == pytest.approx(1 / (1 - share), rel=0.001)
    assert alone.gain.low == pytest.approx(1 / (1 - share / 2), rel=0.02)
    assert alone.gain.low < alone.gain.high


def test_the_link_is_named():
    assert copied().evidence["pcie_link"] is None
    assert copied(pcie_generation=4, pcie_width=8).evidence["pcie_link"] == "4.0 x8"


def test_of_pinned_memory_only_copying_ahead_gains():
    found = copied(batches(63_000_000, pinned=True))
    assert ["pin" not in fix.action for fix in found.fixes] == [True]
