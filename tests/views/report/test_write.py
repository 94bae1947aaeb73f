"""Files of the report at one moment."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from tuimon.session.session import Session
from tuimon.views.report.write import save


def test_a_screenshot_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    console = Console(record=True, width=40, file=io.StringIO())
    console.print("hello")
    svg = console.export_svg()
    assert "url(" in svg
    *_, path = save(Session(), [], str(tmp_path / "now"), svg)
    saved = Path(path).read_text()
    assert "hello" in saved
    assert "https://cdnjs" not in saved and 'url("http' not in saved
