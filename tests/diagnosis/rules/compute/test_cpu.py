"""A model that computes on the CPU, on literal sessions."""

import pytest

from tests.diagnosis.cpu import HEALTHY, run
from tests.session.records import threads
from tuimon.records import Gpu


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
