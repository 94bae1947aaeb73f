"""Steps that differ in nothing but their times, as columns."""

from tuimon.sources.loop.step import Step, StepFlags, StepRun
from tuimon.sources.markers.window_steps import WindowSteps

FLAGS = StepFlags(1, 1, False, True, True, False, 0, False)
RUN = StepRun([10, 20, 35, 42], [4, 1, 5, 6, 2, 7, 3, 1, 3], ("forward", "backward", "forward"), FLAGS)


def test_each_step_of_a_run():
    assert len(RUN) == 3 and RUN.lengths_ns() == [10, 15, 7]
    assert list(RUN.steps()) == [
        Step(20, 10, {"forward": 9, "backward": 1}, *FLAGS),
        Step(35, 15, {"forward": 13, "backward": 2}, *FLAGS),
        Step(42, 7, {"forward": 6, "backward": 1}, *FLAGS),
    ]
    assert RUN.sums_ns() == {"forward": 28, "backward": 4}


def test_sums_of_a_window_are_the_same_whether_its_steps_come_in_a_run_or_one_by_one():
    before, slowed = Step(10, 9, {"data": 9}, 1, 1), Step(60, 18, {"data": 18}, slowed=True, traced_ns=5)
    in_run, single = WindowSteps([before, RUN, slowed], 7), WindowSteps([before, *RUN.steps(), slowed], 7)
    for steps in (in_run, single):
        assert (steps.count, steps.usual, steps.total_ns, steps.slowed_ns) == (5, 4, 41, 18)
        assert sorted(steps.lengths_ns) == [7, 9, 10, 15]
        assert steps.phases_ns == {"data": 9, "forward": 28, "backward": 4}
        assert steps.first() == before
        assert list(steps.traced()) == [(11, 5)]
    assert in_run.slowest() == single.slowest()
    assert in_run.slowest().index == 9
    for stride in (1, 2, 4):
        assert list(in_run.every(stride)) == list(single.every(stride))


def test_a_window_without_a_step():
    steps = WindowSteps([], 3)
    assert (steps.count, steps.first(), steps.slowest(), list(steps.every(1))) == (0, None, None, [])
