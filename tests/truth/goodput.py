"""Trainings that time the parts of their wall time: is the goodput right, within two points?"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.truth.kind import Column, Kind, of, percent
from tests.truth.running import TUIMON, finished, kept, under_tuimon

TRAINING = Path(__file__).with_name("trainings") / "goodput.py"
#: A share that is off by no more is right.
TOLERANCE = 0.02


class Case(NamedTuple):
    """A training with these arguments."""

    name: str
    arguments: tuple[str, ...] = ()


CASES = (
    Case("checkpoints"),
    Case("after_evaluation", ("--save-after-evaluation",)),
    Case("without_loader", ("--no-loader",)),
    Case("installs", ("--install=8", "--download=6")),
    Case("does_not_end", ("--after=40", "--save-every=1000")),
)


class Compared(NamedTuple):
    """A part of one training: its share of the wall time by the program's timers, and as reported."""

    case: str
    part: str
    truth: float
    told: float

    @property
    def is_right(self) -> bool:
        return abs(self.truth - self.told) <= TOLERANCE


class Goodput(Kind[Case, Compared]):
    """Trainings that time the parts of their wall time: is the goodput right, within two points? (4 minutes)"""

    seconds = 40.0  # several evaluations without a DataLoader, which only samples show

    columns = (
        Column("training", 20, lambda row: row.case),
        Column("part", 12, lambda row: row.part),
        Column("measured", -8, lambda row: percent(row.truth)),
        Column("told", -8, lambda row: percent(row.told)),
        Column("", 1, lambda row: None if row.is_right else "!"),
    )

    def cases(self, args: argparse.Namespace) -> Sequence[Case]:
        return CASES

    def judged(self, case: Case, args: argparse.Namespace) -> Iterator[Compared]:
        log = args.folder / f"{case.name}.jsonl"
        words = [
            *under_tuimon(log), sys.executable, str(TRAINING), f"--seconds={args.seconds:g}", *case.arguments
        ]  # fmt: skip
        truth = kept(args.folder / f"{case.name}.json", lambda: json.loads(finished(words).splitlines()[-1]))
        report = json.loads(finished([*TUIMON, "report", str(log), "--format", "json"]))
        yield from compared(case.name, truth, report["goodput"])

    def totals(self, rows: Sequence[Compared]) -> list[str]:
        return [f"parts right within {percent(TOLERANCE)}: {of(row.is_right for row in rows)}"]

    def passed(self, rows: Sequence[Compared]) -> bool:
        return all(row.is_right for row in rows)


def compared(name: str, truth: dict[str, float], goodput: dict[str, Any]) -> Iterator[Compared]:
    """Part by part; the end of the interpreter, which no program can time, is part of ``after``."""
    truth["after"] += goodput["seconds"] - truth.pop("total")
    told = {part["name"]: part["share"] for part in goodput["parts"]}
    timed = {part: seconds / goodput["seconds"] for part, seconds in truth.items()}
    for part in sorted(timed | told):
        yield Compared(name, part, timed.get(part, 0.0), told.get(part, 0.0))
