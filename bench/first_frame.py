"""How long it takes from the start of ``tuimon run`` to its first drawn frame, on a pseudo-terminal."""

from __future__ import annotations

import sys
import tempfile

from bench.overhead import Say
from bench.table import Row, Spread
from bench.terminal import Terminal

PROMISE_S = 0.4
#: drawn in the first line of the app; the terminal's set-up alone does not contain it
TITLE = b"tuimon"


def measure(repeats: int, say: Say) -> list[Row]:
    """One row; the first start, which fills the file cache, is left out."""
    say(f"time to the first frame, {repeats} starts")
    times = [_start() for _ in range(repeats + 1)][1:]
    found = [seconds for seconds in times if seconds is not None]
    missing = f"no frame in {len(times) - len(found)} of {len(times)} starts" if len(found) < len(times) else None
    return [Row("first frame of tuimon run", PROMISE_S, Spread.of(found), unit="s", why_absent=missing)]


def _start() -> float | None:
    with tempfile.TemporaryDirectory(prefix="tuimon-bench-") as folder:
        target = [sys.executable, "-c", "import time; time.sleep(30)"]
        terminal = Terminal([sys.executable, "-m", "tuimon", "run", "--", *target], cwd=folder)
        try:
            return terminal.wait_for(TITLE, timeout_s=15)
        finally:
            terminal.close()
