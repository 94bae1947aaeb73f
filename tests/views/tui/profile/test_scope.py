"""Whose samples: a thread, a role, a process, the run; and what stands around the views of them."""

import pytest

from tests.session.stacks import profiles
from tests.session.stacks.profiles import MAIN
from tests.views.tui.profile.samples import Counted, of
from tests.views.tui.texts import texts
from tuimon.session.stacks.samples import RANGE
from tuimon.views.tui.drawing.lines import cells, text_of
from tuimon.views.tui.profile.header import empty_lines, filters, phases_line, ranges_line
from tuimon.views.tui.profile.scope import Scope

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
    assert sum(sample.count for sample in scope.samples(session).rows) == samples


def test_workers_have_no_phase_the_trainer_has():
    session = profiles.session(2)
    assert {sample.phase for sample in WORKER.samples(session).rows} == {"none"}
    trainer = Scope(MAIN, MAIN, "main").samples(session)
    assert trainer.phases == {"data": 124, "forward": 40, "backward": 20, "optimizer": 8, "other": 8}


# -- what stands around the views of the profile


def test_phases_with_their_shares(trainer):
    spans = phases_line(trainer, "forward", 116)
    assert "data 62 %" in text_of(spans) and "other 4 %" in text_of(spans)
    assert next(span for span in spans if "forward" in span.text).role == "forward badge"
    assert cells(phases_line(trainer, None, 76)) <= 76
    assert "optimizer 4%" in text_of(phases_line(trainer, None, 76))


def test_user_ranges_have_a_line_of_their_own_and_are_filters():
    ranges = [f"step/{'part' * 3} {i}" for i in range(8)]
    samples = [Counted([0], 10, "other", ranges=("step", path)) for path in ranges]
    profile = of(*samples, Counted([0], 20, "eval"))
    listed = filters(profile)
    assert listed[:7] == (None, "data", "forward", "backward", "optimizer", "other", "eval")
    assert listed[7:] == (f"{RANGE}step", *(RANGE + path for path in ranges))
    row = text_of(ranges_line(profile, None, 116))
    assert row.startswith(" ranges ") and "step 80 %" in row
    for path in ranges:
        spans = ranges_line(profile, RANGE + path, 76)
        assert cells(spans) <= 76
        assert next(span.text for span in spans if span.role == "key badge") == f" {path} 10% "
    assert "range" not in text_of(phases_line(profile, None, 200))
    assert "eval 20 %" in text_of(phases_line(profile, None, 200))
    assert profile.count(f"{RANGE}step") == 80
    assert profile.table(f"{RANGE}{ranges[0]}").samples == 10
    assert "the range gone" in text_of(empty_lines(profile, f"{RANGE}gone")[1])


def test_why_there_is_nothing():
    assert "no stack samples" in texts(empty_lines(of(), None))[1]
    assert "no sample in eval" in texts(empty_lines(of(Counted([0], 1, "data")), "eval"))[1]
    assert "these threads have none" in texts(empty_lines(of(Counted([0], 1, "none")), "data"))[1]
