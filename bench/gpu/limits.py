"""How long each part may take; one that takes longer is ended, with all that it has started."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import psutil

ROOT = Path(__file__).resolve().parents[2]
#: The most that a part takes with ``--quick``.
QUICK_PART_S = 60.0
#: For the end: a part that is told to end, the table.
_SPARE_S = 5.0
_GRACE_S = 3.0
#: How often a part's processes are noted down.
LOOK_S = 1.0


class Limit(NamedTuple):
    """``quick_s``: its share of four minutes when every part is checked; ``full_s``: most of it without ``--quick``."""

    quick_s: float
    full_s: float


LIMITS = {
    "tests": Limit(48.0, 300.0),
    "nvml": Limit(8.0, 60.0),
    "syncs": Limit(12.0, 60.0),
    "clock": Limit(16.0, 120.0),
    "steps": Limit(50.0, 150.0),
    "orders": Limit(42.0, 180.0),
    "demos": Limit(16.0, 150.0),
    "programs": Limit(48.0, 900.0),
}


def limit_s(part: str, left: Sequence[str], left_s: float, *, quick: bool) -> float:
    """How long a part may take of the ``left_s`` that it and those after it (``left``) have."""
    share_s = LIMITS[part].quick_s / sum(LIMITS[other].quick_s for other in left)
    return max(0.0, min(QUICK_PART_S if quick else LIMITS[part].full_s, share_s * (left_s - _SPARE_S)))


def run(command: Sequence[str], limit_s: float) -> str | None:
    """Run a part's process; what became of it if it did not end well."""
    until_s = time.monotonic() + limit_s
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL)
    family: set[psutil.Process] = set()
    try:
        while not _has_ended(process, min(LOOK_S, until_s - time.monotonic())) and time.monotonic() < until_s:
            family.update(_descendants(process.pid))
        is_cut_off = process.poll() is None
    finally:
        _end(process, family)
    if is_cut_off:
        return f"cut off after {limit_s:.0f} s"
    if process.returncode < 0:
        return f"ended by {signal.Signals(-process.returncode).name}"
    return f"ended with exit code {process.returncode}" if process.returncode else None


def _has_ended(process: subprocess.Popen[bytes], within_s: float) -> bool:
    try:
        process.wait(max(0.0, within_s))
    except subprocess.TimeoutExpired:
        return False
    return True


def _end(process: subprocess.Popen[bytes], family: set[psutil.Process]) -> None:
    """End it and what it has started: those too whose parents have ended before them."""
    family |= set(_descendants(process.pid))
    process.terminate()
    if not _has_ended(process, _GRACE_S):
        family |= set(_descendants(process.pid))
        process.kill()
        process.wait()
    for descendant in family:
        with contextlib.suppress(psutil.Error):
            descendant.kill()


def _descendants(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.Error:
        return []
