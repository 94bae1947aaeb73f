"""The labelled trainings of ``tests/scenarios``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from tests.truth.judging import Judgement
from tests.truth.kind import read_rows, write_rows
from tests.truth.programs import TESTS, Program, Programs, labelled

#: The rows of docs/accuracy.md: a line of JSON for each program.
RESULTS = TESTS / "data" / "accuracy.jsonl"


class Scenarios(Programs):
    """Labelled trainings on a CPU: is the verdict right? (40 minutes; ``make accuracy`` keeps what comes of it.)"""

    def programs(self) -> dict[str, Program]:
        return labelled()

    def is_recorded(self, case: Program) -> bool:
        return case.name in results()

    def record(self, case: Program, rows: Sequence[Judgement], args: argparse.Namespace) -> None:
        write_rows(RESULTS, results() | {row.name: row for row in rows}, self.programs())


def results() -> dict[str, Judgement]:
    """The recorded rows, by program."""
    return read_rows(RESULTS, Judgement)
