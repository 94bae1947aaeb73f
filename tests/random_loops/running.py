"""Writes a random loop into a folder and runs it, under tuimon and without a piece of its work."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from tests.random_loops.judging import Judged, accepted_parts, gains_of, judge
from tests.random_loops.plan import Plan
from tests.random_loops.script import module_name, module_of, script_of, slow_library
from tests.scenarios import running
from tests.scenarios.attaching import attached_verdict
from tests.scenarios.catalogue import Scenario

STOPWATCHES = [Path(__file__).with_name(name) for name in ("stopwatch.py", "loop_watch.py")]


def write(plan: Plan, folder: Path) -> Path:
    """The script and what it imports, in a folder of its own."""
    own = folder / plan.name
    own.mkdir(parents=True, exist_ok=True)
    for stopwatch in STOPWATCHES:
        shutil.copy(stopwatch, own)
    name, text = slow_library(plan.setup_s)
    (own / name).write_text(text)
    script = own / f"{plan.name}.py"
    script.write_text(script_of(plan))
    if parts := module_of(plan):
        (own / f"{module_name(plan)}.py").write_text(parts)
    return script


def run(
    plan: Plan,
    seconds: float,
    folder: Path,
    options: tuple[str, ...] = (),
    gain: bool = True,
    attach: tuple[str, ...] | None = None,
) -> Judged:
    """Run it under tuimon, attach to another run of it with the options ``attach``, run it without its largest pieces.

    Raises ScenarioFailed.
    """
    script = write(plan, folder)
    scenario = _scenario(plan, folder)
    outcome = running.run(scenario, seconds, folder, options)
    gained: dict[str, float] = {}
    if gain and accepted_parts(gains_of(outcome.truth)):
        as_it_is = [sys.executable, str(script), f"--seconds={seconds / 3:g}"]
        pieces = [piece.name for piece in plan.pieces if piece.name != "tiny"]
        gained = running.gained_by(as_it_is, {piece: [*as_it_is, f"--without={piece}"] for piece in pieces})
    running.remember(scenario, folder, outcome, gained)
    attached = attached_verdict(scenario, seconds, folder, (*options, *attach)) if attach is not None else None
    return judge(plan, script, outcome, gained, attached)


def again(plan: Plan, folder: Path) -> Judged | None:
    """Judge once more what was kept of a run. None where nothing was."""
    kept = running.recall(_scenario(plan, folder), folder)
    return judge(plan, _scenario(plan, folder).path, *kept) if kept is not None else None


def _scenario(plan: Plan, folder: Path) -> Scenario:
    return Scenario(plan.name, folder / plan.name / f"{plan.name}.py", None, None, frozenset(), 0, False)
