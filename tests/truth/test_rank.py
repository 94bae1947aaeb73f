"""The experiment itself: what it plants is marked, and what counts as right. Its trainings are no tests."""

import ast

from tests.truth.kind import line
from tests.truth.rank import CASES, PHASES, TRAINING, Case, Rank, cause_lines, of_report


def totals(rows):
    (text,) = Rank().totals(rows)
    return text


def report(rank=None, phase="forward", at=None, cause=None):
    where = [{"file": "training.py", "line": at, "function": "compute"}] if at else []
    late = {
        "rule": "straggler_rank",
        "evidence": {"rank": rank, "phase": phase},
        "where": where,
        "share_of_step": 0.45,
        "cause": cause,
    }
    return {"findings": [late] if rank is not None else [{"rule": "comm_bound"}]}


def test_every_kind_of_lateness_in_a_line_is_marked_there():
    ast.parse(TRAINING.read_text())
    assert all(cause_lines(kind) for kind, phase in PHASES.items() if phase is not None)
    assert {case.kind for case in CASES if case.late >= 0} | {"jitter"} == set(PHASES)
    assert len({case.name for case in CASES}) == len(CASES)


def test_right_is_the_rank_its_phase_and_its_line():
    case, truth = Case("forward", 4, 2), {"planted_ms": 15.0, "step_ms": 30.0}
    at = min(cause_lines("forward"))
    right = of_report(case, truth, report(2, at=at))
    assert (right.is_right, right.phase_is_right, right.line_is_right, right.planted) == (True, True, True, 0.5)
    assert not of_report(case, truth, report(1, at=at)).phase_is_right
    assert not of_report(case, truth, report()).is_right
    elsewhere = of_report(case, truth, report(2, "data", 1))
    assert (elsewhere.is_right, elsewhere.phase_is_right, elsewhere.line_is_right) == (True, False, False)
    assert "50 %     45 %  yyy" in line(Rank.columns, right)


def test_a_telling_on_a_balanced_training_is_false():
    rows = [of_report(Case("balanced", 4), None, report(number)) for number in (None, 3)]
    rows += [of_report(Case("stopped", 4, 2), None, report(2))]
    assert [row.is_right for row in rows] == [True, False, True]
    assert totals(rows) == (
        "late rank right 1 of 1, phase right 0 of 0, line right 0 of 0, false tellings on balanced 1 of 2"
    )


def test_ranks_that_take_turns_are_right_where_that_is_planted():
    at = min(cause_lines("jitter"))
    turns = report(3, "forward", at, "in_turn")
    found = [
        of_report(Case(kind, 4, late), None, turns) for kind, late in (("jitter", -1), ("balanced", -1), ("data", 3))
    ]
    assert [row.is_right for row in found] == [True, False, False]
    assert (found[0].phase_is_right, found[0].line_is_right) == (True, True)
    assert totals(found[:2]).startswith("late rank right 1 of 1") and totals(found[:2]).endswith("balanced 1 of 1")
