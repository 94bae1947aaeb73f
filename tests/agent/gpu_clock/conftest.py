"""A loop beside a fake GPU."""

import pytest

from tests.agent.gpu_clock.fake_gpu import FakeGpu, FakeLoop
from tuimon.agent.gpu_clock import clock


@pytest.fixture
def loop():
    return FakeLoop(FakeGpu())


@pytest.fixture
def unlimited(monkeypatch):
    """Every step is timed."""
    monkeypatch.setattr(clock.TokenBucket, "is_paid", True)
