"""What a tick costs does not grow with how long a run has been sampled."""

import cProfile
import pstats
import random

from tests.session.records import hot_lines
from tests.views import streams
from tuimon.diagnosis.verdicts import Verdicts
from tuimon.records import Frame, Frames, StackCount, Stacks

FRAMES = 2000


def calls_of(work):
    profile = cProfile.Profile()
    profile.runcall(work)
    return pstats.Stats(profile).total_calls


def window(numbers, t, pid):
    """A full window of py-spy: 52 stacks of 30 frames, none like another."""
    stacks = [
        StackCount(pid + max(0, k - 23), "thread", [numbers.randrange(FRAMES) for _ in range(30)], 2) for k in range(52)
    ]
    return Stacks(t=t, pid=pid, window_s=2.0, rate_hz=20.0, samples=40, stacks=stacks, cost_cpu_s=0.04)


def test_a_tick_after_150_windows_costs_what_it_cost_after_50():
    session = streams.input_bound(5).session
    numbers, pid, begin_s = random.Random(1), session.trainer(), session.now_s
    frames = [Frame(f"/home/me/f{i % 40}.py", i, f"f{i % 200}", "x = y", i % 3 == 0) for i in range(FRAMES)]
    session.add(Frames(t=begin_s, pid=0, first=0, frames=frames))
    calls = {}
    for count in range(1, 151):
        t = begin_s + 2 * count
        session.add(window(numbers, t, pid))
        for record in streams.seconds(int(t - begin_s) + 6, 1)[0]:
            session.add(record)
        if count in (50, 150):
            calls[count] = calls_of(lambda: Verdicts().judge_moment(session, 1.0)) + calls_of(
                lambda: hot_lines(session.over("recent"), pid)
            )
    assert calls[50] > 10_000
    assert calls[150] < 1.05 * calls[50]
