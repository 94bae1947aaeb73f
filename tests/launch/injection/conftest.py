"""The folder in which the monitor of these tests looks for rings."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def rings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The monitor's folder for rings; the training's own is another."""
    monkeypatch.setenv("TUIMON_RING_DIR", str(tmp_path / "rings"))
    return tmp_path / "rings"
