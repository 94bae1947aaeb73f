"""The labelled trainings of ``tests/scenarios``: scripts for a CPU, and simulated GPU trainings."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

from tests.scenarios.streams import STREAMS, Stream, judged
from tests.truth import judging
from tests.truth.judging import Judgement
from tests.truth.kind import Kind, read_rows, write_rows
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


class Simulated(Kind[Stream, Judgement]):
    """Trainings on a simulated GPU, of which label and gain are exact. (3 s)"""

    columns = judging.COLUMNS

    def cases(self, args: argparse.Namespace) -> Sequence[Stream]:
        return STREAMS

    def judged(self, case: Stream, args: argparse.Namespace) -> Iterator[Judgement]:
        yield judged(case, args.folder, args.seconds)

    def totals(self, rows: Sequence[Judgement]) -> list[str]:
        return judging.totals(rows)

    def passed(self, rows: Sequence[Judgement]) -> bool:
        return all(row.right and not row.false_alarms for row in rows)
