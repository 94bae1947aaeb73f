"""Screenshots of the app, made by the app: for the README."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Literal

from tuimon.views.tui.app import TuimonApp
from tuimon.views.tui.terminal_app import Capabilities

if TYPE_CHECKING:
    from tuimon.monitor.monitor import Monitor


def screenshot(
    monitor: Monitor,
    path: str,
    *,
    size: tuple[int, int] = (120, 40),
    theme: Literal["dark", "light"] = "dark",
    title: str = "",
) -> None:
    """Write what the app shows of ``monitor`` now to ``path`` as SVG; ``size`` in columns and rows."""
    svg = asyncio.run(_export(monitor, size, theme, title))
    with open(path, "w", encoding="utf-8") as file:
        file.write(svg)


async def _export(monitor: Monitor, size: tuple[int, int], theme: str, title: str) -> str:
    app = TuimonApp(monitor, refresh_s=3600, capabilities=Capabilities())
    async with app.run_test(size=size) as pilot:
        if theme == "light":
            app.action_theme()
        app.tick()
        await pilot.pause()
        return app.picture(title)
