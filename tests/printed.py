"""What views print of a recorded run: its report as text and as JSON, and the screen at three sizes."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from textual.pilot import Pilot

from tests.recorded_logs import ROOT, log_path
from tests.views.tui.running_app import screen_lines
from tuimon.diagnosis.finding import Finding, VerdictChange
from tuimon.monitor.monitor import Monitor
from tuimon.monitor.opening import open_log
from tuimon.records import Exit
from tuimon.session.session import Session
from tuimon.sources.log.source import read_records
from tuimon.views.json_text import with_digits
from tuimon.views.report.report import report_of
from tuimon.views.report.write import text_report
from tuimon.views.tui.app import TuimonApp
from tuimon.views.tui.terminal_app import Capabilities

SIZES = ((80, 24), (120, 40), (200, 60))
#: The board, and the keys that open each sheet.
SHEETS = {"board": (), "findings": ("v",)}
#: Numbers of JSON are kept to so many significant digits: sums in another order differ beyond.
DIGITS = 4
_LOGS = (
    "slow_augmentation",
    "photos_without_workers",
    "demo_mnist_like",
    "checkpoint_every_step",
    "slow_rank",
    "two_greedy_trainings",
    "h100_cell_by_cell",
    "h100_masked_loss_pyspy",
    "h100_seed_dummy_loader_pyspy",
    "h100_check_in_process",
)
_PAIRS = ("hang_0.before", "straggler_rank_0.before")


def reports(session: Session, findings: Iterable[Finding], changes: Iterable[VerdictChange]) -> tuple[str, str]:
    """The report as text, and as indented JSON."""
    report = report_of(session, list(findings), "run.jsonl", list(changes))
    plain = msgspec.to_builtins(with_digits(msgspec.to_builtins(report), DIGITS))
    return text_report(report), msgspec.json.format(msgspec.json.encode(plain), indent=1).decode()


def screens() -> Iterator[tuple[str, str]]:
    """Name and cells of each screen: CPU, GPU and ranks, a hang, an attached run."""
    logs = [log_path(name) for name in _LOGS]
    logs += [next((ROOT / "tests" / "data" / "pairs").glob(f"{name}.*")) for name in _PAIRS]
    for log in logs:
        yield from asyncio.run(_screens(log))


async def _screens(log: Path) -> list[tuple[str, str]]:
    records = list(read_records(str(log)))
    ends, last_s = any(isinstance(record, Exit) for record in records), max(record.t for record in records)
    monitor = open_log(str(log))
    monitor.start()
    try:
        left = 10  # ticks for the last records of a run that is cut off: they are of one moment
        while not (monitor.ended if ends else left == 0):
            monitor.tick()
            left -= monitor.session.header is not None and monitor.session.now_s >= last_s
            await asyncio.sleep(0.01)
        monitor.diagnose_if_due(time.monotonic() + 3600)  # all of it, and no more while it is drawn
        return [(f"{log.name.partition('.')[0]} {name}", cells) async for name, cells in _drawn(monitor)]
    finally:
        monitor.stop()


async def _drawn(monitor: Monitor) -> AsyncIterator[tuple[str, str]]:
    for columns, rows in SIZES:
        app = TuimonApp(monitor, refresh_s=3600, capabilities=Capabilities())
        async with app.run_test(size=(columns, rows)) as pilot:
            for sheet, keys in SHEETS.items():
                app.tick()
                await pilot.press(*keys)
                yield f"{sheet} {columns}x{rows}", await _settled(app, pilot)


async def _settled(app: TuimonApp, pilot: Pilot[Any]) -> str:
    """The cells once nothing more is drawn: on a busy machine a sheet may come a moment after its key."""
    cells: list[str] = []
    while len(cells) < 3 or len(set(cells[-3:])) > 1:
        await pilot.pause()
        cells.append("\n".join(line.rstrip() for line in screen_lines(app)))
    return cells[-1]
