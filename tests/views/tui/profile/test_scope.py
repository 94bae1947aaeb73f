"""Whose samples: a thread, a role, a process, the run."""

import pytest

from tests.session.records import stacks
from tests.session.samples import profiles
from tests.session.samples.profiles import MAIN
from tuimon.records import StackCount, Stacks
from tuimon.session.samples.sample_profile import SampleProfile
from tuimon.views.tui.profile.scope import Scope, latest_times

WORKER = Scope(4301, 4301, "worker 1")


@pytest.mark.parametrize(
    ("level", "threads", "samples"),
    [
        ("thread", [(4301, 4301)], 200),
        ("role", [(4300, 4300), (4301, 4301)], 400),
        ("process", [(4301, 4301)], 200),
        ("run", [(MAIN, MAIN), (4300, 4300), (4301, 4301)], 600),
    ],
)
def test_levels(level, threads, samples):
    session = profiles.session(2)
    scope = WORKER._replace(level=level)
    assert scope.threads(session) == threads
    assert sum(sample.count for sample in scope.samples(session)) == samples


def test_workers_have_no_phase_the_trainer_has():
    session = profiles.session(2)
    assert {sample.phase for sample in WORKER.samples(session)} == {"none"}
    trainer = SampleProfile(Scope(MAIN, MAIN, "main").samples(session))
    assert trainer.phases == {"data": 124, "forward": 40, "backward": 20, "optimizer": 8, "other": 8}
    assert trainer.has_phases


def test_a_second_thread_of_the_trainer():
    session = profiles.session(2)
    rows = [StackCount(77, "pin", [17, 18], 5), StackCount(77, "pin", [3, 13, 14], 2)]
    session.add(Stacks(t=9.0, pid=MAIN, window_s=1.0, rate_hz=20.0, samples=7, stacks=rows))
    scope = Scope(MAIN, 77, "pin-memory")
    assert sorted((s.phase, s.count) for s in scope.samples(session)) == [("backward", 2), ("none", 5)]
    assert scope._replace(level="process").threads(session) == [(MAIN, MAIN), (MAIN, 77)]


def test_new_samples_are_noticed():
    session = profiles.session(2)
    scope = Scope(MAIN, MAIN, "main", "run")
    before = latest_times(session, scope)
    assert latest_times(session, scope) == before
    session.add(stacks(8.0, ([0], 1), pid=4301))
    assert latest_times(session, scope) != before


def test_a_profile_makes_each_view_once():
    session = profiles.session(2)
    profile = SampleProfile(Scope(MAIN, MAIN, "main").samples(session))
    assert profile.samples == 200
    assert profile.tree("data") is profile.tree("data")
    assert profile.tree("data").samples == profile.lines("data").samples == 124
    assert profile.lines() is profile.lines()
    assert profile.lines(libraries=True) is not profile.lines()
