"""Samples of a program that was outside its loop show nothing of its steps."""

import pytest

from tests.session.records import frames, header, hot_lines, process, session_of, stacks, steps

FRAMES = frames(
    ("In[4]", 2, "<module>", "loss.backward()", True),
    ("/v/site-packages/torch/_tensor.py", 1, "backward", "", False),
    ("In[5]", 1, "<module>", "time.sleep(60)", True),
)
STEP = {"data": 10, "forward": 50, "backward": 40}


def shares(session):
    return {row.place.file: row.samples for row in hot_lines(session.over("recent"), 100)}


def trained_until(t):
    return [steps(at, STEP, first_index=10 * at) for at in range(1, t + 1)]


@pytest.mark.parametrize("samples_first", [False, True])
def test_windows_outside_the_loop_are_left_out(samples_first):
    session = session_of(header(), process(), FRAMES, *trained_until(4), stacks(4, ([0, 1], 30)))
    for t in range(5, 9):
        pair = [steps(t, {}, count=0, first_index=50, outside_s=1.0), stacks(t, ([2], 30))]
        for record in reversed(pair) if samples_first else pair:
            session.add(record)
    assert shares(session) == {"In[4]": 30}
    session.add(steps(9, STEP, first_index=50))
    session.add(stacks(9, ([0, 1], 30)))
    assert shares(session) == {"In[4]": 60}


def test_a_window_that_was_mostly_inside_stays():
    session = session_of(header(), process(), FRAMES, *trained_until(4))
    session.add(steps(5, STEP, first_index=50, outside_s=0.3))
    session.add(stacks(5, ([0, 1], 21), ([2], 9)))
    assert shares(session) == {"In[4]": 21, "In[5]": 9}
