"""What the monitor itself uses, CPU and memory, while it watches demo/slow_loader.py: with the TUI and headless."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import psutil

from bench import processes
from bench.overhead import Say
from bench.table import Row, Spread
from bench.terminal import Terminal

SCRIPT = Path(__file__).resolve().parent.parent / "demo" / "slow_loader.py"
CPU_PROMISE_PERCENT = {"TUI": 8.0, "headless": 4.0}
RSS_PROMISE_MB = 80.0
SETTLE_S = 8.0


class Spent(NamedTuple):
    """CPU seconds so far: the monitor's own, and that of its children (py-spy) whether ended or alive."""

    own_s: float
    children_s: float


class Reading(NamedTuple):
    """What one window showed; percent of one core, megabytes (10^6 bytes)."""

    own_percent: float
    children_percent: float
    rss_mb: float
    children_rss_mb: float


def measure(window_s: float, say: Say) -> list[Row]:
    """Rows for both ways to show."""
    rows: list[Row] = []
    for mode in ("headless", "TUI"):
        say(f"what the monitor uses, {mode}: {window_s:.0f} s of demo/slow_loader.py --workers 2")
        with tempfile.TemporaryDirectory(prefix="tuimon-bench-") as folder:
            try:
                reading = watch_terminal(folder, window_s) if mode == "TUI" else watch_headless(folder, window_s)
            except psutil.Error as error:
                say(f"tuimon ended early: {error}")
                reading = None
        rows += _rows(mode, reading)
    return rows


def _command(folder: str, seconds: float, *options: str) -> list[str]:
    script = [sys.executable, str(SCRIPT), "--workers", "2", "--seconds", str(seconds)]
    log = str(Path(folder, "run.jsonl"))
    return [sys.executable, "-m", "tuimon", "run", *options, "--log", log, "--", *script]


def watch_headless(folder: str, window_s: float) -> Reading:
    """Measure ``tuimon run --headless``. Raises psutil.NoSuchProcess when it ends early."""
    process = subprocess.Popen(
        _command(folder, SETTLE_S + window_s + 5, "--headless"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        time.sleep(SETTLE_S)
        return _window(process.pid, window_s, time.sleep)
    finally:
        process.wait()


def watch_terminal(folder: str, window_s: float) -> Reading:
    """Measure ``tuimon run`` with its screen drawn. Raises psutil.NoSuchProcess when it ends early."""
    terminal = Terminal(_command(folder, SETTLE_S + window_s + 60), cwd=folder)
    try:
        terminal.drain_for(SETTLE_S)
        return _window(terminal.pid, window_s, terminal.drain_for)
    finally:
        terminal.close()


def _window(monitor: int, window_s: float, pass_time: object) -> Reading:
    assert callable(pass_time)
    before, start_s = spent(monitor), time.monotonic()
    rss = children_rss = 0
    while time.monotonic() - start_s < window_s:
        pass_time(0.5)
        rss = max(rss, processes.rss_bytes(monitor))
        children_rss = max(children_rss, sum(_rss_of(pid) for pid in watchers(monitor)))
    after, length_s = spent(monitor), time.monotonic() - start_s
    return Reading(
        own_percent=(after.own_s - before.own_s) / length_s * 100,
        children_percent=(after.children_s - before.children_s) / length_s * 100,
        rss_mb=rss / 1e6,
        children_rss_mb=children_rss / 1e6,
    )


def spent(monitor: int) -> Spent:
    """CPU time until now. The training has not ended, so what was reaped are py-spy children alone."""
    alive_s = 0.0
    for pid in watchers(monitor):
        with contextlib.suppress(psutil.Error):
            alive_s += sum(processes.usage(pid))
    own = processes.usage(monitor)
    return Spent(own.own_s, own.reaped_s + alive_s)


def watchers(monitor: int) -> list[int]:
    """Descendants of the monitor that are not the training or below it."""
    family = processes.descendants(monitor)
    trained = {pid for pid in family if str(SCRIPT) in processes.command_line(pid)}
    trained |= {below for pid in list(trained) for below in processes.descendants(pid)}
    return [pid for pid in family if pid not in trained]


def _rss_of(pid: int) -> int:
    try:
        return processes.rss_bytes(pid)
    except psutil.Error:
        return 0


def _rows(mode: str, reading: Reading | None) -> list[Row]:
    def one(value: float) -> Spread | None:
        return Spread.of([value])

    total = one(reading.own_percent + reading.children_percent) if reading else None
    return [
        Row(f"monitor's CPU, {mode}, all", CPU_PROMISE_PERCENT[mode], total, unit="% of a core"),
        Row("  of it py-spy", None, one(reading.children_percent) if reading else None, unit="% of a core"),
        Row(f"monitor's memory, {mode}", RSS_PROMISE_MB, one(reading.rss_mb) if reading else None, unit="MB"),
        Row("  py-spy's beside it", None, one(reading.children_rss_mb) if reading else None, unit="MB"),
    ]
