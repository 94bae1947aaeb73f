"""Make screenshots of recorded runs, as they were while they trained: python -m docs.make_screens

Without LOG: the picture in README.md (docs/tuimon.svg) and all of docs/screens.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from tests.recorded_logs import ROOT, log_path
from tests.views.playback import Playback
from tuimon.cli.commands.demo import trained_until_s
from tuimon.diagnosis.judging import diagnose
from tuimon.sources.log.source import read_records
from tuimon.views.report.write import standalone_svg
from tuimon.views.tui.app import TuimonApp
from tuimon.views.tui.terminal_app import Capabilities

Theme = Literal["dark", "light"]


class Screen(NamedTuple):
    """A screen of ``docs/screens``: a recorded log, and the keys that lead there."""

    log: str
    keys: tuple[str, ...] = ()


PICTURE = Screen("h100_seed_dummy_loader_pyspy")
SCREENS = {
    "launch-bound": Screen("h100_cell_by_cell"),
    "findings": Screen("h100_seed_dummy_loader_pyspy", ("v",)),
    "hot-lines": Screen("h100_masked_loss_pyspy", ("h",)),
    "ranks": Screen("slow_rank", ("r",)),
    "healthy": Screen("healthy_trainer"),
}
SIZES = ((80, 24), (120, 40), (200, 60))


def make(screen: Screen, output: Path, size: tuple[int, int] = (120, 40), theme: Theme = "dark") -> None:
    """Write one screen to ``output``."""
    log = Path(screen.log)
    if not log.exists():
        log = log_path(screen.log)
    records = list(read_records(str(log)))
    until_s = trained_until_s(records)
    monitor = Playback([record for record in records if record.t <= until_s])
    monitor.findings = diagnose(monitor.session)
    monitor.is_live = False  # no verdict has to hold first
    screenshot(monitor, str(output), size=size, theme=theme, title="tuimon", keys=screen.keys)
    print(f"{output.relative_to(Path.cwd()) if output.is_relative_to(Path.cwd()) else output}")


def screenshot(
    monitor: Playback,
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


async def _export(monitor: Playback, size: tuple[int, int], theme: Theme, title: str, keys: Sequence[str]) -> str:
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


def main() -> int:
    """Make one screen, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log", nargs="?", metavar="LOG", help="a log, or the name of a recorded one")
    parser.add_argument("-o", "--output", type=Path, default=Path("screen.svg"), help="default: %(default)s")
    parser.add_argument("--size", type=_size, default=(120, 40), metavar="COLUMNSxROWS", help="default: 120x40")
    parser.add_argument("--theme", choices=["dark", "light"], default="dark")
    parser.add_argument("--keys", default="", help="keys to press first, such as v or h")
    args = parser.parse_args()
    if args.log:
        make(Screen(args.log, tuple(args.keys)), args.output.absolute(), args.size, args.theme)
        return 0
    docs = ROOT / "docs"
    make(PICTURE, docs / "tuimon.svg")
    (docs / "screens").mkdir(exist_ok=True)
    for name, screen in SCREENS.items():
        for columns, rows in SIZES:
            make(screen, docs / "screens" / f"{name}-{columns}x{rows}.svg", (columns, rows))
    return 0


def _size(text: str) -> tuple[int, int]:
    columns, rows = text.split("x")
    return int(columns), int(rows)


if __name__ == "__main__":
    sys.exit(main())
