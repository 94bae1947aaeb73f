"""One scenario from start to judgement."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.scenarios.catalogue import Scenario
from tests.scenarios.judging import Judgement, judge
from tests.scenarios.running import remember, run, run_fixed


def judged_run(
    scenario: Scenario, seconds: float, folder: Path, *, gain: bool = True, options: Sequence[str] = ()
) -> Judgement:
    """Run it under tuimon, and its fixed form for a third of the time, and judge. Raises ScenarioFailed."""
    outcome = run(scenario, seconds, folder, options)
    fixed = run_fixed(scenario, seconds / 3) if gain and scenario.rule and scenario.fixable else None
    remember(scenario, folder, outcome, fixed)
    return judge(scenario, outcome, fixed)
