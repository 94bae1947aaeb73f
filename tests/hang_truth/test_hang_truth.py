"""The truth test judges as it should; the runs themselves are ``make hang-truth``."""

from __future__ import annotations

import pytest

from tests.hang_truth.cases import ALONE, ALONE_CASES, CASES, odd_lines
from tests.hang_truth.judging import HEAD, judged, row
from tests.hang_truth.running import AT, Result

BY_NAME = {case.fault: case for case in CASES}


def told(line, odd_ranks="3"):
    return {"evidence": {"odd_ranks": odd_ranks}, "where": [{"file": "/x/training.py", "line": line}], "headline": "h"}


def test_each_fault_that_hangs_by_its_own_code_marks_its_line():
    assert all(len(odd_lines(name)) == 1 for name in ("file", "worker_file", "skip", "stop", "lock", "thread", "owner"))
    assert not odd_lines("lost")
    assert all(len(odd_lines(case.fault, ALONE)) == case.hangs for case in ALONE_CASES)


@pytest.mark.parametrize(
    ("result", "why"),
    [
        (Result(told(min(odd_lines("file"))), 18.0, None, AT), "right"),
        (Result(told(min(odd_lines("file"))), 26.0, None, AT), "late"),
        (Result(told(1), 18.0, None, AT), "not its line"),
        (Result(told(min(odd_lines("file")), "1"), 18.0, None, AT), "not the odd rank"),
        (Result(None, None, None, AT), "nothing was told"),
    ],
)
def test_a_hang_is_told_soon_with_rank_and_line(result, why):
    verdict = judged(BY_NAME["file"], 4, result)
    assert why in verdict.why and verdict.is_right == (why == "right")
    assert len(row(BY_NAME["file"], 4, verdict).split()) >= len(HEAD.split()) - 3


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
    assert judged(BY_NAME[fault], 2, result).is_right == is_right
