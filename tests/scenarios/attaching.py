"""Attaches tuimon to a script in the middle of its training."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.scenarios.catalogue import Scenario
from tests.scenarios.judging import fold
from tests.scenarios.running import ScenarioFailed, truth_of
from tests.scenarios.verdict import Verdict, verdict_of

#: What a script prints when its first step has ended, on a line of its own.
TRAINING = "training"
#: Seconds of training before tuimon comes.
BEFORE_S = 8.0
#: Seconds that tuimon may take to come.
_COMING_S = 3.0
_DEADLINE_S = 300


def attached_verdict(scenario: Scenario, seconds: float, folder: Path, options: Sequence[str] = ()) -> Verdict:
    """Start the script alone, attach after ``BEFORE_S`` of steps, and watch it to its end. Raises ScenarioFailed."""
    log, output = folder / f"{scenario.name}.attached.jsonl", folder / f"{scenario.name}.attached.out"
    command = scenario.command(sys.executable, BEFORE_S + _COMING_S + seconds)
    with output.open("w") as file:
        script = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT)
    try:
        _await_steps(script, output)
        time.sleep(BEFORE_S)
        _watch(script.pid, log, options)
        truth_of(script.wait(_DEADLINE_S), output.read_text())
    finally:
        script.kill()  # nothing to a script that has ended
        script.wait()
    return verdict_of(fold(log).findings)


def has_begun(output: str) -> bool:
    """Whether a script has told that its first step ended, be it behind a progress bar."""
    return any(line.endswith(TRAINING) for line in output.splitlines())


def _await_steps(script: subprocess.Popen[bytes], output: Path) -> None:
    while not has_begun(output.read_text()):
        if script.poll() is not None:
            truth_of(script.returncode, output.read_text())
            raise ScenarioFailed("it ended before its second step")
        time.sleep(0.1)


def _watch(pid: int, log: Path, options: Sequence[str]) -> None:
    command = [sys.executable, "-m", "tuimon", "attach", "--headless", "--force", *options, "--log", str(log), str(pid)]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_DEADLINE_S, check=False
    )
    if done.returncode:
        raise ScenarioFailed(f"attach: exit code {done.returncode}\n{done.stderr[-3000:]}")
