import pytest

from tests.gpu_simulator import machine
from tuimon.sources.gpu_clock import offset


@pytest.fixture(params=["quick", "slow"])
def ends(request, monkeypatch):
    """GPUs at one end of what was recorded, or at both one after the other."""
    monkeypatch.setattr(machine, "current", {"quick": machine.QUICK, "slow": machine.SLOW}[request.param])


@pytest.fixture
def seen(monkeypatch):
    """The boundaries whose leads were estimated."""
    found = []
    take_estimated = offset.Chain.take_estimated

    def spy(chain):
        taken = take_estimated(chain)
        found.extend(taken)
        return taken

    monkeypatch.setattr(offset.Chain, "take_estimated", spy)
    return found
