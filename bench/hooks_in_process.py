"""What the hooks alone cost the training, without the monitor: toggled within one process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from bench.overhead import HOOKS_PROMISES, Say, loop_text
from bench.table import Row, Spread

HERE = Path(__file__).parent
LOOPS = ("0.3ms", "0.3ms-loader", "0.3ms-workers", "1.5ms", "5ms", "10ms", "10ms-loader")


def measure(seconds: float, say: Say) -> list[Row]:
    """One row per loop, each measured for so long."""
    say(f"hooks on and off in one process, {seconds:g} s for each of {', '.join(LOOPS)}")
    done = subprocess.run(
        [sys.executable, str(HERE / "toggled.py"), "--seconds", str(seconds), *LOOPS],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(HERE.parent)},
    )
    if done.returncode:
        words = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        return [Row("hooks alone", HOOKS_PROMISES[LOOPS[0]], None, unit="x", why_absent=words[-1])]
    found = json.loads(done.stdout)
    return [_row(f"hooks alone: {loop_text(loop, found[loop]['off_ns'])}", loop, found[loop]) for loop in LOOPS]


def _row(what: str, loop: str, found: dict[str, list[float]]) -> Row:
    return Row(
        what=what,
        promise=HOOKS_PROMISES[loop],
        measured=Spread.of(found["hooked"]),
        noise=Spread.of(found["plain"]),
        unit="x",
    )
