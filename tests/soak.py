"""``python -m tests.soak [RUNS] [-- PYTEST OPTIONS]``: the suite again and again, every second time on busy cores.

A suite that fails only now and then fails here. A line per run, the tests that failed below it, the count at the end.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
#: Programs beside every second run: as many as the smallest machine that the tests are meant for has cores.
BUSY = 2
#: Ends by itself when whoever started it is gone.
_SPIN = "import os, sys\nwhile os.getppid() == int(sys.argv[1]): sum(range(100_000))"


class Outcome(NamedTuple):
    """What one run came to; ``problem`` where pytest itself did not get to its end."""

    passed: int
    skipped: int
    failed: tuple[str, ...]
    seconds: float
    problem: str = ""

    @property
    def is_green(self) -> bool:
        return not self.failed and not self.problem and self.passed > 0


@contextlib.contextmanager
def busy(processes: int) -> Iterator[None]:
    """So many processes that do nothing but compute, for as long as it lasts."""
    started = [subprocess.Popen([sys.executable, "-c", _SPIN, str(os.getpid())]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def outcome(report: Path, exit_code: int, seconds: float) -> Outcome:
    """Read a JUnit report; a test with several failures (in its body and in its teardown) counts once."""
    if not report.exists():
        return Outcome(0, 0, (), seconds, f"pytest ended with {exit_code} and no report")
    passed = skipped = 0
    failed: dict[str, None] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        kinds = {child.tag for child in case}
        if kinds & {"failure", "error"}:
            failed[f"{case.get('classname')}::{case.get('name')}"] = None
        elif "skipped" in kinds:
            skipped += 1
        else:
            passed += 1
    problem = "" if failed or exit_code == 0 else f"pytest ended with {exit_code}"
    return Outcome(passed, skipped, tuple(failed), seconds, problem)


def run(options: Sequence[str], log: Path, report: Path) -> Outcome:
    """The suite once, its output in ``log``."""
    report.unlink(missing_ok=True)
    begin = time.monotonic()
    with log.open("wb") as file:
        command = [sys.executable, "-m", "pytest", "-q", f"--junit-xml={report}", *options]
        done = subprocess.run(
            command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, check=False
        )
    return outcome(report, done.returncode, time.monotonic() - begin)


def line(number: int, busy_processes: int, load: float, result: Outcome) -> str:
    """One run in words: ``run 2 (2 busy): 2570 passed, 0 failed, 34 skipped in 452 s, load 3.9``."""
    counts = f"{result.passed} passed, {len(result.failed)} failed, {result.skipped} skipped"
    problem = f"; {result.problem}" if result.problem else ""
    return f"run {number} ({busy_processes} busy): {counts} in {result.seconds:.0f} s, load {load:.1f}{problem}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.soak", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="?", type=int, default=6, help="how often (default %(default)s)")
    parser.add_argument("options", nargs="*", metavar="OPTION", help="for pytest, after --")
    args = parser.parse_args(arguments)
    folder = Path(tempfile.mkdtemp(prefix="tuimon-soak-"))
    green = 0
    for number in range(1, args.runs + 1):
        log, beside = folder / f"run-{number}.log", BUSY * (number % 2 == 0)
        with busy(beside):
            result = run(args.options, log, folder / "report.xml")
        print(line(number, beside, os.getloadavg()[0], result), flush=True)
        for name in result.failed:
            print(f"  failed: {name}", flush=True)
        if result.is_green:
            green += 1
            log.unlink()
        else:
            print(f"  what pytest said: {log}", flush=True)
    print(f"{green} of {args.runs} runs green")
    return 0 if green == args.runs > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
