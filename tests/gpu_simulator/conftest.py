import pytest

from tuimon.sources.gpu_clock import leads


@pytest.fixture
def seen(monkeypatch):
    """All estimated leads, each with its event."""
    found = []
    original = leads.lead_at

    def spy(event, offset):
        estimate = original(event, offset)
        found.append((event, estimate))
        return estimate

    monkeypatch.setattr(leads, "lead_at", spy)
    return found
