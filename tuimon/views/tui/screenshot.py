"""Screenshots of the app, made by the app: for README and docs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from tuimon.views.tui.app import TuimonApp
from tuimon.views.tui.drawing.svg import standalone_svg
from tuimon.views.tui.terminal_app import Capabilities

if TYPE_CHECKING:
    from tuimon.monitor.monitor import Monitor

Theme = Literal["dark", "light"]


def screenshot(
    monitor: Monitor,
    path: str,
    *,
    size: tuple[int, int] = (120, 40),
    theme: Theme = "dark",
    title: str = "",
    keys: Sequence[str] = (),
) -> None:
    """Write what the app shows of ``monitor``, after these keys, to ``path`` as SVG; ``size`` in columns and rows."""
    svg = asyncio.run(_export(monitor, size, theme, title, keys))
    with open(path, "w", encoding="utf-8") as file:
        file.write(svg)


async def _export(monitor: Monitor, size: tuple[int, int], theme: Theme, title: str, keys: Sequence[str]) -> str:
    app = TuimonApp(monitor, refresh_s=3600, capabilities=Capabilities())
    async with app.run_test(size=size) as pilot:
        if theme == "light":
            app.action_theme()
        app.tick()
        await pilot.pause()
        for key in keys:
            await pilot.press(key)
            await pilot.pause()
        return standalone_svg(app.export_screenshot(title=title))
