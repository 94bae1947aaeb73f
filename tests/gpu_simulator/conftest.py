import pytest

from tests.gpu_simulator import hardware
from tuimon.sources.gpu_clock import offset


@pytest.fixture(params=["quick", "slow"])
def ends(request, monkeypatch):
    """GPUs at one end of what was recorded, or at both one after the other."""
    monkeypatch.setattr(hardware, "current", {"quick": hardware.QUICK, "slow": hardware.SLOW}[request.param])


@pytest.fixture
def seen(monkeypatch):
    """All estimated leads, each with its event."""
    found = []
    original = offset.lead_at

    def spy(event, offset):
        estimate = original(event, offset)
        found.append((event, estimate))
        return estimate

    monkeypatch.setattr(offset, "lead_at", spy)
    return found
