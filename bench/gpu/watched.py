"""A training under ``tuimon run``: its log, and what the report says of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, TypeVar

from tuimon.errors import NotALog
from tuimon.records import Notice, Record
from tuimon.sources.log.source import read_records

ROOT = Path(__file__).resolve().parents[2]
TUIMON = (sys.executable, "-m", "tuimon")
HEADLESS = ("--headless", "--force", "--log")
#: What commands may take beside the seconds that they are told to.
SPARE_S = 60.0
R = TypeVar("R", bound=Record)


def run(command: list[str] | tuple[str, ...], timeout_s: float) -> subprocess.CompletedProcess[str]:
    """Run it to its end, or until it has taken too long; then its exit code is 124."""
    try:
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=timeout_s)
    except subprocess.TimeoutExpired as error:
        return subprocess.CompletedProcess(command, 124, "", f"no end within {error.timeout:.0f} s")


def watch(log: Path, seconds: float, *script: str) -> subprocess.CompletedProcess[str]:
    """Run a Python script, which trains for so long, under tuimon."""
    log.unlink(missing_ok=True)
    return run([*TUIMON, "run", *HEADLESS, str(log), "--", sys.executable, *script], seconds + SPARE_S)


def findings(log: Path) -> list[dict[str, Any]]:  # as in docs/schema
    """The findings of the report in JSON, the first one first; none where there is no report."""
    done = run([*TUIMON, "report", str(log), "--format", "json"], SPARE_S)
    return list(json.loads(done.stdout)["findings"]) if done.returncode == 0 else []


def reason(done: subprocess.CompletedProcess[str], log: Path | None = None) -> str:
    """Why something is missing: how the command ended, and the errors that it and its log name; no verdict is one."""
    errors = [line.strip() for line in done.stderr.splitlines() if line.strip() and not line.startswith("[tuimon")]
    notices = records(log, Notice) if log is not None else []
    warnings = [notice.message for notice in notices if notice.level == "warning"]
    named = "; ".join(text[:200] for text in [*errors[-2:], *warnings[-2:]])
    return f"exit code {done.returncode}: {named or 'it named no error'}"


def records(log: Path, kind: type[R]) -> list[R]:
    """Those of one kind; none where the run has not come as far as a log."""
    try:
        return [record for record in read_records(str(log)) if isinstance(record, kind)] if log.exists() else []
    except NotALog:
        return []
