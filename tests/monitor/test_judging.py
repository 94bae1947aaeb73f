"""How often a run is judged."""

from itertools import pairwise
from types import SimpleNamespace

import pytest

from tests.views import streams
from tuimon.monitor.judging import EVERY_S, RATIO, STEADY_S, STEADY_TIMES, Judging


class Pollers:
    def inspect(self, suspicion):
        pass

    def sample_first(self, pid):
        pass

    def focus_on(self, pids):
        pass


@pytest.fixture
def judging():
    """Each judgement finds what ``rule`` names, and takes ``cost_s`` of CPU time."""
    made = Judging(Pollers(), lambda: made.cpu_s, replayed=None)
    made.cpu_s, made.cost_s, made.rule = 0.0, 0.0, "input_bound"

    def judge_moment(session, lasting_s):
        made.cpu_s += made.cost_s
        return [SimpleNamespace(rule=made.rule, cause=None, evidence={})]

    made.verdicts = SimpleNamespace(judge_moment=judge_moment)
    return made


def judged(judging, begin_s, end_s):
    """When it was judged in this time, asked four times a second."""
    session, found, times = streams.healthy().session, [], []
    for quarter in range(round(begin_s * 4), round(end_s * 4)):
        if judging.is_due(quarter / 4):
            found = judging.judge(session, quarter / 4, judging.found if quarter else [])
            judging.found = found
            times.append(quarter / 4)
    return times


def test_a_run_whose_first_finding_stays_the_same_is_judged_half_as_often(judging):
    times = judged(judging, 0, 100)
    apart = [after - before for before, after in pairwise(times)]
    assert apart == [EVERY_S] * 60 + [STEADY_TIMES * EVERY_S] * ((100 - 60) // 2 - 1)


def test_another_first_finding_is_judged_as_often_as_in_the_beginning(judging):
    judged(judging, 0, STEADY_S + 20)
    judging.rule = "side_work"
    times = judged(judging, STEADY_S + 20, STEADY_S + 30)
    assert {after - before for before, after in pairwise(times)} == {EVERY_S}


def test_what_is_costly_to_judge_is_judged_less_often(judging):
    judging.cost_s = 2.9 * RATIO
    assert judged(judging, 0, 10) == [0.0, 3.0, 6.0, 9.0]
    assert judged(judging, STEADY_S + 12, STEADY_S + 30) == [72.0, 78.0, 84.0]
