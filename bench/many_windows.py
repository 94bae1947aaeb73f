"""What hundreds of windows of py-spy, of processes that come and go, leave behind in the monitor."""

from __future__ import annotations

import signal
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

SCRIPT = Path(__file__).resolve().parent / "ranks.py"
#: Six trainings of five seconds each at a time, and a budget that allows some three windows a second.
AT_ONCE, EACH_S, MAX_CPU_PERCENT = 6, 5, 40
#: From the first of these windows to the last.
FROM, TO = 50, 350
TIMEOUT_S = 300.0
#: Of the histories that fill in their first hours, and of nothing else.
GROWTH_PROMISE_MB = 2.0


class Reading(NamedTuple):
    """The monitor when so many windows had ended."""

    windows: int
    at_s: float
    cpu_s: float
    rss_mb: float


def measure(say: Say) -> list[Row]:
    """Two rows: what a window costs the monitor, all else included, and by how much its memory has grown."""
    say(f"{TO} windows of py-spy, at most {TIMEOUT_S:.0f} s")
    with tempfile.TemporaryDirectory(prefix="tuimon-bench-") as folder:
        log = Path(folder, "run.jsonl")
        monitor = subprocess.Popen(_command(log), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            first, last = _when(monitor.pid, log, FROM), _when(monitor.pid, log, TO)
        except psutil.Error as error:
            say(f"tuimon ended early: {error}")
            first = last = None
        finally:
            processes.send([monitor.pid, *processes.descendants(monitor.pid)], signal.SIGKILL)
            monitor.wait()
    return _rows(first, last)


def _command(log: Path) -> list[str]:
    script = [sys.executable, str(SCRIPT), str(AT_ONCE), "2", str(TIMEOUT_S), str(EACH_S)]
    options = ["--headless", "--max-cpu", str(MAX_CPU_PERCENT), "--log", str(log)]
    return [sys.executable, "-m", "tuimon", "run", *options, "--", *script]


def _when(monitor: int, log: Path, windows: int) -> Reading | None:
    """The monitor once so many windows have ended; None when that takes too long."""
    until_s = time.monotonic() + TIMEOUT_S
    while time.monotonic() < until_s:
        used = processes.usage(monitor)
        found = log.read_bytes().count(b'"type":"stacks"') if log.exists() else 0
        if found >= windows:
            return Reading(found, time.monotonic(), used.own_s, processes.rss_bytes(monitor) / 1e6)
        time.sleep(0.5)
    return None


def _rows(first: Reading | None, last: Reading | None) -> list[Row]:
    cpu = growth = None
    if first is not None and last is not None:
        cpu = Spread.of([(last.cpu_s - first.cpu_s) / (last.windows - first.windows) * 1e3])
        growth = Spread.of([last.rss_mb - first.rss_mb])
    name = f"windows {FROM} to {TO}, processes in rotation"
    return [
        Row(f"monitor's CPU a window, {name}", None, cpu, unit="ms"),
        Row("  growth of its memory", GROWTH_PROMISE_MB, growth, unit="MB"),
    ]
