"""What the monitor itself uses, CPU and memory, with the TUI and headless, from one process to 64."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import psutil

from bench import processes
from bench.overhead import Say
from bench.table import Row, Spread
from bench.terminal import Terminal

BENCH = Path(__file__).resolve().parent
SCRIPT = BENCH.parent / "demo" / "slow_loader.py"
#: The monitor itself, without its py-spy children: those have a budget of their own, ``--max-cpu``.
CPU_PROMISE_PERCENT = {"TUI": 5.0, "headless": 2.0}
#: What sampling may use by default, and one point beside it: windows end late.
SAMPLING_PROMISE_PERCENT = {"TUI": 4.0, "headless": 3.0}
RSS_PROMISE_MB = {"TUI": 55.0, "headless": 40.0}
#: The first windows of the sampler are over by then, and those of many ranks are as long as they become.
SETTLE_S = 20.0
#: torch is imported within it even on a machine that is much in use.
UP_WITHIN_S = 60.0


class Case(NamedTuple):
    """A run to watch: its name, its command, how many processes it has once it is up."""

    name: str
    command: tuple[str, ...]
    processes: int = 1


def _ranks(count: int, threads: int) -> tuple[str, ...]:
    return (str(BENCH / "ranks.py"), str(count), str(threads))


LOADER = Case("slow_loader.py, 2 workers", (str(SCRIPT), "--workers", "2", "--seconds"), 3)
#: The same figures whatever is watched.
CASES = (
    Case("8 ranks", _ranks(8, 2), 8),
    Case("64 ranks", _ranks(64, 2), 64),
    Case("1 rank of 200 threads", _ranks(1, 200), 1),
)


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


def measure(window_s: float, say: Say, cases: tuple[Case, ...] = (LOADER, *CASES)) -> list[Row]:
    """Rows for each run and both ways to show."""
    rows: list[Row] = []
    for case in cases:
        for mode in ("headless", "TUI"):
            say(f"what the monitor uses, {mode}, {case.name}: {SETTLE_S + window_s:.0f} s from when it is up")
            with tempfile.TemporaryDirectory(prefix="tuimon-bench-") as folder:
                watch = watch_terminal if mode == "TUI" else watch_headless
                try:
                    reading = watch(folder, case, window_s)
                except psutil.Error as error:
                    say(f"tuimon ended early: {error}")
                    reading = None
            rows += _rows(mode, case, reading)
    return rows


def _command(folder: str, case: Case, seconds: float, *options: str) -> list[str]:
    script = [sys.executable, *case.command, str(seconds)]
    log = str(Path(folder, "run.jsonl"))
    return [sys.executable, "-m", "tuimon", "run", *options, "--log", log, "--", *script]


def watch_headless(folder: str, case: Case, window_s: float) -> Reading:
    """Measure ``tuimon run --headless``. Raises psutil.NoSuchProcess when it ends early."""
    process = subprocess.Popen(
        _command(folder, case, UP_WITHIN_S + SETTLE_S + window_s, "--headless"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _settle(process.pid, case, time.sleep)
        return _window(process.pid, case, window_s, time.sleep)
    finally:
        processes.send([process.pid, *processes.descendants(process.pid)], signal.SIGKILL)
        process.wait()


def watch_terminal(folder: str, case: Case, window_s: float) -> Reading:
    """Measure ``tuimon run`` with its screen drawn. Raises psutil.NoSuchProcess when it ends early."""
    terminal = Terminal(_command(folder, case, UP_WITHIN_S + SETTLE_S + window_s), cwd=folder)
    try:
        _settle(terminal.pid, case, terminal.drain_for)
        return _window(terminal.pid, case, window_s, terminal.drain_for)
    finally:
        terminal.close()


def _settle(monitor: int, case: Case, pass_time: Callable[[float], object]) -> None:
    """Wait until all processes of the run are there, and the first windows of the sampler are over."""
    until_s = time.monotonic() + UP_WITHIN_S
    while len(_training(monitor, case)) < case.processes and time.monotonic() < until_s:
        pass_time(0.5)
    pass_time(SETTLE_S)


def _window(monitor: int, case: Case, window_s: float, pass_time: Callable[[float], object]) -> Reading:
    before, start_s = spent(monitor, case), time.monotonic()
    rss = children_rss = 0
    while time.monotonic() - start_s < window_s:
        pass_time(0.5)
        rss = max(rss, processes.rss_bytes(monitor))
        children_rss = max(children_rss, sum(_rss_of(pid) for pid in watchers(monitor, case)))
    after, length_s = spent(monitor, case), time.monotonic() - start_s
    return Reading(
        own_percent=(after.own_s - before.own_s) / length_s * 100,
        children_percent=(after.children_s - before.children_s) / length_s * 100,
        rss_mb=rss / 1e6,
        children_rss_mb=children_rss / 1e6,
    )


def spent(monitor: int, case: Case) -> Spent:
    """CPU time until now. The training has not ended, so what was reaped are py-spy children alone."""
    alive_s = 0.0
    for pid in watchers(monitor, case):
        with contextlib.suppress(psutil.Error):
            alive_s += sum(processes.usage(pid))
    own = processes.usage(monitor)
    return Spent(own.own_s, own.reaped_s + alive_s)


def watchers(monitor: int, case: Case) -> list[int]:
    """Descendants of the monitor that are not the training or below it."""
    training = _training(monitor, case)
    return [pid for pid in processes.descendants(monitor) if pid not in training]


def _training(monitor: int, case: Case) -> set[int]:
    """The processes of the run: those with its script in their command line, and all below them."""
    scripts = [pid for pid in processes.descendants(monitor) if case.command[0] in processes.command_line(pid)]
    return {*scripts, *(below for pid in scripts for below in processes.descendants(pid))}


def _rss_of(pid: int) -> int:
    try:
        return processes.rss_bytes(pid)
    except psutil.Error:
        return 0


def _rows(mode: str, case: Case, reading: Reading | None) -> list[Row]:
    def one(value: float) -> Spread | None:
        return Spread.of([value])

    own = Row(
        f"monitor's CPU, {mode}, {case.name}",
        CPU_PROMISE_PERCENT[mode],
        one(reading.own_percent) if reading else None,
        unit="% of a core",
    )
    sampling = Row(
        "  py-spy's beside it",
        SAMPLING_PROMISE_PERCENT[mode],
        one(reading.children_percent) if reading else None,
        unit="% of a core",
    )
    memory = Row("  monitor's memory", RSS_PROMISE_MB[mode], one(reading.rss_mb) if reading else None, unit="MB")
    pyspy_memory = Row(
        "  py-spy's memory beside it", None, one(reading.children_rss_mb) if reading else None, unit="MB"
    )
    return [own, sampling, memory, pyspy_memory]
