"""The folder in which the monitor of these tests looks for rings."""

import pytest


@pytest.fixture(autouse=True)
def rings(tmp_path, monkeypatch):
    """The monitor's folder for rings; the training's own is another."""
    monkeypatch.setenv("TUIMON_RING_DIR", str(tmp_path / "rings"))
    return tmp_path / "rings"
