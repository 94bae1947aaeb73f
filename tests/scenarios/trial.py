"""One scenario from start to judgement."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from tests.scenarios.catalogue import Scenario
from tests.scenarios.judging import Judgement, judge
from tests.scenarios.running import gained_by, remember, run

#: What a scenario gains in its fixed form.
FIXED = "fixed"


def judged_run(
    scenario: Scenario, seconds: float, folder: Path, *, gain: bool = True, options: Sequence[str] = ()
) -> Judgement:
    """Run it under tuimon, then in turns with its fixed form, each for a third of the time. Raises ScenarioFailed."""
    outcome = run(scenario, seconds, folder, options)
    gained: dict[str, float] = {}
    if gain and scenario.rule and scenario.fixable:
        as_it_is = scenario.command(sys.executable, seconds / 3)
        gained = gained_by(as_it_is, {FIXED: scenario.command(sys.executable, seconds / 3, fixed=True)})
    remember(scenario, folder, outcome, gained)
    return judge(scenario, outcome, gained.get(FIXED))
