"""Shares of the step as gains."""

import pytest

from tests.session.records import header, process, steps
from tuimon.diagnosis.evidence.evidence import evidence_of
from tuimon.diagnosis.speedup import speedup_without
from tuimon.session.session import Session


def evidence(**phases):
    session = Session()
    windows = [steps(t, phases, first_index=10 * t, eval_count=5) for t in range(1, 9)]
    for record in (header(), process(), *windows):
        session.add(record)
    return evidence_of(session.over("recent"), 100)


def test_steps_of_half_the_length_make_the_training_twice_as_fast():
    trains = evidence(data=50, backward=50)
    assert speedup_without(trains, 0.5) == pytest.approx(2.0)
    assert speedup_without(trains, 0.0) is speedup_without(trains, 1.0) is None


def test_evaluation_takes_as_long_as_before():
    assert speedup_without(evidence(data=25, backward=25, eval=50), 0.5) == pytest.approx(4 / 3)
