"""What the hooks alone cost the training, without the monitor: toggled within one process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from bench.overhead import HOOKS_PROMISES, Say, loop_text
from bench.table import Row, Spread

SCRIPT = Path(__file__).with_name("toggled.py")
LOOPS = ("0.3ms", "0.3ms-loader", "0.3ms-workers", "1.5ms", "5ms", "10ms", "10ms-loader")


def measure(pairs: int, block_s: float, say: Say) -> list[Row]:
    """One row per loop."""
    say(f"hooks on and off in one process, {pairs} blocks of {block_s:g} s each for {', '.join(LOOPS)}")
    root = str(SCRIPT.parent.parent)
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--pairs", str(pairs), "--block", str(block_s), *LOOPS],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": root},
    )
    if done.returncode:
        words = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        return [Row("hooks alone", HOOKS_PROMISES[LOOPS[0]], None, unit="x", why_absent=words[-1])]
    found = json.loads(done.stdout)
    return [_row(loop, found[loop]) for loop in LOOPS]


def _row(loop: str, found: dict[str, list[float]]) -> Row:
    return Row(
        what=f"hooks alone: {loop_text(loop, found['off_ns'])}",
        promise=HOOKS_PROMISES[loop],
        measured=Spread.of(found["hooked"]),
        noise=Spread.of(found["plain"]),
        unit="x",
    )
