"""How often a run is judged, and that sampling comes first."""

from itertools import pairwise
from types import SimpleNamespace

import pytest

from tests.diagnosis import gpu
from tests.gpu_simulator.training import PID
from tests.views import streams
from tuimon.diagnosis.verdicts import RANKS_EACH_S
from tuimon.monitor.live_verdicts import EVERY_S, LiveVerdicts
from tuimon.monitor.monitor import Monitor
from tuimon.session.series import WINDOW_S
from tuimon.sources.process_table import ProcessTable


class Judging:
    """Verdicts of a training with ``ranks``, each of which is what ``rule`` names; and when they are due."""

    def __init__(self):
        self.rule, self.ranks = "input_bound", 1
        self.session = SimpleNamespace(trainers=lambda: range(self.ranks))
        self.live = LiveVerdicts(SimpleNamespace(read_ratio=None), None, streams.healthy().session)
        self.live.verdicts = self

    def judge(self):
        return [SimpleNamespace(rule=self.rule, name=self.rule, evidence={})]

    def judged(self, begin_s, end_s):
        """When it was judged in this time, asked four times a second."""
        times = []
        for quarter in range(round(begin_s * 4), round(end_s * 4)):
            if self.live.is_due(quarter / 4):
                self.live.judge(quarter / 4)
                times.append(quarter / 4)
        return times


@pytest.fixture
def judging():
    return Judging()


def test_a_run_whose_first_finding_stays_the_same_is_judged_half_as_often(judging):
    times = judging.judged(0, 100)
    apart = [after - before for before, after in pairwise(times)]
    assert apart == [EVERY_S] * 30 + [2 * EVERY_S] * ((100 - 30) // 2 - 1)


def test_another_first_finding_is_judged_as_often_as_in_the_beginning(judging):
    judging.judged(0, WINDOW_S + 20)
    judging.rule = "side_work"
    times = judging.judged(WINDOW_S + 20, WINDOW_S + 30)
    assert {after - before for before, after in pairwise(times)} == {EVERY_S}


def test_a_run_of_many_ranks_is_judged_less_often(judging):
    judging.ranks = 4 * RANKS_EACH_S
    assert judging.judged(0, 10) == [0.0, 4.0, 8.0]
    assert judging.judged(10, 60) == [12.0, 16.0, 20.0, 24.0, 28.0, 32.0, 40.0, 48.0, 56.0]


def table_of(session):
    """What the monitor of such a run wants of its sources."""
    table = ProcessTable(1, None)
    Monitor([], session=session, table=table, clock=lambda: 61.0).tick()
    return table


def test_the_rank_in_focus_and_the_late_one_are_followed_most_closely_and_the_one_that_the_user_chose_first():
    """Else the late one, so that its line is known."""
    session = streams.ranks(late=3).session
    table = table_of(session)
    assert (table.sampled_first, table.focus) == (streams.MAIN + 3, {streams.MAIN, streams.MAIN + 3})
    session.focus_on(streams.MAIN + 6)
    table = table_of(session)
    assert (table.sampled_first, table.focus) == (streams.MAIN + 6, {streams.MAIN + 3, streams.MAIN + 6})
    assert table_of(streams.ranks(late=-1).session).sampled_first is None


def test_calls_are_counted_while_a_line_of_such_calls_costs_time():
    assert table_of(streams.healthy().session).wants_calls == {}
    reads = ([gpu.ITEM], 60)
    assert table_of(gpu.session_of("sync_item", *gpu.USUAL, reads)).wants_calls == {PID: 1}
    assert table_of(gpu.session_of("gpu_bound", ([gpu.ITEM], 90), *gpu.USUAL[:2], util=0.99)).wants_calls == {}
