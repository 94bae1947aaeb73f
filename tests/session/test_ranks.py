"""The rows of ranks, their size and their waits for each other, from literal records."""

from collections import Counter

import msgspec
import pytest

from tests.session.records import MS, frames, header, process, rank, session_of, stacks, steps, threads
from tests.state_size import size_of
from tuimon.records import Exit, Gpu, PhaseTime, RankStep, SlowStep
from tuimon.session.ranks import RankTimes, rank_rows, split_ranks, with_utilisation
from tuimon.session.threads import TrainingThread

LINES = frames(
    ("train.py", 10, "main", "loss.backward()", True),
    ("/opt/tuimon/agent/hooks.py", 7, "tuimon_backward"),
    ("train.py", 20, "tokenize", "return [vocabulary[w] for w in text]", True),
)
EVEN = {"data": 5, "forward": 20, "backward": 75}
LATE = {"data": 45, "forward": 20, "backward": 35}

RANKS = [rank(n, of=3) for n in range(3)]


def window(t, number, phases=EVEN, cpu=0.4, state="running", **more):
    pid = 100 + number
    made = steps(t, phases, pid=pid, first_index=10 * int(t), **more)
    return threads(t, (pid, "python", cpu, state, 0.0), pid=pid), made


def run(until=10, late=2, phases=LATE, **more):
    of_late = {late: {"phases": phases, "cpu": 0.8, **more}}
    made = [window(t, n, **of_late.get(n, {})) for t in range(1, until + 1) for n in range(3)]
    return session_of(header(), LINES, RANKS, made, stacks(until, ([2], 30), ([0, 1], 10), pid=100 + late))


def test_a_row_says_how_far_a_rank_is_and_what_its_step_consists_of():
    row = rank_rows(run().over("recent"))[2]
    assert (row.rank, row.pid, row.state, row.steps, row.behind) == (2, 102, "training", 110, 0)
    assert row.step_ms == pytest.approx(100)
    assert dict(row.phases) == pytest.approx(
        {"data": 0.45, "forward": 0.2, "backward": 0.35, "optimizer": 0, "other": 0}
    )
    assert (row.place.line, row.memory_bytes) == (20, 1 << 28)


def test_who_holds_the_others_up_and_what_they_wait():
    rows = rank_rows(run().over("recent"))
    assert [row.late_ms for row in rows] == pytest.approx([-20, -20, 40], abs=1)
    assert rows[0].wait_ratio == pytest.approx(0.6)
    assert max(rows[2].excess, key=rows[2].excess.get) == "data"
    excess = rank_rows(run().over("whole"))[2].excess
    assert max(excess, key=excess.get) == "data"


def test_ranks_of_different_lengths_and_one_that_is_lost():
    session = run()
    session.add(rank(1, of=3, t=10.0, ended=True))
    assert [row.state for row in rank_rows(session.over("recent"))] == ["training", "lost", "training"]
    session.add(Exit(t=11.0, pid=50, exit_code=1))
    assert [row.state for row in rank_rows(session.over("recent"))] == ["training", "ended", "training"]


def test_a_rank_that_has_come_to_the_end_of_its_data_is_compared_with_nobody():
    """It waits for the others outside its steps: what its samples show belongs to none of them."""
    stays = {"phases": {}, "count": 0}
    made = [window(t, n, **(stays if n == 2 and t >= 9 else {})) for t in range(1, 20) for n in range(3)]
    rows = rank_rows(session_of(header(), RANKS, made).over("recent"))
    assert [(row.late_ms is None, row.step_ms) for row in rows] == [(False, 100), (False, 100), (True, 100)]
    assert rows[2].behind and dict(rows[2].phases)["backward"] == pytest.approx(0.75)


def test_one_that_has_not_begun_and_one_that_says_nothing_any_more():
    session = session_of(header(), RANKS, [(window(t, 0), window(t, 1) if t < 10 else ()) for t in range(1, 40)])
    rows = rank_rows(session.over("recent"))
    assert [row.state for row in rows] == ["training", "silent", "starting"]
    assert rows[1].behind == 300
    assert rows[2].step_ms is None


