"""Which steps are kept one by one to be compared between ranks."""

from tests.sources.loop.loop_script import MS, markers
from tests.sources.markers.literal_ring import PLAIN, SECOND, FakeReader
from tuimon.records import RankStep, Steps
from tuimon.sources.loop.step import Step
from tuimon.sources.markers.follower import RingFollower
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


def test_only_ranks_of_several_have_them() -> None:
    def kept(world_size: int) -> list[RankStep]:
        reader = FakeReader(markers(" ".join([PLAIN] * 40), 10 * SECOND))
        reader.meta = lambda: {"world_size": world_size}  # type: ignore[method-assign]
        follower = RingFollower(reader, 100.0, 10 * SECOND)  # type: ignore[arg-type]
        return [
            step for record in follower.last(20 * SECOND) if isinstance(record, Steps) for step in record.rank_steps
        ]

    assert not kept(1)
    found = kept(2)
    assert {step.index % 16 for step in found} == {0}
    assert 2 <= len(found) <= 4
    assert (
        sum((found[1].data_us, found[1].forward_us, found[1].backward_us, found[1].optimizer_us, found[1].other_us))
        == 16 * MS // 1000
    )
