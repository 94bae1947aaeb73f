"""Trainings that count their samples and tokens a second: are these right, within two percent?"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.truth.kind import Column, Kind, of, percent
from tests.truth.running import TUIMON, finished, kept, under_tuimon

TRAINING = str(Path(__file__).with_name("trainings") / "rates.py")
#: A rate that is off by no more is right.
TOLERANCE = 0.02


class Case(NamedTuple):
    """A training with these arguments, after these words to Python."""

    name: str
    arguments: tuple[str, ...] = ()
    python: tuple[str, ...] = ()


CASES = (
    Case("padded"),
    Case("accumulation", ("--accumulate=4",)),
    Case("two_ranks", (), ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")),
    Case("by_hand", ("--by-hand",)),
)


class Compared(NamedTuple):
    """A rate of one training: by its own timers, and as reported."""

    case: str
    rate: str
    truth: float
    told: float | None

    @property
    def is_right(self) -> bool:
        return self.told is not None and abs(self.told / self.truth - 1) <= TOLERANCE


class Rates(Kind[Case, Compared]):
    """Trainings that count their samples and tokens a second: are these right, within two percent? (3 minutes)"""

    seconds = 30.0

    columns = (
        Column("training", 14, lambda row: row.case),
        Column("rate", 18, lambda row: row.rate),
        Column("measured", -9, lambda row: f"{row.truth:.1f}"),
        Column("told", -9, lambda row: None if row.told is None else f"{row.told:.1f}"),
        Column("", 1, lambda row: None if row.is_right else "!"),
    )

    def cases(self, args: argparse.Namespace) -> Sequence[Case]:
        return CASES

    def judged(self, case: Case, args: argparse.Namespace) -> Iterator[Compared]:
        log = args.folder / f"{case.name}.jsonl"
        command = [sys.executable, *case.python, TRAINING, f"--seconds={args.seconds:g}", *case.arguments]
        words = [*under_tuimon(log), *command]
        truth = kept(args.folder / f"{case.name}.json", lambda: json.loads(finished(words).splitlines()[-1]))
        yield from compared(case.name, truth, json.loads(finished([*TUIMON, "report", str(log), "--format", "json"])))

    def totals(self, rows: Sequence[Compared]) -> list[str]:
        return [f"rates right within {percent(TOLERANCE)}: {of(row.is_right for row in rows)}"]

    def passed(self, rows: Sequence[Compared]) -> bool:
        return all(row.is_right for row in rows)


def compared(name: str, truth: dict[str, float], report: dict[str, Any]) -> Iterator[Compared]:
    """Rate by rate; one that is not told is wrong."""
    for rate, value in truth.items():
        yield Compared(name, rate, value, report.get("progress", {}).get(rate))