def test_a_stopped_one():
    states = [("running", "stopped" if t % 2 == 0 else "running", "running") for t in range(1, 11)]
    made = [window(t, n, cpu=0.1, state=of[n]) for t, of in enumerate(states, 1) for n in range(3)]
    session = session_of(header(), RANKS, made)
    row = rank_rows(session.over("recent"))[1]
    assert (row.state, row.thread.stopped_ratio) == ("stopped", pytest.approx(0.5, abs=0.06))


def test_a_training_of_one_process_has_no_rows():
    assert rank_rows(session_of(header(), process(), steps(1, EVEN)).over("recent")) == []


def test_collections_are_counted_by_step():
    assert rank_rows(run(gc_ns=400 * MS).over("recent"))[2].gc_ratio == pytest.approx(0.4)


def test_the_utilisation_of_a_ranks_gpus_is_their_mean_over_the_steps():
    """And not the last reading, after them; rules, which do not need it, do not pay for it."""
    session = run()
    for n in range(3):
        session.add(rank(n, of=3, gpu_uuids=[f"GPU-{n}"]))
        for t in range(12):
            util = 0.1 * (n + 1) if t < 11 else 0.0
            session.add(Gpu(t=float(t), pid=0, index=n, uuid=f"GPU-{n}", name="X", util_ratio=util))
    assert {row.gpu_ratio for row in rank_rows(session.over("recent"))} == {None}
    shown = [row.gpu_ratio for row in with_utilisation(session.over("recent"), rank_rows(session.over("recent")))]
    assert shown == pytest.approx([0.1, 0.2, 0.3])
    assert shown == [row.figures.util_ratio for row in session.over("recent").gpus()]


PHASES = {"data": 1.0, "forward": 40.0, "backward": 50.0, "optimizer": 9.0, "other": 0.5, "between": 0.25}
#: Windows of a rank: those of its first minute.
WINDOWS = 60


def of_rank(pid):
    """Its records, none of which shares an object with any other."""
    yield process(pid=pid, rank=pid - 100, world_size=64)
    for at in range(WINDOWS):
        slowest = SlowStep(10 * at, 120 * MS, [PhaseTime(name, int(ms * MS) + at) for name, ms in PHASES.items()])
        record = steps(float(at), {name: ms + at / 1000 for name, ms in PHASES.items()}, pid=pid, first_index=10 * at)
        times_us = [(10 * at + n, 1000 * n + 1, *range(1000 * at + 10 * n, 1000 * at + 10 * n + 6)) for n in range(4)]
        single = [RankStep(*each) for each in times_us]
        record = msgspec.structs.replace(record, slowest=slowest, rank_steps=single)
        yield msgspec.json.decode(msgspec.json.encode(record), type=type(record))
        yield threads(float(at), (pid, "python", 0.5, "running"), (pid + 1000, "pt_main", 0.1, "waiting"), pid=pid)


def session_after(windows, ranks):
    """Of ranks that have made so many windows of 4 s each; all are alike, and share objects."""
    pids = range(100, 100 + ranks)
    return session_of(
        *[process(pid=pid, rank=pid - 100, world_size=ranks) for pid in pids],
        [steps(4.0 * at, PHASES, pid=pid, first_index=10 * at, window_s=4.0) for at in range(windows) for pid in pids],
    )


def records_of(ranks):
    return sorted((record for pid in range(100, 100 + ranks) for record in of_rank(pid)), key=lambda record: record.t)


def test_the_picture_of_a_run_takes_little_more_for_one_more_rank():
    one, eight = (size_of(session_of(*records_of(ranks))) for ranks in (1, 8))
    assert (eight - one) / 7 < 48_720


def test_16_ranks_take_little_more_after_two_hours_than_after_ten_minutes():
    after_a_minute, after_ten, after_hours = (size_of(session_after(windows, 16)) for windows in (15, 150, 1800))
    assert after_ten - after_a_minute < 0.6e6
    assert after_hours - after_ten < 0.9e6


