"""Warm-up on literal sessions."""

from tests.diagnosis.cpu import HEALTHY, STARVED
from tests.session.records import header, steps
from tuimon.diagnosis import diagnose
from tuimon.session.session import Session


def test_nothing_is_judged_during_warmup():
    session = Session()
    session.add(header())
    session.add(steps(1, {}, count=0))
    assert [f.rule for f in diagnose(session)] == ["warmup"]
    session.add(steps(2, {"data": 9000, "forward": 1}, count=1))
    assert [f.rule for f in diagnose(session)] == ["warmup"]
    for t in range(3, 20):
        session.add(steps(t, STARVED, first_index=10 * t))
    assert diagnose(session)[0].rule == "input_bound"


def test_a_slow_first_step_is_warmup_for_a_while():
    session = Session()
    session.add(header())
    session.add(steps(1, {"data": 9000, "forward": 1}, count=1))
    session.add(steps(2, HEALTHY, first_index=1))
    (only,) = diagnose(session)
    assert "times the median" in only.headline
