"""Which process the monitor has sampled most."""

from tests.views import streams
from tuimon.monitor.monitor import Monitor
from tuimon.sources.base import Source
from tuimon.sources.stacks.schedule import sampling_order


class Sampler(Source):
    """A source of stacks that keeps what it was told."""

    name, period_s, first, focus = "stacks", 3600.0, None, frozenset()

    def read(self):
        return []

    def sample_first(self, pid):
        self.first = pid

    def focus_on(self, pids):
        self.focus = frozenset(pids)


def sampler_of(session):
    sampler = Sampler()
    monitor = Monitor([sampler], session=session, clock=lambda: 61.0)
    monitor.tick()
    return sampler


def sampled_first(session):
    return sampler_of(session).first


def test_the_rank_in_focus_and_the_late_one_are_followed_most_closely():
    session = streams.ranks(late=3).session
    assert sampler_of(session).focus == {streams.MAIN, streams.MAIN + 3}
    session.focus_on(streams.MAIN + 6)
    assert sampler_of(session).focus == {streams.MAIN + 3, streams.MAIN + 6}


def test_the_late_rank_is_sampled_first_so_that_its_line_is_known():
    assert sampled_first(streams.ranks(late=3).session) == streams.MAIN + 3
    assert sampled_first(streams.ranks(late=-1).session) is None


def test_a_rank_that_the_user_chose_goes_before_it():
    session = streams.ranks(late=3).session
    session.focus_on(streams.MAIN + 6)
    assert sampled_first(session) == streams.MAIN + 6


def test_the_others_follow_by_rank():
    ranks = {10: 0, 11: 1, 12: None, 13: 2}
    assert sorted(ranks, key=lambda pid: sampling_order(pid, ranks[pid], None)) == [10, 11, 13, 12]
    assert sorted(ranks, key=lambda pid: sampling_order(pid, ranks[pid], 13)) == [13, 10, 11, 12]
