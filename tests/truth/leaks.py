"""Trainings that keep ever more memory, and the same without their leak: is it named, with its line, and how soon?"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import ClassVar

import msgspec

from tests.truth.judging import fold
from tests.truth.kind import Column, marked, of, read_rows, whole_seconds, write_rows
from tests.truth.programs import TESTS, Program, Programs, labelled, options
from tests.truth.running import watched
from tuimon.diagnosis.hysteresis import name_of

#: The rows of docs/accuracy.md: a line of JSON for each leak.
RESULTS = TESTS / "data" / "leaks.jsonl"


class Row(msgspec.Struct):
    """A leak, and its healthy twin."""

    name: str
    found: str  # the latest while it trained: "memory_pressure/growing (info)"
    right: bool
    place: str
    place_right: bool
    named_s: float | None  # from the first step
    false: tuple[str, ...]  # about memory, in the twin


def results() -> dict[str, Row]:
    """The recorded rows, by program."""
    return read_rows(RESULTS, Row)


class Leaks(Programs):
    """Planted leaks, and the same trainings without them: is each named, with its line? (16 minutes)"""

    seconds = 35.0
    columns: ClassVar = (
        Column("program", 20, lambda row: row.name),
        Column("found", 36, lambda row: marked(row.found, row.right)),
        Column("place", 26, lambda row: marked(row.place, row.place_right)),
        Column("after", 6, lambda row: whole_seconds(row.named_s)),
        Column("false, without the leak", 30, lambda row: ", ".join(row.false)),
    )

    def programs(self) -> dict[str, Program]:
        return labelled(TESTS / "scenarios" / "leaks")

    def is_recorded(self, case: Program) -> bool:
        return case.name in results()

    def record(self, case: Program, rows: Sequence[Row], args: argparse.Namespace) -> None:  # type: ignore[override]
        write_rows(RESULTS, results() | {row.name: row for row in rows}, self.programs())

    def judged(self, case: Program, args: argparse.Namespace) -> Iterator[Row]:
        leak = fold(watched(case.name, case.command(args.seconds), args.folder, options(args)).log)
        name = f"{case.name}_fixed"
        twin = fold(watched(name, case.command(args.seconds, fixed=True), args.folder, options(args)).log)
        told = [(s, each) for s, findings in leak.moments for each in findings if each.rule == "memory_pressure"]
        found = told[-1][1] if told else None
        places = [(place.file.rpartition("/")[2], place.line) for place in found.where] if found is not None else []
        false = [each for _, findings in twin.moments for each in findings if each.rule == "memory_pressure"]
        yield Row(
            case.name,
            f"{name_of(found)} ({found.severity})" if found is not None else "",
            found is not None and case.is_right(found),
            "{}:{}".format(*places[0]) if places else "",
            not case.blamed or (bool(places) and places[0] in case.lines(found)),
            told[0][0] if told else None,
            tuple(dict.fromkeys(str(name_of(each)) for each in false)),
        )

    def totals(self, rows: list[Row]) -> list[str]:  # type: ignore[override]  # its rows are no judgements
        return [
            f"named           {of(row.right for row in rows)}",
            f"with its line   {of(row.right and row.place_right for row in rows)}",
            f"false alarms    in {of(bool(row.false) for row in rows)} trainings without a leak",
        ]
