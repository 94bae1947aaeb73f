"""Steps of seconds and minutes, as large models have them: a verdict on the GPU after a few of them."""

import pytest

from tests.gpu_simulator.machine import MS, SECOND
from tests.gpu_simulator.sessions import UUID
from tests.gpu_simulator.training import PID, Training
from tests.session.records import header, process, session_of
from tuimon.diagnosis.evidence.evidence import evidence_of
from tuimon.diagnosis.judging import diagnose


def begun():
    """A training, and the session that follows it."""
    training = Training(drift_ppm=20)
    begun_s = training.cpu.now_ns / 1e9
    trains = process(PID, t=begun_s, torch="2.13.0+cu130", gpu_uuids=[UUID])
    return training, session_of(header(pid=PID, t=begun_s), trains)


def judged(turn, step_s, steps):
    """The session after so many steps, from the first update on."""
    training, session = begun()
    for record in training.run(turn, (steps + 1) * step_s + 3):
        session.add(record)
    return session


def starved(step_s):
    """The GPU waits for data for three quarters of the step."""

    def turn(run):
        run.fetch(0.75 * step_s * SECOND)
        run.passes((10, step_s * 5 * MS), (10, step_s * 15 * MS), (5, step_s * 10 * MS))
        run.stream.synchronise()

    return turn


def busy(step_s):
    """Launches run ahead of a GPU that always has work; the loop waits for the step before last."""

    def turn(run):
        run.cpu.wait_until(getattr(run, "before_ns", 0))
        run.before_ns = run.stream.end_ns
        run.fetch(1 * MS)
        run.passes((20, step_s * 10 * MS), (20, step_s * 35 * MS), (10, step_s * 10 * MS))

    return turn


@pytest.mark.parametrize("step_s", [1, 5, 30, 120])
def test_long_steps_give_a_picture_after_three_of_them(step_s):
    session = judged(starved(step_s), step_s, 3)
    gpu = evidence_of(session.over("recent").of(PID)).gpu.steps
    assert gpu is not None
    assert gpu.idle.low == pytest.approx(0.75, abs=0.02)
    assert gpu.step_ms == pytest.approx(1000 * step_s, rel=0.02)
    assert diagnose(session)[0].rule == "input_bound"


@pytest.mark.parametrize("step_s", [1, 5, 30, 120])
def test_long_steps_of_a_busy_gpu(step_s):
    session = judged(busy(step_s), step_s, 6)
    gpu = evidence_of(session.over("recent").of(PID)).gpu.steps
    assert gpu is not None
    assert gpu.idle.low == 0
    assert gpu.idle.high < 0.01


@pytest.mark.parametrize("step_s", [1, 5, 30, 120])
def test_the_picture_stays(step_s):
    """It was there in 29 % of the windows at 1.05 s a step, never above 3.75 s."""
    training, session = begun()
    turn = starved(step_s)
    for record in training.run(turn, 6 * step_s + 10):
        session.add(record)
    for _ in range(6):
        for record in training.run(turn, step_s):
            session.add(record)
            assert evidence_of(session.over("recent").of(PID)).gpu.steps is not None
