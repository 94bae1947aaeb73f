"""The programs with causes of low GPU utilization: how many there are, their labels, and the simulated ones."""

from __future__ import annotations

from argparse import Namespace
from collections import Counter
from pathlib import Path

import pytest

from tests.truth.causes import CAUSES, Case, Causes, all_cases
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
