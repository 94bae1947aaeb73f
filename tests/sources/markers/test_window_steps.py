"""Which steps are kept one by one to be compared between ranks."""

from tuimon.records import RankStep
from tuimon.sources.loop.step import Step
from tuimon.sources.markers.steps_record import CountedPhases, WindowSteps, rank_steps


def made(count: int, begin_ns: int = 0, **facts: bool) -> list[Step]:
    phases = {"data": 2_000_500, "backward": 3_000_000}
    return [
        Step(end_ns=begin_ns + (n + 1) * 5_000_500, total_ns=5_000_500, phases=phases, **facts) for n in range(count)
    ]


def window(steps: list[Step], first: int) -> WindowSteps:
    return WindowSteps(steps, first, CountedPhases())


def test_ranks_choose_the_same_steps_however_their_windows_lie() -> None:
    chosen = {}
    for shift in (0, 1, 7):
        kept = [
            step.index
            for first in range(shift, 400, 40)
            for step in rank_steps(window(made(40), first), 10**9)
        ]  # fmt: skip
        chosen[shift] = kept
        assert all(count <= 4 for count in (len(rank_steps(window(made(n), 0), 10**9)) for n in range(100)))
    inner = [{index for index in kept if 40 <= index < 360} for kept in chosen.values()]
    assert inner[0] == inner[1] == inner[2] == set(range(48, 360, 16))


def test_a_step_has_its_phases_and_its_end() -> None:
    (step,) = rank_steps(window(made(1), 12), 7_000_500)
    assert step == RankStep(12, 2000, 2000, 0, 3000, 0, 0, 0)


def test_steps_that_were_not_timed_or_were_slowed_are_left_out() -> None:
    assert not rank_steps(window(made(3, timed=False), 0), 10**9)
    assert not rank_steps(window(made(3, slowed=True), 0), 10**9)
