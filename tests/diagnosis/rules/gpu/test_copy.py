"""Copies to the GPU: the rule on simulated GPU trainings."""

import pytest

from tests.diagnosis.gpu import PID, TO_DEVICE, USUAL, findings
from tuimon.records import LineCalls, Loader, LoaderFacts, MeasuredBatches, StepCalls


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


@pytest.mark.parametrize(("calls", "further"), [(2, 0), (64, 1)])
def test_copies_beyond_those_that_stand_at_the_line_are_better_joined(calls, further):
    """``x, y = x.to(device), y.to(device)``."""
    counted = StepCalls(t=1020.0, pid=PID, lines=[LineCalls("to", "/home/me/train.py", 41, calls)])
    found, plain = copied(batches(63_000_000), counted), copied(batches(63_000_000))
    assert found.fixes[: len(plain.fixes)] == plain.fixes
    assert [fix.action for fix in found.fixes[len(plain.fixes) :]] == [
        "join the tensors and copy them once a step"
    ] * further
    assert found.evidence == {**plain.evidence, **({"to_calls_per_step": 64} if further else {})}
