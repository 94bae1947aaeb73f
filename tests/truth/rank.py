"""Gloo ranks on this machine, one of them late in a known way: is it named, its phase, its line?"""

import argparse
import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.truth.kind import Column, Kind, of, percent
from tests.truth.running import TUIMON, finished, recorded

TRAINING = Path(__file__).with_name("trainings") / "ranks.py"
#: The phase of each kind of lateness; None: the process as a whole is late, whatever its code does.
PHASES = {
    "data": "data",
    "remote": "data",
    "forward": "forward",
    "backward": "backward",
    "optimizer": "other",  # after optimizer.step
    "gc": "other",
    "checkpoint": "other",
    "checkpoint_barrier": "other",
    "stopped": None,
    "jitter": "forward",
}
_CAUSE = re.compile(r"# <- cause (.*)")


class Case(NamedTuple):
    """One training; ``late``: the rank that is, -1 for none."""

    kind: str
    ranks: int
    late: int = -1
    sync: str = "ddp"
    late_ms: float = 15.0
    width: int = 128

    @property
    def name(self) -> str:
        others = [self.sync] * (self.sync != "ddp") + [str(self.width)] * (self.width != 128)
        return "-".join((self.kind, str(self.ranks), *others))

    @property
    def in_turn(self) -> bool:
        """True if another rank is late in each step."""
        return self.kind == "jitter"

    @property
    def phase(self) -> str | None:
        """The one in which it is late."""
        return PHASES.get(self.kind)

    def command(self, seconds: float) -> list[str]:
        return [
            sys.executable, str(TRAINING), f"--ranks={self.ranks}", f"--late={self.late}", f"--kind={self.kind}",
            f"--sync={self.sync}", f"--late-ms={self.late_ms:g}", f"--width={self.width}", f"--seconds={seconds:g}",
        ]  # fmt: skip


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
        """True if the late rank was named, or that they are in turn; of a balanced training, if none was."""
        if self.case.in_turn or self.in_turn:
            return self.case.in_turn and self.in_turn
        return self.rank == (self.case.late if self.case.late >= 0 else None)

    @property
    def phase_is_right(self) -> bool | None:
        """None if the whole process is late."""
        return None if self.case.phase is None else self.is_right and self.phase == self.case.phase

    @property
    def line_is_right(self) -> bool | None:
        """None if no line is to blame."""
        lines = cause_lines(self.case.kind)
        if not lines or (self.case.late < 0 and not self.case.in_turn):
            return None
        return self.is_right and self.line in lines

    @property
    def marks(self) -> str:
        """Rank, phase and line, each right or not."""
        marks = (self.is_right, self.phase_is_right, self.line_is_right)
        return "".join("-" if mark is None else "y" if mark else "N" for mark in marks)


class Rank(Kind[Case, Judged]):
    """2 to 8 gloo ranks, one of them late in a known way: is it named, its phase, its line? (10 minutes)"""

    seconds = 10.0
    columns = (
        Column("training", 24, lambda row: row.case.name),
        Column("late", -4, lambda row: row.case.late if row.case.late >= 0 else None),
        Column("told", -4, lambda row: row.rank),
        Column("phase", 10, lambda row: row.phase),
        Column("line", -4, lambda row: row.line),
        Column("planted", -7, lambda row: percent(row.planted)),
        Column("told", -7, lambda row: percent(row.share)),
        Column("right", 5, lambda row: row.marks),
        Column("also told", 20, lambda row: " ".join(row.others)),
    )

    def cases(self, args: argparse.Namespace) -> Sequence[Case]:
        return CASES

    def judged(self, case: Case, args: argparse.Namespace) -> Iterator[Judged]:
        log = args.folder / f"{case.name}.jsonl"
        lines = recorded(log, case.command(args.seconds)).output.splitlines()
        truth = next((json.loads(line) for line in lines if line.startswith('{"planted_')), None)
        yield of_report(case, truth, json.loads(finished([*TUIMON, "report", str(log), "--format", "json"])))

    def totals(self, rows: Sequence[Judged]) -> list[str]:
        late = [row for row in rows if row.case.late >= 0 or row.case.in_turn]
        balanced = [row for row in rows if row not in late]
        return [
            f"late rank right {of(row.is_right for row in late)}, phase right {of(row.phase_is_right for row in late)},"
            f" line right {of(row.line_is_right for row in late)},"
            f" false tellings on balanced {of(not row.is_right for row in balanced)}"
        ]


def of_report(case: Case, truth: dict[str, float] | None, report: dict[str, Any]) -> Judged:
    """``truth``: what the late rank measured itself; ``report``: JSON, any shape of values."""
    planted = truth["planted_ms"] / truth["step_ms"] if truth is not None and truth["planted_ms"] else None
    by_rule = {finding["rule"]: finding for finding in report["findings"]}
    late = by_rule.pop("straggler_rank", None)
    others = tuple(by_rule)
    if late is None:
        return Judged(case, planted, None, None, None, None, others)
    line = late["where"][0]["line"] if late["where"] else None
    rank, phase = late["evidence"]["rank"], late["evidence"]["phase"]
    return Judged(case, planted, rank, phase, line, late["share_of_step"], others, late["cause"] == "in_turn")


def cause_lines(kind: str) -> set[int]:
    """The lines of the training that make a rank late in this way."""
    numbered = enumerate(TRAINING.read_text().splitlines(), 1)
    return {n for n, text in numbered if (found := _CAUSE.search(text)) is not None and kind in found[1].split()}


#: Eight ranks on two cores exchange gradients for longer: what is planted is more, so that it is worth a warning.
CASES = (
    Case("data", 4, 1),
    Case("remote", 4, 2),
    Case("forward", 2, 1),
    Case("forward", 8, 5, late_ms=40),
    Case("forward", 4, 0, sync="manual", late_ms=40),
    Case("backward", 4, 3),
    Case("optimizer", 4, 3),
    Case("gc", 4, 2),
    Case("checkpoint", 4, 0),
    Case("checkpoint_barrier", 4, 0),
    Case("stopped", 4, 2),
    Case("balanced", 2),
    Case("balanced", 4),
    Case("balanced", 8),
    Case("balanced", 4, sync="manual"),
    Case("balanced", 4, width=768),
    Case("jitter", 4),
)
