"""What the hooks alone cost the training, without the monitor: within one process.

They are toggled, and in slow steps clocked as well: there blocks with hooks and without differ by more than hooks take.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.overhead import HOOKS_PROMISES, Say, loop_text
from bench.table import Row, Spread

HERE = Path(__file__).parent
LOOPS = ("0.3ms", "0.3ms-loader", "0.3ms-workers", "1.5ms", "5ms", "10ms", "10ms-loader")


CLOCKED = ("5ms", "10ms", "10ms-loader")


def measure(pairs: int, block_s: float, say: Say) -> list[Row]:
    """One row per loop and way of measuring."""
    say(f"hooks on and off in one process, {pairs} blocks of {block_s:g} s each for {', '.join(LOOPS)}")
    rows = _rows("toggled.py", ("--pairs", str(pairs), "--block", str(block_s)), LOOPS, "hooks alone")
    say(f"the time in hooks, for {', '.join(CLOCKED)}")
    return rows + _rows("clocked.py", (), CLOCKED, "  the time in hooks")


def _rows(script: str, options: Sequence[str], loops: Sequence[str], what: str) -> list[Row]:
    done = subprocess.run(
        [sys.executable, str(HERE / script), *options, *loops],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(HERE.parent)},
    )
    if done.returncode:
        words = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        return [Row(what, HOOKS_PROMISES[loops[0]], None, unit="x", why_absent=words[-1])]
    found = json.loads(done.stdout)
    return [_row(f"{what}: {loop_text(loop, found[loop]['off_ns'])}", loop, found[loop]) for loop in loops]


def _row(what: str, loop: str, found: dict[str, list[float]]) -> Row:
    return Row(
        what=what,
        promise=HOOKS_PROMISES[loop],
        measured=Spread.of(found["hooked"]),
        noise=Spread.of(found["plain"]),
        unit="x",
    )
