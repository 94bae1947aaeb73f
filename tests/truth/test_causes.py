"""The programs with causes of low GPU utilization: how many there are, their labels, and the simulated ones."""

from __future__ import annotations

from argparse import Namespace
from collections import Counter
from pathlib import Path

import pytest
from msgspec.structs import replace

from docs.make_accuracy import accuracy
from tests.truth import causes
from tests.truth.causes import CAUSES, Case, Causes, Told, all_cases
from tests.truth.programs import TESTS, labelled
from tuimon.diagnosis.rulebook import BY_NAME
from tuimon.session.goodput import PARTS

CASES = list(all_cases())
QUICK = [case for case in CASES if case.evidence in ("simulated GPU", "H100 log")]


def test_each_cause_has_three_programs_with_a_twin() -> None:
    with_twin = Counter(case.category for case in CASES if case.evidence != "H100 log")
    assert {category: with_twin[category] for category in CAUSES if with_twin[category] < 3} == {}


def test_each_program_of_the_folder_has_a_cause_that_the_study_counts() -> None:
    programs = labelled(TESTS / "scenarios" / "causes")
    assert {program.labels["category"] for program in programs.values()} <= CAUSES.keys()
    assert all(program.fixed for program in programs.values())
    assert {case.name for case in CASES} >= programs.keys()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_labels_are_names_that_a_report_can_have(case: Case) -> None:
    for rule, _, cause in (each.partition("/") for each in case.program.rules):
        if rule == "goodput":
            assert cause in PARTS
        elif rule not in ("no torch", "unseen"):
            assert cause in ("", *BY_NAME[rule].causes)


@pytest.mark.parametrize("case", QUICK, ids=lambda case: case.name)
def test_what_needs_a_gpu_is_told_by_name_and_not_without_its_cause(case: Case, tmp_path: Path) -> None:
    (row,) = Causes().judged(case, Namespace(folder=tmp_path, seconds=Causes.seconds))
    assert row.told and row.place_right in (True, None) and not row.false
    assert (row.false is None) == (case.evidence == "H100 log")


@pytest.mark.torch
def test_a_program_runs_with_its_cause_and_without_it(tmp_path: Path) -> None:
    case = next(case for case in CASES if case.name == "numpy_job")
    (row,) = Causes().judged(case, Namespace(folder=tmp_path, seconds=2.0))
    assert (row.told, row.false) == ("no torch", ())


def test_what_is_kept_of_a_program_is_replaced_and_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(causes, "RESULTS", tmp_path / "causes.jsonl")
    kind, (first, second) = Causes(), CASES[:2]
    rows = [Told(*case[:2], case.evidence, "hang", "", None, None) for case in (first, second)]
    for case, row in zip((second, first), reversed(rows), strict=True):
        assert not kind.is_recorded(case)
        kind.record(case, [row], Namespace())
    again = replace(rows[0], told="")
    kind.record(first, [again], Namespace())
    assert causes.results() == {first.name: again, second.name: rows[1]}


def test_what_is_wrong_is_in_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Told("uploads", "a", "CPU run", "side_work/network", "a.py:3", True, ())
    rows = [
        right,
        Told("uploads", "b", "CPU run", "", "", None, ()),
        Told("uploads", "c", "H100 log", "hang", "", False, None),
        Told("uploads", "d", "CPU run", "hang", "", None, ("hang",)),
    ]
    monkeypatch.setattr(causes, "results", lambda: {row.name: row for row in rows})
    table = accuracy("causes").splitlines()
    assert "| uploads | 2 % | 3 of 4 | `side_work/network`, `hang` | 1 of 2 | 2 of 3 | 3 CPU run, 1 H100 log |" in table
    assert table[-3:] == [
        "- `b` is not told by name",
        "- `c` names another line: none",
        "- `d` without its cause: hang",
    ]
