"""The GIL on literal sessions."""

import pytest

from tests.session.records import frames, header, process, session_of, steps, threads
from tuimon.diagnosis import diagnose
from tuimon.records import StackCount, Stacks

LINES = frames(
    ("train.py", 12, "main", "loss.backward()", True),
    ("/opt/tuimon/agent/hooks.py", 7, "tuimon_backward"),
    ("stats.py", 16, "run", "total += n % 7", True),
    ("stats.py", 20, "run", "time.sleep(1)", True),
)


def found(main_cpu, other_cpu, other_line=2, main_delay=0.0, asleep=0):
    session = session_of(header(), process(), LINES)
    for t in range(1, 9):
        session.add(steps(t, {"forward": 40, "backward": 60}, first_index=10 * t))
    rows = ((100, "python", main_cpu, "running", main_delay), (101, "statistics", other_cpu, "running", 0.0))
    session.add(threads(8, *rows, cpu_ratio=main_cpu + other_cpu))
    stacks = [StackCount(100, "MainThread", [0, 1], 40), StackCount(101, "statistics", [other_line], 40)]
    if asleep:
        stacks.append(StackCount(101, "statistics", [3], asleep))
    session.add(Stacks(t=8, pid=100, window_s=2.0, rate_hz=20.0, samples=40, stacks=stacks))
    return {finding.rule: finding for finding in diagnose(session)}


def test_a_thread_that_computes_in_python_holds_up_the_training():
    finding = found(0.2, 0.8)["gil_contention"]
    assert (finding.severity, finding.where[0].line) == ("critical", 16)
    assert finding.share_of_step == pytest.approx(0.8)
    assert [fix[1:4] for fix in finding.fixes] == [
        pytest.approx((5, 1 / 0.3, 2 / 0.3)),
        pytest.approx((1 / 0.6, 1 / 0.65, 1 / 0.55)),
    ]
    assert finding.headline == (
        "the training thread waits about 80 % of the time for the GIL, which run() stats.py:16 holds in a thread"
    )


def test_no_more_is_reported_than_the_training_thread_lost():
    assert found(0.85, 0.8)["gil_contention"].share_of_step == pytest.approx(0.15)


def test_moving_the_work_gains_all_of_the_wait_but_for_what_looks_may_be_off():
    move, halve = found(0.6, 0.8)["gil_contention"].fixes
    assert move[1:4] == pytest.approx((1 / 0.6, 1 / 0.7, 1 / 0.5))
    assert halve[1] == pytest.approx(1 / 0.8)


def test_a_training_thread_that_runs_or_waits_for_a_core_is_not_held_up():
    assert "gil_contention" not in found(0.97, 0.8)
    assert "gil_contention" not in found(0.2, 0.8, main_delay=0.8)


def test_where_the_thread_waits_it_holds_nothing_and_another_line_is_named():
    assert found(0.2, 0.8, asleep=60)["gil_contention"].where[0].line == 16


def test_a_thread_that_sleeps_holds_nothing():
    assert "gil_contention" not in found(0.2, 0.8, other_line=3)
