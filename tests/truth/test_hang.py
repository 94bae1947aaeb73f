"""The truth test judges as it should; the runs themselves are ``make truth KIND=hang``."""

from __future__ import annotations

import pytest

from tests.truth.hang import ALONE, AT, CASES, RANKS, Hang, Result, alone_cases, judged, odd_lines
from tests.truth.kind import head, line

BY_NAME = {case.fault: case._replace(ranks=4) for case in CASES}
LINE = min(odd_lines("file", RANKS))


def told(number, odd_ranks="3"):
    return {"evidence": {"odd_ranks": odd_ranks}, "where": [{"file": "/x/hang.py", "line": number}], "headline": "h"}


def test_each_fault_that_hangs_by_its_own_code_marks_its_line():
    assert all(
        len(odd_lines(name, RANKS)) == 1 for name in ("file", "worker_file", "skip", "stop", "lock", "thread", "owner")
    )
    assert not odd_lines("lost", RANKS)
    cases = alone_cases()
    assert all(len(odd_lines(case.fault, ALONE)) == case.hangs for case in cases)
    assert all(f"\ndef {case.fault}(" in ALONE.read_text() for case in cases if case.fault != "stuck_worker")
    assert sum(case.hangs for case in cases) >= 12 and len({case.fault for case in cases}) == len(cases) >= 28


@pytest.mark.parametrize(
    ("result", "why"),
    [
        (Result(told(LINE), 18.0, None, AT), "right"),
        (Result(told(LINE), 26.0, None, AT), "late"),
        (Result(told(1), 18.0, None, AT), "not its line"),
        (Result(told(LINE, "1"), 18.0, None, AT), "not the odd rank"),
        (Result(None, None, None, AT), "nothing was told"),
    ],
)
def test_a_hang_is_told_soon_with_rank_and_line(result, why):
    verdict = judged(BY_NAME["file"], result)
    assert why in verdict.why and verdict.is_right == (why == "right")
    assert len(line(Hang.columns, verdict).split()) >= len(head(Hang.columns).split()) - 3


@pytest.mark.parametrize(
    ("fault", "result", "is_right"),
    [
        ("evaluate", Result(None, None, 0, AT + 100), True),
        ("evaluate", Result(told(9), 30.0, None, AT), False),
        ("restart", Result(None, None, 0, AT), False),  # no steps after it
        ("die", Result(None, None, 1, AT), True),
        ("die", Result(None, None, None, AT), False),
    ],
)
def test_nothing_is_told_where_nothing_hangs(fault, result, is_right):
    assert judged(BY_NAME[fault], result).is_right == is_right
