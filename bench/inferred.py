"""Phases inferred from stack samples alone, as attach without markers has them, against the same run's markers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import tuimon
from bench.overhead import Say
from bench.table import Row, Spread
from tuimon.proc import procfs
from tuimon.records import Frames, Process, Record, Stacks
from tuimon.session.session import Session
from tuimon.sources.markers.source import MarkerSource
from tuimon.sources.process_table import ProcessTable
from tuimon.sources.stacks.source import StackSource

SHAPES = Path(__file__).with_name("shapes.py")
NAMES = ("loader", "all_cores", "workers", "by_hand", "side_work", "evaluated", "evaluated_inside")
INJECT = Path(tuimon.__file__).parent / "agent" / "inject"
OFF_PROMISE_POINTS = 5.0
#: What the first steps may take.
WARM_UP_S = 2.0


class Inferred(NamedTuple):
    """Shares of phases (0..1) of one shape: by its own clock, by markers, by samples alone."""

    shape: str
    truth: dict[str, float]
    marked: dict[str, float]
    inferred: dict[str, float]
    samples: int

    @property
    def off_points(self) -> float:
        """The largest difference between samples and markers, in points."""
        return _off_points(self.inferred, self.marked)

    @property
    def off_truth_points(self) -> float:
        """The largest difference between samples and the shape's own clock, in points."""
        return _off_points(self.inferred, self.truth)


def measure(seconds: float, say: Say) -> list[Row]:
    """A row for the worst shape."""
    found = []
    for name in NAMES:
        say(f"accuracy of inferred phases: {name}, {seconds:.0f} s")
        found.append(infer(name, seconds))
        say(f"  {_shares_text(found[-1])}")
    worst = max(found, key=lambda one: one.off_points)
    what = f"off the markers: inferred phase shares, worst of {len(found)}: {worst.shape}, {worst.samples} samples"
    return [Row(what, OFF_PROMISE_POINTS, Spread.of([worst.off_points]), unit="points")]


class Watched(NamedTuple):
    """One shape's process, what samples and markers told of it, and its own shares of the time by phase."""

    pid: int
    records: list[Record]
    truth: dict[str, float]

    def session(self, *, markers: bool) -> Session:
        """The session of these records, without those of markers if ``markers`` is False."""
        session = Session()
        session.add(
            Process(t=0.0, pid=self.pid, ppid=1, start_unix_s=0.0, command=["python"], role="trainer", markers=markers)
        )
        for record in self.records:
            if markers or isinstance(record, (Frames, Stacks)):
                session.add(record)
        return session


def infer(shape: str, seconds: float) -> Inferred:
    """Watch one shape; its phases with the markers, and from the same samples alone."""
    watched = watch(shape, seconds)
    marked, alone = watched.session(markers=True), watched.session(markers=False)
    samples = alone.over("recent").of(watched.pid).samples.marked_counts().total()
    return Inferred(shape, watched.truth, _shares(marked, watched.pid), _shares(alone, watched.pid), samples)


def watch(shape: str, seconds: float, max_cpu_ratio: float = 0.03, samples: int = 0) -> Watched:
    """Watch one shape as ``records_of`` does, from when it has been in each of its phases."""
    with subprocess.Popen(
        [sys.executable, str(SHAPES), shape],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # workers that lose their parent complain
        text=True,
        env={**os.environ, "PYTHONPATH": str(INJECT)},
    ) as process:
        try:
            _line(process)
            time.sleep(WARM_UP_S)
            before = _ask(process)
            while not before.keys() >= _once_round(shape):  # on a busy machine
                time.sleep(0.1)
                before = _ask(process)
            records = records_of(process.pid, seconds, max_cpu_ratio, samples)
            after = _ask(process)
        finally:
            process.kill()
    spent_s = {name: seconds - before.get(name, 0.0) for name, seconds in after.items()}
    return Watched(process.pid, records, _shares_of_seconds(spent_s))


def _once_round(shape: str) -> set[str]:
    """Phases that it has been in once it has gone round."""
    return {"data", "forward", "backward", "optimizer"} | ({"eval"} if shape.startswith("evaluated") else set())


def records_of(pid: int, seconds: float, max_cpu_ratio: float, samples: int = 0) -> list[Record]:
    """What samples and markers tell of a process in so many seconds, and until there are so many samples."""
    table = ProcessTable(pid, None)
    table.publish({pid: procfs.start_ticks(pid) or 0}, {pid: "trainer"})
    sources = (StackSource(table, max_cpu_ratio=max_cpu_ratio), MarkerSource(table))
    records: list[Record] = []
    until_s = time.monotonic() + seconds
    try:
        while time.monotonic() < until_s or _samples(records) < samples:
            for source in sources:
                records += source.read()
            time.sleep(sources[0].period_s)
    finally:
        for source in sources:
            source.close()
    return records


def _samples(records: Iterable[Record]) -> int:
    return sum(record.samples for record in records if isinstance(record, Stacks))


def _shares(session: Session, pid: int) -> dict[str, float]:
    table = session.over("recent").of(pid).phases
    return {row.name: row.share for row in table.rows} if table else {}


def _shares_of_seconds(spent_s: dict[str, float]) -> dict[str, float]:
    """As the phase table has them: evaluation is no part of a step."""
    inside_s = sum(seconds for name, seconds in spent_s.items() if name != "eval")
    whole_s = inside_s + spent_s.get("eval", 0.0)
    return {name: seconds / (whole_s if name == "eval" else inside_s) for name, seconds in spent_s.items()}


def _off_points(some: dict[str, float], others: dict[str, float]) -> float:
    """A side that tells nothing is off by everything."""
    return max(abs(some.get(name, 0.0) - others.get(name, 0.0)) for name in some.keys() | others.keys()) * 100


def _shares_text(one: Inferred) -> str:
    def row(shares: dict[str, float]) -> str:
        return " ".join(f"{name} {100 * share:.1f}" for name, share in shares.items())

    return f"clock: {row(one.truth)}; markers: {row(one.marked)}; samples ({one.samples}): {row(one.inferred)}"


def _ask(process: subprocess.Popen[str]) -> dict[str, float]:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return dict(json.loads(_line(process)))


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()
