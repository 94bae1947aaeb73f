"""How a rank's step divides into its own work and waiting for others, on literal figures."""

from collections import Counter

import pytest

from tuimon.session.ranks import RankTimes, split_ranks
from tuimon.session.threads import MainThread

NO_SAMPLES = Counter()


def times(cpu=None, delay=0.0, samples=NO_SAMPLES, on_gpu=False, stopped=0.0, **ms):
    main = MainThread(cpu, None if cpu is None else delay, stopped)
    return RankTimes(ms, main, samples, on_gpu)


def sampled(total, collective=(), waiting=()):
    """Samples by phase: all, those in collectives, and those that sleep."""
    counts = Counter({(phase, "python"): n for phase, n in total.items()})
    for activity, part in (("ranks", collective), ("sleep", waiting)):
        for phase, n in dict(part).items():
            counts[phase, "python"] -= n
            counts[phase, activity] += n
    return counts


def test_sleep_in_backward_is_the_wait_for_other_ranks():
    others = [times(cpu=0.44, forward=5, backward=40)] * 2
    late = times(cpu=0.89, forward=25, backward=20)
    first, _, third = split_ranks([*others, late])
    assert first.wait_ms["backward"] == pytest.approx(45 * 0.56)
    assert third.waits_ms == pytest.approx(45 * 0.11)
    assert (third.excess_ms["forward"], third.late_ms) == (20, pytest.approx(20, abs=0.5))
    assert first.late_ms == pytest.approx(-10, abs=0.5)  # of two others one is late


def test_a_longer_backward_of_its_own_shows_where_all_are_of_one_length():
    others = [times(cpu=0.5, forward=10, backward=40)] * 3
    late = times(cpu=0.9, forward=10, backward=40)
    assert split_ranks([*others, late])[3].excess_ms == {"forward": 0, "backward": pytest.approx(20)}


def test_waiting_for_a_core_is_no_waiting_for_ranks():
    split = split_ranks([times(cpu=0.5, delay=0.5, forward=10, backward=40)] * 2)
    assert split[0].waits_ms == 0


def test_a_stopped_process_waits_for_nobody():
    other, late = times(cpu=0.2, forward=10, backward=90), times(cpu=0.2, stopped=0.7, forward=20, backward=80)
    assert split_ranks([other, late])[1].wait_ms["backward"] == pytest.approx(10)


def test_waits_elsewhere_are_not_in_backward():
    loads = sampled({"data": 50, "backward": 50}, waiting={"data": 50})
    split = split_ranks([times(cpu=0.5, samples=loads, data=50, backward=50)] * 2)
    assert split[0].wait_ms["backward"] == pytest.approx(0.0)


def test_collectives_that_stacks_show_are_waits_in_any_phase():
    waits = sampled({"other": 40, "forward": 10}, collective={"other": 40})
    saves = sampled({"other": 40, "forward": 10})
    others = [times(cpu=0.1, samples=waits, forward=5, backward=5, other=30)] * 3
    split = split_ranks([*others, times(cpu=0.9, samples=saves, forward=5, backward=5, other=30)])
    assert split[0].wait_ms["other"] == pytest.approx(30, rel=0.02)
    assert split[3].excess_ms["other"] == pytest.approx(30, rel=0.1)


def test_a_rank_with_few_samples_is_taken_to_be_like_the_others():
    waits = sampled({"other": 40}, collective={"other": 40})
    one = sampled({"other": 1}, collective={"other": 1})
    split = split_ranks([times(samples=s, forward=5, backward=5, other=30) for s in (waits, waits, one, NO_SAMPLES)])
    assert [round(part.wait_ms["other"] or 0) for part in split] == [30, 30, 30, 30]


def test_on_a_gpu_and_without_scheduler_figures_waiting_in_backward_is_unknown():
    for rank in (times(cpu=0.9, on_gpu=True, forward=5, backward=5), times(forward=5, backward=5)):
        split = split_ranks([rank, rank])
        assert (split[0].wait_ms["backward"], split[0].waits_ms, split[0].late_ms) == (None, None, 0)


def test_the_median_of_the_others_is_that_of_each_rank():
    split = split_ranks([times(forward=ms, backward=1) for ms in (10, 20, 40, 70)])
    assert [part.excess_ms["forward"] for part in split] == [-30, -20, 20, 50]


def test_phases_that_samples_name_differently_in_one_rank_make_nobody_late():
    """Time without markers that samples of one rank count as data, those of the others as side work."""
    split = split_ranks([times(backward=4, other=17.5)] * 2 + [times(backward=4, data=14, other=3.5)])
    assert [each.late_ms for each in split] == [pytest.approx(0.0)] * 3


def test_a_collective_that_was_sampled_once_is_no_share_of_a_phase():
    few = sampled({"forward": 1, "other": 4}, collective={"forward": 1})
    many = sampled({"forward": 3, "other": 70}, collective={"forward": 1})
    split = split_ranks([times(samples=few, forward=4, other=14), times(samples=many, forward=1, other=17)])
    assert [each.wait_ms["forward"] for each in split] == [0.0, 0.0]


def test_sleep_that_few_samples_divide_makes_nobody_late():
    few = sampled({"other": 4, "backward": 3}, waiting={"other": 4})
    many = sampled({"other": 74, "backward": 24}, waiting={"other": 74})
    first, second = split_ranks(
        [times(cpu=0.2, samples=many, backward=5, other=15), times(cpu=0.2, samples=few, backward=5, other=15)]
    )
    assert second.waits_ms == pytest.approx(20 * (0.8 - 4 / 7), rel=0.01)  # against a true 1 ms
    assert first.late_ms == 0.0
