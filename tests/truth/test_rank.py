"""The experiment itself: what it plants is marked, and what counts as right. Its trainings are no tests."""

import ast

from tests.truth.rank import CASES, PHASES, TRAINING, cause_lines


def test_every_kind_of_lateness_in_a_line_is_marked_there():
    ast.parse(TRAINING.read_text())
    assert all(cause_lines(kind) for kind, phase in PHASES.items() if phase is not None)
    assert {case.kind for case in CASES if case.late >= 0} | {"jitter"} == set(PHASES)
    assert len({case.name for case in CASES}) == len(CASES)
