"""The tests marked ``gpu``: how many fail."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from bench.gpu.rows import Keyed
from bench.overhead import Say
from bench.table import Row, Spread

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-m", "pytest", "-v", "-m", "gpu", "-p", "no:cacheprovider", "tests/gpu"]
_RESULT = re.compile(r"^tests/\S+::\S+ (PASSED|FAILED|ERROR|SKIPPED)")
#: Lines of a failure that are shown at the end.
_LAST_LINES = 40


def measure(say: Say) -> Iterator[Keyed]:
    """One row, with each test anew: those that have run so far."""
    say("the tests marked gpu")
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        COMMAND, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        yield from counted(process.stdout, say)
        code = process.wait()
    if code:
        say(f"pytest ended with exit code {code}")


def counted(lines: Iterable[str], say: Say) -> Iterator[Keyed]:
    """Failures so far, from what pytest prints."""
    results: list[str] = []
    last: list[str] = []
    for line in lines:
        last = [*last, line.rstrip()][-_LAST_LINES:]
        found = _RESULT.match(line)
        if found:
            say(line.rstrip())
            results.append(found[1])
            yield _row(results)
    if not results:
        yield Keyed("tests", Row("gpu tests that fail", 0, None, why_absent=" ".join(last[-2:]) or "it said nothing"))
    if {"FAILED", "ERROR"} & set(results):
        say("\n".join(last))


def _row(results: list[str]) -> Keyed:
    failed = sum(result in ("FAILED", "ERROR") for result in results)
    skipped = results.count("SKIPPED")
    what = f"gpu tests that fail, of {len(results)}" + (f", {skipped} of them skipped" if skipped else "")
    return Keyed("tests", Row(what, 0, Spread.of([failed])))
