"""Trainings that measure themselves: are the goodput and the rates that tuimon reports right?"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from tests.truth.kind import Column, Kind, of, percent
from tests.truth.running import TUIMON, finished, kept, under_tuimon

_TRAININGS = Path(__file__).with_name("trainings")
#: A figure that is off by no more is right: a share of the wall time by itself, a rate in proportion.
TOLERANCE = 0.02


class Case(NamedTuple):
    """A training with these arguments, after these words to Python."""

    name: str
    arguments: tuple[str, ...] = ()
    python: tuple[str, ...] = ()


class Compared(NamedTuple):
    """A figure of one training: by its own timers, and as reported; None: it is not."""

    case: str
    figure: str
    truth: float
    told: float | None
    is_right: bool


def _columns(head: str, shown: Callable[[float], str | None]) -> tuple[Column, ...]:
    return (
        Column("training", 20, lambda row: row.case),
        Column(head, 18, lambda row: row.figure),
        Column("measured", -9, lambda row: shown(row.truth)),
        Column("told", -9, lambda row: None if row.told is None else shown(row.told)),
        Column("", 1, lambda row: None if row.is_right else "!"),
    )


class _Figures(Kind[Case, Compared]):
    """Runs its cases and compares what they print with the report."""

    training: ClassVar[str]
    known: ClassVar[tuple[Case, ...]]
    figures: ClassVar[str]

    def cases(self, args: argparse.Namespace) -> Sequence[Case]:
        return self.known

    def judged(self, case: Case, args: argparse.Namespace) -> Iterator[Compared]:
        log = args.folder / f"{case.name}.jsonl"
        training = [str(_TRAININGS / self.training), f"--seconds={args.seconds:g}", *case.arguments]
        words = [*under_tuimon(log), sys.executable, *case.python, *training]
        truth = kept(args.folder / f"{case.name}.json", lambda: json.loads(finished(words).splitlines()[-1]))
        report = json.loads(finished([*TUIMON, "report", str(log), "--format", "json"]))
        yield from self.compared(case.name, truth, report)

    def compared(self, name: str, truth: dict[str, float], report: dict[str, Any]) -> Iterator[Compared]:
        """Figure by figure."""
        raise NotImplementedError

    def totals(self, rows: Sequence[Compared]) -> list[str]:
        return [f"{self.figures} right within {percent(TOLERANCE)}: {of(row.is_right for row in rows)}"]

    def passed(self, rows: Sequence[Compared]) -> bool:
        return all(row.is_right for row in rows)


class Goodput(_Figures):
    """Trainings that time the parts of their wall time: is the goodput right, within two points? (4 minutes)"""

    seconds = 40.0  # several evaluations without a DataLoader, which only samples show
    training = "goodput.py"
    figures = "parts"
    columns = _columns("part", percent)
    known = (
        Case("checkpoints"),
        Case("after_evaluation", ("--save-after-evaluation",)),
        Case("without_loader", ("--no-loader",)),
        Case("installs", ("--install=8", "--download=6")),
        Case("does_not_end", ("--after=40", "--save-every=1000")),
    )

    def compared(self, name: str, truth: dict[str, float], report: dict[str, Any]) -> Iterator[Compared]:
        """Part by part; the end of the interpreter, which no program can time, is part of ``after``."""
        goodput = report["goodput"]
        truth["after"] += goodput["seconds"] - truth.pop("total")
        told = {part["name"]: part["share"] for part in goodput["parts"]}
        timed = {part: seconds / goodput["seconds"] for part, seconds in truth.items()}
        for part in sorted(timed | told):
            own, reported = timed.get(part, 0.0), told.get(part, 0.0)
            yield Compared(name, part, own, reported, abs(own - reported) <= TOLERANCE)


class Rates(_Figures):
    """Trainings that count their samples and tokens a second: are these right, within two percent? (3 minutes)"""

    seconds = 30.0
    training = "rates.py"
    figures = "rates"
    columns = _columns("rate", "{:.1f}".format)
    known = (
        Case("padded"),
        Case("accumulation", ("--accumulate=4",)),
        Case("two_ranks", (), ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")),
        Case("by_hand", ("--by-hand",)),
    )

    def compared(self, name: str, truth: dict[str, float], report: dict[str, Any]) -> Iterator[Compared]:
        """Rate by rate; one that is not told is wrong."""
        for rate, own in truth.items():
            told = report.get("progress", {}).get(rate)
            yield Compared(name, rate, own, told, told is not None and abs(told / own - 1) <= TOLERANCE)
