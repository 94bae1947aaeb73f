"""The stack sampler at scale: its CPU against its budget, what it covers, what it does to the step time.

Processes of equal rank are sampled for a while; before and after, their step time is taken without a sampler.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil

from bench import processes
from bench.overhead import Say
from bench.table import Row, Spread
from tuimon.proc import procfs
from tuimon.proc.processes import program_name
from tuimon.records import Cost, Process
from tuimon.session.session import Session
from tuimon.sources.process_table import ProcessTable
from tuimon.sources.stacks.source import StackSource

PROGRAM = str(Path(__file__).with_name("sampled.py"))
BUDGET_PERCENT = 3.0
#: the budget is to be kept within one point
CPU_PROMISE_PERCENT = BUDGET_PERCENT + 1.0
UNCOVERED_PROMISE_PERCENT = 5.0
SETTLE_S = 15.0
PLAIN_S = 5.0


class Case(NamedTuple):
    """So many processes of so many threads; ``covered``: whether the budget allows to sample them all the time."""

    name: str
    count: int
    threads: int
    covered: bool


CASES = (
    Case("1 process", 1, 2, True),
    Case("10 processes", 10, 2, True),
    Case("64 processes", 64, 2, False),
    Case("1 process of 200 threads", 1, 200, False),
)


class Seen(NamedTuple):
    """What a case showed: percent of a core, percent of wall time, ratios of step times, megabytes (10^6 bytes)."""

    cpu_percent: float
    uncovered_percent: float | None
    step_ratio: float
    noise_ratio: float
    rss_mb: float
    failed: int


def measure(window_s: float, say: Say) -> list[Row]:
    """Rows for all cases."""
    rows: list[Row] = []
    for case in CASES:
        say(f"sampler, {case.name}: {SETTLE_S + window_s + 2 * PLAIN_S:.0f} s")
        rows += _rows(case, _watch(case, window_s))
    return rows


def _watch(case: Case, window_s: float) -> Seen:
    pause_s = max(0.01, 0.001 * case.count)  # all together they use about one core
    with _started(case, pause_s) as sampled:
        first = sampled[0]
        _pass(PLAIN_S, None, Session())
        _step_us(first)
        _pass(PLAIN_S, None, Session())
        before_us = _step_us(first)
        table, session = _table(sampled), Session()
        source = StackSource(table, max_cpu_ratio=BUDGET_PERCENT / 100)
        for process in sampled:
            session.add(_trainer(process.pid))
        try:
            _pass(SETTLE_S, source, session)
            _step_us(first)
            began_s, cpu_s = time.monotonic(), table.sampler_cpu_s + _running_s()
            rss_mb = _pass(window_s, source, session)
            percent = (table.sampler_cpu_s + _running_s() - cpu_s) / (time.monotonic() - began_s) * 100
            with_us = _step_us(first)
        finally:
            source.close()
        _pass(PLAIN_S, None, Session())
        after_us = _step_us(first)
    picture = session.over("recent").sampling()
    plain_us = (before_us + after_us) / 2
    return Seen(
        cpu_percent=percent,
        uncovered_percent=100 * (1 - picture.coverage_ratio) if picture and picture.coverage_ratio else None,
        step_ratio=with_us / plain_us,
        noise_ratio=after_us / before_us,
        rss_mb=rss_mb,
        failed=picture.failed + picture.lost if picture else 0,
    )


@contextlib.contextmanager
def _started(case: Case, pause_s: float) -> Iterator[list[subprocess.Popen[str]]]:
    command = [sys.executable, PROGRAM, str(case.threads), str(pause_s)]
    started: list[subprocess.Popen[str]] = []
    try:
        for _ in range(case.count):
            started.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        for process in started:
            assert process.stdout is not None
            process.stdout.readline()
        yield started
    finally:
        for process in started:
            process.kill()
            process.communicate()


def _table(sampled: list[subprocess.Popen[str]]) -> ProcessTable:
    pids = [process.pid for process in sampled]
    table = ProcessTable(pids[0], None)
    table.publish({pid: procfs.start_ticks(pid) or 0 for pid in pids}, dict.fromkeys(pids, "trainer"))
    return table


def _trainer(pid: int) -> Process:
    facts = {"ppid": 1, "start_unix_s": 0.0, "command": ["python", PROGRAM], "markers": False}
    return Process(t=time.monotonic(), pid=pid, role="trainer", **facts)


def _pass(seconds: float, source: StackSource | None, session: Session) -> float:
    """Let time pass, reading the source as the monitor does; the most memory that its children held, in MB."""
    until_s, rss_mb = time.monotonic() + seconds, 0.0
    looked_s = 0.0
    while (now_s := time.monotonic()) < until_s:
        for record in source.read() if source else ():
            session.add(record)
        if source and now_s - looked_s > 1.0:
            looked_s = now_s
            rss_mb = max(rss_mb, sum(_rss_mb(pid) for pid in _pyspies()))
            session.add(Cost(t=now_s, pid=0, cpu_ratio=0.0, sampler_cpu_ratio=0.0, rss_bytes=0))
        time.sleep(min(source.period_s if source else 0.1, max(until_s - now_s, 0.0)))
    return rss_mb


def _pyspies() -> list[int]:
    return [child.pid for child in psutil.Process().children() if program_name(child.pid) == "py-spy"]


def _running_s() -> float:
    """CPU seconds of the py-spy children that have not ended."""
    used_s = 0.0
    for pid in _pyspies():
        with contextlib.suppress(psutil.Error):
            used_s += processes.usage(pid).own_s
    return used_s


def _rss_mb(pid: int) -> float:
    try:
        return processes.rss_bytes(pid) / 1e6
    except psutil.Error:
        return 0.0


def _step_us(process: subprocess.Popen[str]) -> float:
    """Median step time since it was last asked."""
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return float(process.stdout.readline())


def _rows(case: Case, seen: Seen) -> list[Row]:
    def one(value: float | None) -> Spread | None:
        return None if value is None else Spread.of([value])

    uncovered = UNCOVERED_PROMISE_PERCENT if case.covered else None
    return [
        Row(f"sampler, {case.name}: CPU", CPU_PROMISE_PERCENT, one(seen.cpu_percent), unit="% of a core"),
        Row("  time not sampled", uncovered, one(seen.uncovered_percent), unit="%"),
        Row("  step time of the first", None, one(seen.step_ratio), one(seen.noise_ratio), unit="x"),
        Row("  py-spy's memory, all", None, one(seen.rss_mb), unit="MB"),
        Row("  failed samples, lost windows", None, one(float(seen.failed))),
    ]
