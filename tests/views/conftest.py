"""Views are tested for one kind of terminal, whatever the tests run in."""

import pytest


@pytest.fixture(autouse=True)
def _terminal(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLORTERM", "truecolor")


@pytest.fixture
def page_of(call):
    """The page of these logs."""
    return lambda *logs: call("report", *logs, "--format", "html").out
