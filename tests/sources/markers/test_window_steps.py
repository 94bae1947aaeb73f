"""Which steps are kept one by one to be compared between ranks."""

from tuimon.records import RankStep
from tuimon.sources.loop.step import Step
from tuimon.sources.markers.steps_record import rank_steps


def made(count: int, begin_ns: int = 0, **facts: bool) -> list[Step]:
    phases = {"data": 2_000_500, "backward": 3_000_000}
    return [
        Step(end_ns=begin_ns + (n + 1) * 5_000_500, total_ns=5_000_500, phases=phases, **facts) for n in range(count)
    ]


def kept(steps: list[Step], first: int = 0, end_ns: int = 10**9) -> list[RankStep]:
    for index, step in enumerate(steps, first):
        step.index = index
    return rank_steps(steps, end_ns)


def test_ranks_choose_the_same_steps_however_their_windows_lie() -> None:
    chosen = {}
    for shift in (0, 1, 7):
        chosen[shift] = [step.index for first in range(shift, 400, 40) for step in kept(made(40), first)]
        assert all(count <= 4 for count in (len(kept(made(n))) for n in range(100)))
    inner = [{index for index in indices if 40 <= index < 360} for indices in chosen.values()]
    assert inner[0] == inner[1] == inner[2] == set(range(48, 360, 16))


def test_a_step_has_its_phases_and_its_end() -> None:
    (step,) = kept(made(1), 12, 7_000_500)
    assert step == RankStep(12, 2000, 2000, 0, 3000, 0, 0, 0)


def test_steps_that_were_not_timed_or_were_slowed_are_left_out() -> None:
    assert not kept(made(3, timed=False))
    assert not kept(made(3, slowed=True))
