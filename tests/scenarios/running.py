"""Runs one scenario under tuimon and keeps what both of them report."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.scenarios.catalogue import Scenario

_TICKS_S = os.sysconf("SC_CLK_TCK")
_DEADLINE_S = 300


@dataclass(frozen=True)
class Truth:
    """What the script measured itself."""

    steps: int
    step_ms: float
    shares: dict[str, float]  # of the steps' time; "eval" beside them
    pieces: dict[str, float] = field(default_factory=dict)  # pieces of work within a phase, of the steps' time
    in_model: dict[str, float] = field(default_factory=dict)  # the same, of the forward pass
    in_evaluation: dict[str, float] = field(default_factory=dict)  # the same, of "eval"

    @property
    def wall_ms(self) -> float:
        """Of a step and its part of the evaluation."""
        return self.step_ms * (1 + self.shares.get("eval", 0.0))


@dataclass(frozen=True)
class Outcome:
    """A finished run: the truth, the log, and how many cores other programs took meanwhile."""

    truth: Truth
    log: Path
    others_cores: float


class ScenarioFailed(Exception):
    """The script itself, or tuimon, did not end well; the text is its output."""


def run(scenario: Scenario, seconds: float, folder: Path, options: Sequence[str] = ()) -> Outcome:
    """Run it under ``tuimon run --headless``, with these options."""
    log = folder / f"{scenario.name}.jsonl"
    command = [sys.executable, "-m", "tuimon", "run", "--headless", "--force", *options, "--log", str(log), "--"]
    busy_s, own_s, begin = _busy_s(), _children_s(), time.monotonic()
    truth = measure([*command, *scenario.command(sys.executable, seconds)])
    span_s = time.monotonic() - begin
    others_s = (_busy_s() - busy_s) - (_children_s() - own_s)
    return Outcome(truth, log, max(0.0, others_s / span_s))


def gained_by(as_it_is: list[str], changed: dict[str, list[str]]) -> dict[str, float]:
    """By name: times as fast a changed command's steps are as those of the command as it is. Raises ScenarioFailed.

    All without tuimon, which takes cores that a crowded training wants; the command as it is runs before the others and
    after them, so that what the machine does beside counts for both.
    """
    first, *walls_ms, last = (measure(command).wall_ms for command in (as_it_is, *changed.values(), as_it_is))
    return {name: (first + last) / 2 / wall_ms for name, wall_ms in zip(changed, walls_ms, strict=True)}


def remember(scenario: Scenario, folder: Path, outcome: Outcome, gained: dict[str, float]) -> None:
    """Keep beside the log what is not in it."""
    facts = {"truth": asdict(outcome.truth), "gained": gained, "others_cores": outcome.others_cores}
    (folder / f"{scenario.name}.truth.json").write_text(json.dumps(facts))


def recall(scenario: Scenario, folder: Path) -> tuple[Outcome, dict[str, float]] | None:
    """What ``remember`` kept; None without it."""
    path = folder / f"{scenario.name}.truth.json"
    if not path.exists():
        return None
    facts = json.loads(path.read_text())
    outcome = Outcome(Truth(**facts["truth"]), folder / f"{scenario.name}.jsonl", facts["others_cores"])
    return outcome, facts.get("gained") or {}


def measure(command: list[str]) -> Truth:
    """The truth that this command prints. Raises ScenarioFailed."""
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_DEADLINE_S, check=False
    )
    return truth_of(done.returncode, done.stdout, done.stderr)


def truth_of(exit_code: int, output: str, errors: str = "") -> Truth:
    """What a script that has ended printed. Raises ScenarioFailed."""
    reported = ['{"steps"' + line.partition('{"steps"')[2] for line in output.splitlines() if '{"steps"' in line]
    if exit_code or not reported:
        raise ScenarioFailed(f"exit code {exit_code}\n{output[-1000:]}\n{errors[-3000:]}")
    return Truth(**json.loads(reported[0]))


def _busy_s() -> float:
    """CPU seconds that all programs of the machine have used."""
    with open("/proc/stat") as stat:
        user, nice, system, _idle, _iowait, irq, softirq, *_ = map(int, stat.readline().split()[1:])
    return (user + nice + system + irq + softirq) / _TICKS_S


def _children_s() -> float:
    spent = os.times()
    return spent.children_user + spent.children_system + spent.user + spent.system
