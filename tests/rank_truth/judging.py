"""What tuimon reports of a training, against what was planted in it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from tests.rank_truth.cases import Case, cause_lines


class Failed(Exception):
    """The training, or tuimon, did not end well; the text is its output."""


class Judged(NamedTuple):
    """One case and what was reported; None: not reported."""

    case: Case
    planted: float | None  # share of the step that the others wait
    rank: int | None
    phase: str | None
    line: int | None
    share: float | None
    others: tuple[str, ...]  # the other findings
    in_turn: bool = False  # told that ranks are late in turn: then ``rank`` is who was last most often

    @property
    def is_right(self) -> bool:
        """Whether the late rank was named, or that they are in turn; of a balanced training, that none was."""
        if self.case.in_turn or self.in_turn:
            return self.case.in_turn and self.in_turn
        return self.rank == (self.case.late if self.case.late >= 0 else None)

    @property
    def phase_is_right(self) -> bool | None:
        """None where the whole process is late."""
        return None if self.case.phase is None else self.is_right and self.phase == self.case.phase

    @property
    def line_is_right(self) -> bool | None:
        """None where no line is to blame."""
        lines = cause_lines(self.case.kind)
        return (
            None
            if not lines or (self.case.late < 0 and not self.case.in_turn)
            else self.is_right and self.line in lines
        )


def judged(case: Case, seconds: float, folder: Path) -> Judged:
    """Run it under tuimon, unless its log is there already, and read the report. Raises Failed."""
    log, said = folder / f"{case.name}.jsonl", folder / f"{case.name}.out"
    if not said.exists():
        options = ["run", "--headless", "--force", "--log", str(log), "--"]
        said.write_text(_output([sys.executable, "-m", "tuimon", *options, sys.executable, *case.command(seconds)]))
    truth = next((json.loads(line) for line in said.read_text().splitlines() if line[:10] == '{"planted_'), None)
    report = json.loads(_output([sys.executable, "-m", "tuimon", "report", str(log), "--format", "json"]))
    return of_report(case, truth, report)


def of_report(case: Case, truth: dict[str, float] | None, report: dict[str, Any]) -> Judged:
    """``truth``: what the late rank measured itself; ``report``: JSON, any shape of values."""
    planted = truth["planted_ms"] / truth["step_ms"] if truth is not None and truth["planted_ms"] else None
    by_rule = {finding["rule"]: finding for finding in report["findings"]}
    late = by_rule.pop("straggler_rank", None)
    others = tuple(by_rule)
    if late is None:
        return Judged(case, planted, None, None, None, None, others)
    where = late["where"]
    evidence = late["evidence"]
    return Judged(
        case, planted, evidence["rank"], evidence["phase"], where[0]["line"] if where else None,
        late["share_of_step"], others, late["cause"] == "in_turn",
    )  # fmt: skip


def _output(command: list[str]) -> str:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        raise Failed(f"exit code {done.returncode}\n{done.stdout[-1000:]}\n{done.stderr[-2000:]}")
    return done.stdout
