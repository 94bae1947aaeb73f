"""A loop beside a fake GPU."""

import pytest

from tests.agent.gpu_clock.fake_gpu import FakeGpu, FakeLoop
from tuimon.agent import gpu_clock


@pytest.fixture
def loop():
    return FakeLoop(FakeGpu())


@pytest.fixture
def unlimited(monkeypatch):
    """Every step is timed."""
    monkeypatch.setattr(gpu_clock.TokenBucket, "is_paid", True)
