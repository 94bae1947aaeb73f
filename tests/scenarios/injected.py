"""The verdicts of ``tuimon run`` and of ``tuimon attach --inject`` on the same scripts, side by side."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from tests.scenarios.attaching import attached_verdict
from tests.scenarios.catalogue import Scenario
from tests.scenarios.judging import judge
from tests.scenarios.running import ScenarioFailed, run
from tests.scenarios.verdict import Verdict, attached_text, attached_totals

_ROW = "{:<28}  {:<58}  {}"


def compare(scenarios: Sequence[Scenario], seconds: float, folder: Path) -> int:
    """Print the table; the exit code is 0 where all agree."""
    print(_ROW.format("scenario", "run", "attach --inject"), flush=True)
    rows: list[tuple[Verdict, Verdict | None]] = []
    for scenario in scenarios:
        try:
            rows.append(_one(scenario, seconds, folder))
        except ScenarioFailed as failed:
            print(f"{scenario.name}: {failed}", file=sys.stderr, flush=True)
            continue
        by_run, injected = rows[-1]
        print(_ROW.format(scenario.name, by_run.text, attached_text(by_run, injected)), flush=True)
    print(attached_totals(rows))
    return 0 if len(rows) == len(scenarios) and all(by_run == injected for by_run, injected in rows) else 1


def _one(scenario: Scenario, seconds: float, folder: Path) -> tuple[Verdict, Verdict]:
    by_run = judge(scenario, run(scenario, seconds, folder), None).verdict
    return by_run, attached_verdict(scenario, seconds, folder, ("--inject",))
