"""The estimate of where counted steps spent their time."""

import pytest

from tuimon.records import BETWEEN
from tuimon.sources.loop.step import COUNTED, Step
from tuimon.sources.markers.steps_record import CountedPhases

MS = 1_000_000


def step(data=1, forward=1, other=0, *, timed=True, apart="other"):
    phases = {"data": data * MS, "forward": forward * MS, apart: other * MS}
    return Step(total_ns=sum(phases.values()), phases=phases, timed=timed)


def learned(*steps):
    phases = CountedPhases()
    phases.learn(steps)
    return phases


def in_ms(phases_ns):
    return {name: ns / MS for name, ns in phases_ns.items() if ns}


def test_what_is_beyond_the_usual_holds_no_step_that_is_longer():
    phases = learned(*[step()] * 8, step(data=11), step(other=2000))
    assert in_ms(phases.divide(100, 250 * MS)) == {"data": 150, "forward": 100}
    assert in_ms(phases.divide(100, 2210 * MS)) == {"data": 110, "forward": 100, "other": 2000}


@pytest.mark.parametrize("apart", ["other", BETWEEN])
def test_more_than_long_steps_explain_lies_outside_the_markers_pairs(apart):
    phases = learned(*[step(apart=apart)] * 19, step(data=11, apart=apart))
    assert in_ms(phases.divide(100, 400 * MS)) == {"data": 300, "forward": 100}
    assert in_ms(phases.divide(100, 2200 * MS)) == {"data": 300, "forward": 100, apart: 1800}


def test_what_long_steps_took_is_forgotten_in_time():
    phases = learned(*[step()] * 8, step(data=11))
    for _ in range(300):
        phases.learn([*[step()] * 8, step(forward=11)])
    found = in_ms(phases.divide(100, 300 * MS))
    assert found["forward"] == pytest.approx(200, rel=0.01)


def test_before_a_step_was_timed_nothing_is_known():
    assert CountedPhases().divide(10, 10 * MS) == {}
    phases = CountedPhases()
    phases.learn([])
    assert phases.divide(10, 10 * MS) == {}


def test_a_step_that_a_gap_has_a_part_of_keeps_what_was_marked_of_it():
    cut = Step(total_ns=7 * MS, phases={COUNTED: 4 * MS, "forward": 3 * MS}, timed=False)
    counted = Step(count=5, total_ns=10 * MS, phases={COUNTED: 10 * MS}, timed=False)
    assert in_ms(CountedPhases().add_up([step(), step(), counted, cut])) == {
        "data": 2 + 5,
        "forward": 2 + 3 + 5,
        "other": 4,
    }
