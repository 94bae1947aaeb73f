"""What a window says of its steps: their lengths in few buckets, where counted ones spent their time, single ones."""

import random

import pytest

from tests.session.records import totals_of
from tuimon.records import BETWEEN, RankStep, Steps, length_bucket
from tuimon.sources.loop.step import COUNTED, Step
from tuimon.sources.markers.steps_record import BUCKETS, CountedPhases, histogram, quantile, rank_steps

MS = 1_000_000


def test_few_buckets_are_all_told() -> None:
    lengths = [10 * MS] * 90 + [20 * MS] * 9 + [200 * MS]
    assert histogram(lengths) == [(length_bucket(ns * MS), count) for ns, count in ((10, 90), (20, 9), (200, 1))]
    assert histogram([]) == []


@pytest.mark.parametrize("count", [33, 50, 1000, 5000])
@pytest.mark.parametrize("spread", [0.1, 0.5, 1.5])
def test_many_are_bounded_and_quantiles_hold(count: int, spread: float) -> None:
    chance = random.Random(count)
    lengths = [int(10 * MS * chance.lognormvariate(0.0, spread)) for _ in range(count)]
    entries = histogram(lengths)
    assert len(entries) <= BUCKETS
    assert sum(steps for _, steps in entries) == count
    assert [bucket for bucket, _ in entries] == sorted({bucket for bucket, _ in entries})
    totals = totals_of(Steps(t=1.0, pid=1, window_s=1.0, count=count, first_index=0, total_ns=sum(lengths),
                             histogram=entries, phases=[]))  # fmt: skip
    ordered = sorted(lengths)
    for q, slack in ((0.5, 0.05 + 0.1 * spread), (0.95, 0.15 + 0.15 * spread), (0.99, 0.15 + 0.15 * spread)):
        assert totals.quantile_ms(q) == pytest.approx(ordered[min(count - 1, int(q * count))] / MS, rel=slack)


def test_quantile():
    assert quantile([], 0.5) is None
    assert quantile([1, 2, 3, 4], 0.5) == 3
    assert quantile([1, 2, 3, 4], 1.0) == 4


# -- the estimate of where counted steps spent their time


def step(data=1, forward=1, other=0, *, timed=True, apart="other"):
    phases = {"data": data * MS, "forward": forward * MS, apart: other * MS}
    return Step(total_ns=sum(phases.values()), phases=phases, timed=timed)


def learned(*steps):
    phases = CountedPhases()
    phases.learn(steps)
    return phases


def in_ms(phases_ns):
    return {name: ns / MS for name, ns in phases_ns.items() if ns}


def test_what_is_beyond_the_usual_holds_no_step_that_is_longer():
    phases = learned(*[step()] * 8, step(data=11), step(other=2000))
    assert in_ms(phases.divide(100, 250 * MS)) == {"data": 150, "forward": 100}
    assert in_ms(phases.divide(100, 2210 * MS)) == {"data": 110, "forward": 100, "other": 2000}


@pytest.mark.parametrize("apart", ["other", BETWEEN])
def test_more_than_long_steps_explain_lies_outside_the_markers_pairs(apart):
    phases = learned(*[step(apart=apart)] * 19, step(data=11, apart=apart))
    assert in_ms(phases.divide(100, 400 * MS)) == {"data": 300, "forward": 100}
    assert in_ms(phases.divide(100, 2200 * MS)) == {"data": 300, "forward": 100, apart: 1800}


def test_before_a_step_was_timed_nothing_is_known():
    assert CountedPhases().divide(10, 10 * MS) == {}
    phases = CountedPhases()
    phases.learn([])
    assert phases.divide(10, 10 * MS) == {}


def test_a_step_that_a_gap_has_a_part_of_keeps_what_was_marked_of_it():
    cut = Step(total_ns=7 * MS, phases={COUNTED: 4 * MS, "forward": 3 * MS}, timed=False)
    counted = Step(count=5, total_ns=10 * MS, phases={COUNTED: 10 * MS}, timed=False)
    assert in_ms(CountedPhases().add_up([step(), step(), counted, cut])) == {
        "data": 2 + 5,
        "forward": 2 + 3 + 5,
        "other": 4,
    }


# -- which steps are kept one by one to be compared between ranks


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
