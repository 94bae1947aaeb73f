"""How right the shares are: programs that know what they use, against what the samples say."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from bench import inferred
from bench.known_ranges import RANGES
from bench.overhead import Say
from bench.table import Row, Spread
from tuimon.proc import procfs
from tuimon.records import Process, Stacks
from tuimon.session.session import Session
from tuimon.session.stacks.samples import Sample
from tuimon.sources.process_table import ProcessTable
from tuimon.sources.processes.followed import ThreadMeter
from tuimon.sources.stacks.source import StackSource

SPLIT = Path(__file__).with_name("known_split.py")
PHASES = Path(__file__).with_name("known_phases.py")
OFF_PROMISE_POINTS = 3.0
WRONG_PROMISE_PERCENT = 5.0


class Shares(NamedTuple):
    """Shares (0..1) as the program measured them, and as tuimon did; how many samples tuimon's rest on."""

    truth: dict[str, float]
    measured: dict[str, float]
    samples: int

    @property
    def off_points(self) -> float:
        """The largest difference, in points."""
        return max(abs(self.truth[name] - self.measured.get(name, 0.0)) for name in self.truth) * 100


def measure(seconds: float, say: Say) -> list[Row]:
    """Rows for shares of functions and threads, and for the join of samples to phases, marked and inferred."""
    say(f"accuracy of shares: {seconds:.0f} s")
    functions, threads = split(seconds)
    say(f"accuracy of the join to phases: {seconds:.0f} s")
    right, samples = joined(seconds)
    say(f"accuracy of the join to user ranges: {seconds / 2:.0f} s")
    in_range, range_samples = ranged(seconds / 2)
    rows = [
        _off(f"60/30/10 of three functions, {functions.samples} samples", functions),
        _off("70/30 of two threads", threads),
        Row(
            f"samples in the wrong phase, 2 ms each, {samples} samples",
            WRONG_PROMISE_PERCENT,
            Spread.of([100 * (1 - right)]),
            unit="%",
        ),
    ]
    rows.append(
        Row(
            f"samples in the wrong user range, 2 ms each, {range_samples} samples",
            WRONG_PROMISE_PERCENT,
            Spread.of([100 * (1 - in_range)]),
            unit="%",
        )
    )
    return rows + inferred.measure(seconds / 2, say)


def _off(what: str, shares: Shares) -> Row:
    return Row(f"off the truth: {what}", OFF_PROMISE_POINTS, Spread.of([shares.off_points]), unit="points")


def split(seconds: float, max_cpu_ratio: float = 0.03, samples: int = 0) -> tuple[Shares, Shares]:
    """Shares of the functions of one thread (by samples) and of two threads (by the kernel's counters).

    Watches for so many seconds, and until there are so many samples, as all of these do.
    """
    with _running(SPLIT) as process:
        meter = ThreadMeter(process.pid)
        with _at_rest(process) as before:
            meter.read()
        meter.end_window(1.0)
        began_s = time.monotonic()
        session, windows = _sampled(process.pid, seconds, max_cpu_ratio, samples)
        with _at_rest(process) as after:
            meter.read()
        rows, *_ = meter.end_window(time.monotonic() - began_s)
    used, passed = (
        {name: end[name] - begin.get(name, 0.0) for name in end} for begin, end in zip(before, after, strict=True)
    )
    counts: Counter[str] = Counter()
    for stack in (stack for window in windows for stack in window.stacks if stack.tid == process.pid):
        inside = {frame.function for frame in session.trie.node(stack.frames).frames}
        counts.update({name: stack.count for name in ("sixty", "thirty", "ten") if name in inside})
    cpu = sorted((row.cpu_ratio or 0.0 for row in rows), reverse=True)[:2]
    main_s = sum(used[name] for name in passed)
    return (
        Shares(_shares(passed), _shares(counts), counts.total()),
        Shares(_shares({"main": main_s, "beside": used["beside"]}), _shares({"main": cpu[0], "beside": cpu[1]}), 0),
    )


def joined(seconds: float, max_cpu_ratio: float = 0.03, samples: int = 0) -> tuple[float, int]:
    """Share of samples (of the last 30 s) that are put into the phase they were taken in, and of how many."""
    with _running(PHASES) as process:
        session, _ = _sampled(process.pid, seconds, max_cpu_ratio, samples)
    return _right(session, process.pid, lambda sample, truth: sample.phase == truth)


def ranged(seconds: float, max_cpu_ratio: float = 0.03, samples: int = 0) -> tuple[float, int]:
    """Share of samples (of the last 30 s) whose innermost user range is the one they were taken in, and of how many."""
    with _running(PHASES, {"PYTHONPATH": str(inferred.INJECT)}) as process:
        session = Session()
        for record in inferred.records_of(process.pid, seconds, max_cpu_ratio, samples):
            session.add(record)
    return _right(session, process.pid, lambda sample, truth: next(iter(sample.ranges[-1:]), None) == RANGES[truth])


def _right(session: Session, pid: int, is_right: Callable[[Sample, str], bool]) -> tuple[float, int]:
    right = total = 0
    for sample in session.over("recent").of(pid).samples_of(pid).rows:
        names = {frame.function for frame in sample.node.frames}
        truth = next((name.removeprefix("truth_") for name in names if name.startswith("truth_")), None)
        if truth is not None:
            total += sample.count
            right += sample.count * is_right(sample, truth)
    return right / max(total, 1), total


@contextlib.contextmanager
def _running(script: Path, environment: Mapping[str, str] | None = None) -> Iterator[subprocess.Popen[str]]:
    command, pipe = [sys.executable, str(script)], subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env={**os.environ, **(environment or {})})
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
    finally:
        process.kill()
        process.communicate()


@contextlib.contextmanager
def _at_rest(process: subprocess.Popen[str]) -> Iterator[list[dict[str, float]]]:
    """The truth of a process that uses nothing meanwhile."""
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    yield json.loads(process.stdout.readline())
    process.stdin.write("\n")
    process.stdin.flush()


def _sampled(pid: int, seconds: float, max_cpu_ratio: float, samples: int) -> tuple[Session, list[Stacks]]:
    """A session that has seen so many seconds of samples, and at least so many samples; and these samples."""
    windows: list[Stacks] = []
    table, session = ProcessTable(pid, None), Session()
    table.publish({pid: procfs.start_ticks(pid) or 0}, {pid: "trainer"})
    facts = {"ppid": 1, "start_unix_s": 0.0, "command": ["python"], "markers": False}
    session.add(Process(t=time.monotonic(), pid=pid, role="trainer", **facts))
    source = StackSource(table, max_cpu_ratio=max_cpu_ratio)
    until_s = time.monotonic() + seconds
    try:
        while time.monotonic() < until_s or sum(window.samples for window in windows) < samples:
            for record in source.read():
                session.add(record)
                if isinstance(record, Stacks):
                    windows.append(record)
            time.sleep(source.period_s)
    finally:
        source.close()
    return session, windows


def _shares(amounts: dict[str, float] | Counter[str]) -> dict[str, float]:
    total = sum(amounts.values())
    return {name: amount / total for name, amount in amounts.items()} if total else {}
