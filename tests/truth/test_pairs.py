"""Each pair of code on the pages of rules: the rule fires before, and not after, and both compute the same."""

from __future__ import annotations

import pytest

from tests.truth.pair_results import GIVEN, result_fault
from tests.truth.pairs import LOGS, PROGRAMS, Judged, Pairs, Side, all_sides
from tuimon.diagnosis.explain.page import page_of
from tuimon.records import Exit, Steps

#: Fewer would be no training.
_LEAST_STEPS = 8


@pytest.mark.parametrize("side", all_sides(), ids=lambda side: side.name)
def test_the_rule_fires_before_and_not_after(side: Side) -> None:
    assert Pairs().is_recorded(side), f"no log of this code: python -m tests.truth pairs --record {side.name}"
    records = list(side.records())
    if (side.rule, side.when) != ("hang", "before"):  # which may stand before its first step
        assert sum(record.count for record in records if isinstance(record, Steps)) >= _LEAST_STEPS
    assert all(record.exit_code == 0 for record in records if isinstance(record, Exit))
    found = Judged(side, side.finding(records), side.log if side.is_recorded else LOGS)
    assert found.is_right
    if found.finding is not None and side.code.language == "python":
        lines = {line.strip() for line in _code_of(side).splitlines()}
        assert {place.source.strip() for place in found.finding.where if place.source} <= lines


@pytest.mark.parametrize("side", all_sides()[1::2], ids=lambda side: side.pair)
def test_the_code_after_computes_what_the_code_before_does(side: Side) -> None:
    assert result_fault(side) is None


def test_no_result_is_of_a_pair_that_is_gone() -> None:
    assert GIVEN.keys() == {side.pair for side in all_sides()}


def _code_of(side: Side) -> str:
    """All code that a place may name."""
    return side.program + (PROGRAMS / "course.py").read_text() if side.is_recorded else side.text


def test_no_log_is_of_code_that_is_gone() -> None:
    assert sorted(set(LOGS.glob("*.gz")) - {side.log for side in all_sides() if side.is_recorded}) == []


def test_each_cause_of_a_wait_for_data_has_its_pair() -> None:
    page = page_of("input_bound")
    assert {code.cause for code in page.code} == set(page.causes)