def test_the_rank_in_focus_keeps_its_latest_windows_as_they_were_recorded():
    session = session_after(600, 16)

    def in_full(pid):
        return sum(row.end_s - row.begin_s == 4.0 for row in session.step_stats[pid].windows(last=600))

    assert [in_full(pid) for pid in (100, 101)] == [512, 32]


NO_SAMPLES = Counter()


def times(cpu=None, delay=0.0, samples=NO_SAMPLES, on_gpu=False, stopped=0.0, **ms):
    main = TrainingThread(cpu, None if cpu is None else delay, stopped)
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
    assert first.waits["backward"] == pytest.approx(45 * 0.56)
    assert sum(third.waits.values()) == pytest.approx(45 * 0.11)
    assert (third.excess["forward"], sum(third.excess.values())) == (20, pytest.approx(20, abs=0.5))
    assert sum(first.excess.values()) == pytest.approx(-10, abs=0.5)  # of two others one is late


def test_a_longer_backward_of_its_own_shows_where_all_are_of_one_length():
    others = [times(cpu=0.5, forward=10, backward=40)] * 3
    late = times(cpu=0.9, forward=10, backward=40)
    assert split_ranks([*others, late])[3].excess == {"forward": 0, "backward": pytest.approx(20)}


def test_waiting_for_a_core_is_no_waiting_for_ranks():
    split = split_ranks([times(cpu=0.5, delay=0.5, forward=10, backward=40)] * 2)
    assert sum(split[0].waits.values()) == 0


def test_a_stopped_process_waits_for_nobody():
    other, late = times(cpu=0.2, forward=10, backward=90), times(cpu=0.2, stopped=0.7, forward=20, backward=80)
    assert split_ranks([other, late])[1].waits["backward"] == pytest.approx(10)


def test_a_rank_with_few_samples_is_taken_to_be_like_the_others():
    waits = sampled({"other": 40}, collective={"other": 40})
    one = sampled({"other": 1}, collective={"other": 1})
    split = split_ranks([times(samples=s, forward=5, backward=5, other=30) for s in (waits, waits, one, NO_SAMPLES)])
    assert [round(part.waits["other"]) for part in split] == [30, 30, 30, 30]


def test_the_median_of_the_others_is_that_of_each_rank():
    split = split_ranks([times(forward=ms, backward=1) for ms in (10, 20, 40, 70)])
    assert [part.excess["forward"] for part in split] == [-30, -20, 20, 50]


def test_phases_that_samples_name_differently_in_one_rank_make_nobody_late():
    """Time without markers that samples of one rank count as data, those of the others as side work."""
    split = split_ranks([times(backward=4, other=17.5)] * 2 + [times(backward=4, data=14, other=3.5)])
    assert [sum(each.excess.values()) for each in split] == [pytest.approx(0.0)] * 3


def test_a_collective_that_was_sampled_once_is_no_share_of_a_phase():
    few = sampled({"forward": 1, "other": 4}, collective={"forward": 1})
    many = sampled({"forward": 3, "other": 70}, collective={"forward": 1})
    split = split_ranks([times(samples=few, forward=4, other=14), times(samples=many, forward=1, other=17)])
    assert [each.waits["forward"] for each in split] == [0.0, 0.0]


def test_sleep_that_few_samples_divide_makes_nobody_late():
    few = sampled({"other": 4, "backward": 3}, waiting={"other": 4})
    many = sampled({"other": 74, "backward": 24}, waiting={"other": 74})
    first, second = split_ranks(
        [times(cpu=0.2, samples=many, backward=5, other=15), times(cpu=0.2, samples=few, backward=5, other=15)]
    )
    assert sum(second.waits.values()) == pytest.approx(20 * (0.8 - 4 / 7), rel=0.01)  # against a true 1 ms
    assert sum(first.excess.values()) == 0.0
