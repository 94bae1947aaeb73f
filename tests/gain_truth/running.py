"""Runs a case under tuimon as it is, and without tuimon with changes; keeps what was measured beside the log."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

from tests.gain_truth.changes import AS_IT_IS, changed
from tests.random_loops.plan import Plan
from tests.random_loops.running import write
from tests.scenarios import running
from tests.scenarios.catalogue import Scenario
from tests.scenarios.running import Outcome, Truth

#: Scripts one after the other in one process: torch takes longer to import than they need.
_EACH = """
import os, runpy, sys, traceback
seconds, *scripts = sys.argv[1:]
for path in scripts:
    sys.path.insert(0, os.path.dirname(path))
    sys.argv = [path, seconds]
    sys.modules.pop("stopwatch", None)
    try:
        runpy.run_path(path, run_name="__main__")
    except Exception:
        traceback.print_exc()
        print("null", flush=True)
    sys.path.pop(0)
"""


def watched(plan: Plan, seconds: float, folder: Path) -> tuple[Path, Outcome]:
    """The script and its run under tuimon, kept in a folder or made now. Raises ScenarioFailed."""
    script, facts = write(plan, folder), folder / f"{plan.name}.watched.json"
    if facts.exists():
        kept = json.loads(facts.read_text())
        return script, Outcome(Truth(**kept["truth"]), folder / f"{plan.name}.jsonl", kept["others_cores"])
    outcome = running.run(Scenario(plan.name, script, None, None, frozenset(), 0, False), seconds, folder)
    facts.write_text(json.dumps({"truth": asdict(outcome.truth), "others_cores": outcome.others_cores}))
    return script, outcome


def measured(plan: Plan, changes: list[str], seconds: float, folder: Path) -> dict[str, float]:
    """By change: times as fast as it is; those kept in a folder, or measured now; not measured with 0 ``seconds``.

    The script as it is runs before and after those with changes, so that what the machine does beside counts for both.
    """
    facts = folder / f"{plan.name}.changed.json"
    kept: dict[str, float | None] = json.loads(facts.read_text()) if facts.exists() else {}
    missing = [change for change in dict.fromkeys(changes) if change not in kept]
    if missing and seconds:
        first, *times, last = _step_ms(plan, [AS_IT_IS, *missing, AS_IT_IS], seconds, folder)
        before = [ms for ms in (first, last) if ms is not None]
        for change, ms in zip(missing, times, strict=True):
            kept[change] = sum(before) / len(before) / ms if before and ms else None
        facts.write_text(json.dumps(kept))
    return {change: gain for change in changes if (gain := kept.get(change)) is not None}


def _step_ms(plan: Plan, changes: list[str], seconds: float, folder: Path) -> list[float | None]:
    """Of the script with each of these changes, one after the other; None where it cannot be changed, or fails."""
    scripts = []
    for number, change in enumerate(changes):
        other = changed(plan, change)
        scripts.append(str(write(other, folder / "changed" / str(number))) if other is not None else "")
    command = [sys.executable, "-c", _EACH, f"--seconds={seconds:g}", *filter(None, scripts)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    truths = iter([json.loads(line) for line in done.stdout.splitlines() if line == "null" or line[:8] == '{"steps"'])
    found = [next(truths, None) if script else None for script in scripts]
    return [Truth(**truth).wall_ms if truth is not None else None for truth in found]
