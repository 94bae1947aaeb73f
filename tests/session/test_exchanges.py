"""Steps by which ranks are compared: bounded, and in all ranks the same."""

from tests.gpu_simulator.training import PID
from tuimon.records import GpuAccumulation, GpuExchange, GpuTime
from tuimon.session.gpu_time import GpuTimeStats, SpreadExchanges


def window(t, *reached_s, accumulation=None):
    exchanges = [GpuExchange(moment_s, 10, 30, 5) for moment_s in reached_s]
    return GpuTime(
        t=t, pid=PID, window_s=2.0, device=0, steps=8, total_ns=8_000_000, phases=[], leads=[],
        exchanges=exchanges, accumulation=accumulation,
    )  # fmt: skip


def test_ranks_that_begin_apart_keep_the_same_seconds_of_a_long_run():
    early, late = SpreadExchanges(), SpreadExchanges()
    for second in range(10_000):
        found = window(second + 1.0, second + 0.25, second + 0.5)
        early.add_window(found)
        if second >= 777:
            late.add_window(found)
    kept = [{exchange.reached_s for exchange in of.exchanges} for of in (early, late)]
    assert 200 <= len(kept[1]) <= len(kept[0]) <= 512
    assert kept[1] == {moment_s for moment_s in kept[0] if moment_s >= 777}


def test_damaged_moments_are_bounded():
    spread = SpreadExchanges()
    for _ in range(1000):
        spread.add_window(window(1.0, *[0.0] * 8))
    assert len(spread.exchanges) <= 512


def test_what_is_recent_is_the_latest_and_sums_add_up():
    stats = GpuTimeStats(PID)
    for number in range(20):
        moments_s = [2.0 * number + 0.125 * at for at in range(8)]
        stats.add_window(window(2.0 * (number + 1), *moments_s, accumulation=GpuAccumulation(3, 30, 60)))
    row, _ = stats.recent(40.0)
    assert len(row.exchanges) == 64
    assert row.exchanges[-1].reached_s == 38.875
    assert row.accumulation == GpuAccumulation(45, 450, 900)  # of 15 windows
    assert stats.run()[0].accumulation == GpuAccumulation(57, 570, 1140)  # without the first
