"""A model that computes on the CPU, on literal sessions."""

import pytest

from tests.diagnosis.cpu import HEALTHY, run
from tests.session.records import threads
from tuimon.records import Gpu, Loader, LoaderFacts, MeasuredBatches


def test_a_healthy_cpu_training_has_nothing_else_reported():
    (only,) = run(HEALTHY, threads(12, (100, "python", 1.0, "running"), cpu_ratio=1.9))
    assert (only.rule, only.severity) == ("compute_bound_cpu", "info")
    assert "1.9 of 2 cores" in only.headline


@pytest.mark.parametrize(
    ("cpu", "delay", "computes"), [(0.11, 0.1, False), (0.3, 0.6, True), (0.11, None, False), (None, None, True)]
)
def test_a_wait_is_no_computation(cpu, delay, computes):
    """Asleep in its forward pass, a training needs no GPU; waiting for a core, it does."""
    found = run(HEALTHY, threads(12, (100, "python", cpu, "waiting", delay), cpu_ratio=cpu))
    assert ("compute_bound_cpu" in {finding.rule for finding in found}) == computes


def test_nothing_is_reported_of_the_cpu_when_a_gpu_computes():
    gpu = Gpu(t=1, pid=0, index=0, uuid="GPU-a", name="A", pids=[100])
    assert run(HEALTHY, gpu) == []


def batches(padding, fetches):
    """A loader without workers whose batches of text hold this part of padding; so many were fetched in 12 s."""
    facts = LoaderFacts("Rows", "map", 0, batch_size=16)
    measured = MeasuredBatches(10, 10 * (1 << 16), 160, 10, None, 10_000, int(10_000 * padding))
    rows = {"facts": facts, "batches": measured, "window_s": 12.0, "fetches": fetches}
    return Loader(t=12.0, pid=100, number=0, role="train", **rows)


@pytest.mark.parametrize(
    ("padding", "fetches", "backwards", "what", "action"),
    [
        (0.1, 120, 10, None, "the loop is in order"),
        (0.86, 120, 10, "86 % of the positions in its batches are padding", "pad each batch to its own longest text"),
        (0.0, 120, 40, "backward runs 4 times for each batch", "add the losses of a batch"),
        (0.0, 480, 40, None, "the loop is in order"),  # gradients of four batches add up
    ],
)
def test_a_loop_with_work_that_it_need_not_do_is_not_in_order(padding, fetches, backwards, what, action):
    busy = threads(12, (100, "python", 1.0, "running"), cpu_ratio=1.9)
    (only,) = run(HEALTHY, busy, batches(padding, fetches), backwards=backwards)
    assert only.rule == "compute_bound_cpu"
    assert what is None or only.headline.endswith(f"; {what}")
    assert action in only.action
    assert ("in order" in " ".join(fix.action for fix in only.fixes)) == (what is None)
