"""Single steps of a rank come back as they were recorded."""

from tests.session.records import steps
from tuimon.records import RankStep
from tuimon.session.step_sums import SharedStep, SharedSteps


def shared(*rows: RankStep) -> SharedSteps:
    found = SharedSteps()
    found.add_steps(steps(50.0, {"data": 1}, rank_steps=list(rows)))
    return found


def test_they_come_back_as_they_were() -> None:
    of_rank = shared(RankStep(2**40, 1_500_000, 1, 2, 3, 4, 5, 6), RankStep(2**40 + 1, 0, 0, 0, 4 * 10**9, 0, 0, 0))
    first, second = of_rank.latest()
    assert first == SharedStep(2**40, 48.5, (1, 2, 3, 4, 5, 6))
    assert second.parts_us[2] == 4 * 10**9
    assert list(of_rank.since(49.0)) == [second]


def test_a_phase_of_hours_counts_as_71_minutes() -> None:
    (step,) = shared(RankStep(0, 0, 0, 2**50, 7, 0, 0, 0)).latest()
    assert step.parts_us == (0, 2**32 - 1, 7, 0, 0, 0)
