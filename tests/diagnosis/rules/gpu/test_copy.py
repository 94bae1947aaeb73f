"""Copies to the GPU: the rule on simulated GPU trainings."""

import pytest

from tests.diagnosis.gpu import (
    TO_DEVICE,
    USUAL,
    findings,
)


def test_a_copy_that_all_wait_for():
    found = findings("transfer", *USUAL[:1], ([TO_DEVICE], 400), util=0.99, cpu=0.99)
    first = next(iter(found.values()))
    assert (first.rule, first.where[0].line) == ("transfer_bound", 41)
    assert first.share_of_step == pytest.approx(0.39, abs=0.03)  # truth: 9 of 17 ms; as much is certain
    assert 1 / 0.8 < first.speedup_at_least <= first.estimated_speedup <= first.fixes[0].high < 2
    assert "pin_memory" in first.action
    assert "stream of its own" in first.action
    assert not {"compute_bound", "sync_point", "spin_wait"} & found.keys()


def test_waiting_at_a_copy_for_the_gpu_to_come_to_it_is_no_copy():
    found = findings("gpu_bound", ([TO_DEVICE], 90), *USUAL[:1], util=0.99, cpu=0.98)
    assert "transfer_bound" not in found
    assert found["sync_point"].severity == "benign"


def test_few_samples_at_the_copy_are_none():
    assert "transfer_bound" not in findings("transfer", *USUAL, ([TO_DEVICE], 5))
