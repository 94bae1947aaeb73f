"""Single steps by which ranks are compared: bounded, and in all ranks the same."""

from typing import NamedTuple

from tests.gpu_simulator.training import PID
from tests.session.records import session_of, steps
from tuimon.records import GpuAccumulation, GpuExchange, GpuTime, RankStep
from tuimon.session.gpu_time import GpuTimeStats
from tuimon.session.series import EVER, Singles, Span


class Single(NamedTuple):
    number: float
    t: float


def test_ranks_that_begin_apart_keep_the_same_ones_of_a_long_run():
    early, late = Singles(Single, 64, 512), Singles(Single, 64, 512)
    for second in range(10_000):
        for t in (second + 0.25, second + 0.5):
            early.append(Single(second, t))
            if second >= 777:
                late.append(Single(second, t))
    kept = [set(of.over(EVER)) for of in (early, late)]
    assert 200 <= len(kept[1]) <= len(kept[0]) <= 512
    assert kept[1] == {single for single in kept[0] if single.number >= 777}
    assert [single.t for single in early.over(Span(9998.3, last_s=30.0))] == [9998.5, 9999.25, 9999.5]


def test_damaged_numbers_are_bounded():
    singles = Singles(Single, 4, 8)
    for _ in range(1000):
        singles.append(Single(0, 1.0))
    assert len(singles.over(EVER)) == 8
    assert len(singles.over(Span(last_s=30.0))) == 4


def test_steps_of_a_rank_come_back_as_they_were() -> None:
    rows = [RankStep(2**40, 1_500_000, 1, 2, 3, 4, 5, 6), RankStep(2**40 + 1, 0, 0, 0, 4 * 10**9, 0, 0, 0)]
    shared = session_of(steps(50.0, {"data": 1}, rank_steps=rows)).step_stats[100].shared
    assert shared.over(EVER) == [(2**40, 48.5, 1, 2, 3, 4, 5, 6), (2**40 + 1, 50.0, 0, 0, 4 * 10**9, 0, 0, 0)]
    assert shared.over(EVER)[1].parts_us[2] == 4 * 10**9
    assert [step.number for step in shared.over(Span(49.0))] == [2**40 + 1]


def test_what_is_recent_is_the_latest_and_sums_add_up():
    stats = GpuTimeStats()
    for number in range(20):
        exchanges = [GpuExchange(2.0 * number + 0.125 * at, 10, 30, 5) for at in range(8)]
        window = GpuTime(
            t=2.0 * (number + 1), pid=PID, window_s=2.0, device=0, steps=8, total_ns=8_000_000, phases=[], leads=[],
            exchanges=exchanges, accumulation=GpuAccumulation(3, 30, 60),
        )  # fmt: skip
        stats.add_record(window, None)
    row = stats.over(Span(last_s=30.0), 40.0)
    assert len(row.exchanges) == 64
    assert row.exchanges[-1] == GpuExchange(38.875, 10, 30, 5)
    assert row.accumulation == GpuAccumulation(45, 450, 900)  # of 15 windows
    assert stats.over(EVER, 40.0).accumulation == GpuAccumulation(57, 570, 1140)  # without the first
