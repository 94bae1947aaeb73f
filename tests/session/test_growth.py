"""Series of windows: what they answer, and that nothing of a session grows with the length of a run."""

import cProfile
import doctest
import gc
import math
import pstats
import random
from collections import Counter
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import pytest

from tests.session import records
from tests.session.records import MS, extend, frames, hot_lines, one_process, process, stacks, steps, threads
from tests.state_size import size_of, sizes_by_type
from tests.views import streams
from tuimon.diagnosis.verdicts import Verdicts
from tuimon.records import (
    Frame,
    Frames,
    Gil,
    GilCount,
    GpuPhase,
    GpuTime,
    Loader,
    LoaderFacts,
    LoaderWorker,
    Notice,
    RangeTime,
    StackCount,
    Stacks,
    TorchMemory,
    Uncaught,
)
from tuimon.session import series
from tuimon.session.series import WHOLE_RUN, Series, Span, Stretch, ThinnedRows
from tuimon.session.steps import step_series, stretch_of

FACTS = LoaderFacts(
    dataset="Images",
    kind="map",
    workers=4,
    prefetch=2,
    batch_size=8,
    pin_memory=False,
    persistent=False,
    context="fork",
)
PLACES = [("train.py", line, "main", "source", True) for line in range(1, 200)]


def begun():
    return one_process(frames(*PLACES))


#: So often in a quarter of its rounds a test measures what a session holds.
MOMENTS = 5


def holds_still(session, fill, plateau, rounds):
    """``fill(n)`` for ``rounds`` rounds: from ``plateau`` on, what the session holds stays what it is.

    It goes up and down, as what has ended is forgotten several at a time: means are compared.
    """
    for n in range(plateau):
        fill(n)
    quarter = (rounds - plateau) // 4
    earlier = sums_held(session, fill, range(plateau, plateau + quarter))
    for n in range(plateau + quarter, rounds - quarter):
        fill(n)
    later = sums_held(session, fill, range(rounds - quarter, rounds))
    # windows of steps are joined as they age: their number grows with the logarithm of time
    assert later.total() <= earlier.total() * 1.05 + MOMENTS * 10_000, later - earlier


def sums_held(session, fill, rounds):
    """What the session holds, by type: the sum over some moments of these rounds."""
    sums = Counter()
    for n in rounds:
        fill(n)
        if n % (len(rounds) // MOMENTS) == 0:
            gc.collect()  # nodes of the trie that nothing holds any more: when they go is not the session's matter
            sums += sizes_by_type(session)
    return sums


def train(session, t, pid=100, count=10, **more):
    before = session.step_stats.get(pid)
    first = before.total if before else 0
    session.add(steps(t, {"data": 5.0, "forward": 3.0, "backward": 4.0}, count, pid, first, **more))


def live(session, t, pid):
    """What a process's sources report of it in a second."""
    session.add(threads(t, (pid, "python", 0.5, "running"), (pid + 1_000_000, "pool", 0.1, "waiting"), pid=pid))
    session.add(stacks(t, ([1, 2, pid % 150], 10), ([1, 5], 3), pid=pid))
    session.add(Gil(t=t, pid=pid, samples=30, threads=[GilCount(pid, 20)]))
    session.add(Uncaught(t=t, pid=pid, error="ValueError: no"))


def test_workers_that_come_and_go_leave_nothing():
    session = begun()

    def epoch(n):
        """Four workers that live for a second."""
        t = float(n + 1)
        pids = [2000 + 4 * n + number for number in range(4)]
        train(session, t)
        for pid in pids:
            session.add(process(pid, "worker", ppid=100, t=t))
            live(session, t, pid)
        reports = [LoaderWorker(pid, number, 5, 10.0, 1.0, 2.0) for number, pid in enumerate(pids)]
        session.add(Loader(t=t, pid=100, number=0, window_s=1.0, fetches=9, facts=FACTS, workers=reports))
        for pid in pids:
            session.add(process(pid, "worker", ppid=100, t=t + 0.5, ended=True))

    holds_still(session, epoch, plateau=100 + 1800, rounds=200 + 1800)
    assert session.step_stats.get(100).total == 10 * 2000
    assert session.step_stats.get(100).over().sums.data_ns == 2000 * 10 * 5 * MS
    assert session.run_processes.had_workers(100)
    (loader,) = session.over("recent").of(100).loaders
    assert len(loader.worker_rows) == 4


def test_processes_that_train_one_after_the_other_leave_the_latest():
    """A search for hyperparameters, a process a trial."""
    session = begun()

    def trial(n):
        t, pid = 20.0 * (n + 1), 2000 + n
        session.add(process(pid, t=t, start_unix_s=1.7e9 + t))
        train(session, t, pid)
        live(session, t, pid)
        session.add(Loader(t=t, pid=pid, number=0, window_s=1.0, fetches=9, facts=FACTS))
        phases = [GpuPhase("backward", 100, 10, 0)]
        session.add(GpuTime(t=t, pid=pid, window_s=2.0, device=0, steps=5, total_ns=100, phases=phases, leads=[]))
        session.add(TorchMemory(t=t, pid=pid, device=0, allocated_bytes=1, reserved_bytes=2))
        session.add(process(pid, t=t + 1, start_unix_s=1.7e9 + t, ended=True))

    holds_still(session, trial, plateau=900, rounds=1500)  # its stacks come again every 150 trials
    assert 10 <= len(session.trainers()) <= 64
    assert max(session.trainers()) == 2000 + 1499


def test_all_ranks_of_a_job_are_kept_at_its_end():
    session = begun()
    ranks = range(1000, 1064)
    for rank, pid in enumerate(ranks):
        session.add(process(pid, rank=rank))
        train(session, 10.0, pid)
    extend(session, [process(pid, t=20.0 + (pid - 1000) / 64, rank=pid - 1000, ended=True) for pid in ranks])
    assert session.trainers() == list(ranks)
    assert all(session.over("whole").of(pid).steps.total == 10 for pid in ranks)


def test_names_of_ranges_without_end_are_summed_up():
    session = begun()

    def window(n):
        ranges = [RangeTime(f"batch {50 * n + i}", 1, MS, "forward") for i in range(50)]
        train(session, float(n + 1), ranges=ranges)

    holds_still(session, window, plateau=1850, rounds=2050)
    totals = session.step_stats.get(100).since_start().ranges
    assert sum(count for count, _, _ in totals.values()) == 2050 * 50
    assert len(totals) <= 257


def program(session, n):
    """One that lives for less than a second."""
    session.add(process(2000 + n, "other", t=float(n + 1)))
    live(session, float(n + 1), 2000 + n)
    session.add(process(2000 + n, "other", t=n + 1.5, ended=True))


def program_whose_end_was_lost(session, n):
    session.add(process(2000 + n, "other", t=float(n + 1)))
    live(session, float(n + 1), 2000 + n)


def process_that_no_record_announced(session, n):
    live(session, float(n), 2000 + n)


def notice_and_phase(session, n):
    session.add(Notice(t=float(n), pid=0, source=f"source {n}", level="info", message="x" * 100))
    session.add(steps(float(n), {f"phase {n}": 1.0}, first_index=10 * n))


def twenty_threads(session, n):
    t, tids = float(n + 1), range(10_000 + 20 * n, 10_020 + 20 * n)
    session.add(threads(t, (100, "python", 0.5, "running"), *((tid, "pool", 0.1, "waiting") for tid in tids)))
    extend(session, [stacks(t, ([1, 2], 10), tid=tid) for tid in tids])


@pytest.mark.parametrize(
    ("another", "plateau", "rounds"),
    [
        (program, 200, 400),
        (program_whose_end_was_lost, 2200, 2600),
        (process_that_no_record_announced, 1200, 1600),
        (notice_and_phase, 1900, 2200),
        (twenty_threads, 300, 400),
    ],
)
def test_whatever_comes_anew_each_second_leaves_nothing(another, plateau, rounds):
    session = begun()
    train(session, 1.0)
    holds_still(session, partial(another, session), plateau, rounds)
    assert session.step_stats.get(100).total >= 10


def test_a_pid_that_is_used_again_begins_from_nothing():
    session = begun()
    train(session, 10.0)
    live(session, 10.0, 100)
    extend(session, process(t=11.0, ended=True), process(t=12.0, start_unix_s=1.7e9 + 500))
    assert session.step_stats.get(100) is None
    assert session.stacks.get(100) is None


FRAMES = 2000


def calls_of(work):
    profile = cProfile.Profile()
    profile.runcall(work)
    return pstats.Stats(profile).total_calls


def window(numbers, t, pid):
    """A full window of py-spy: 52 stacks of 30 frames, none like another."""
    stacks = [
        StackCount(pid + max(0, k - 23), "thread", [numbers.randrange(FRAMES) for _ in range(30)], 2) for k in range(52)
    ]
    return Stacks(t=t, pid=pid, window_s=2.0, samples=40, stacks=stacks, cost_cpu_s=0.04)


def test_a_tick_after_150_windows_costs_what_it_cost_after_50():
    session = streams.input_bound(5).session
    numbers, pid, begin_s = random.Random(1), session.trainer(), session.now_s
    frames = [Frame(f"/home/me/f{i % 40}.py", i, f"f{i % 200}", "x = y", i % 3 == 0) for i in range(FRAMES)]
    session.add(Frames(t=begin_s, pid=0, first=0, frames=frames))
    calls = {}
    for count in range(1, 151):
        t = begin_s + 2 * count
        extend(session, window(numbers, t, pid), streams.seconds(int(t - begin_s) + 6, 1)[0])
        if count in (50, 150):
            calls[count] = calls_of(lambda: Verdicts(session).judge()) + calls_of(
                lambda: hot_lines(session.over("recent"), pid)
            )
    assert calls[50] > 10_000
    assert calls[150] < 1.05 * calls[50]


class Count(NamedTuple):
    begin_s: float
    end_s: float
    number: float


def counted(windows: int, limit: int) -> Series[Count]:
    found = Series(Count, limit)
    for at in range(windows):
        found.append(Count(at, at + 1, 1), {at % 3: 1, -7: 2})
    return found


def test_its_example_holds() -> None:
    assert doctest.testmod(series) == (0, 12)


@pytest.mark.parametrize("windows", (1, 2, 3, 7, 12, 40, 1000))
@pytest.mark.parametrize("limit", (2, 3, 8))
def test_nothing_is_lost_between_rows_and_the_latest_are_as_recorded(windows: int, limit: int) -> None:
    found = counted(windows, limit)
    rows = found.rows()
    assert (rows[0].begin_s, rows[-1].end_s) == (0, windows)
    assert all(before.end_s == after.begin_s for before, after in pairwise(rows))
    assert all(row.number == row.end_s - row.begin_s for row in rows)
    assert all(row.number == 1 for row in rows[-min(limit - 1, windows) :])
    assert found.over() == Count(0, windows, windows)
    assert sum(found.counts().values()) == 3 * windows
    lengths = {row.number for row in found.even_rows()[:-1]}
    assert all(length >= rows[0].number for length in lengths)


class Few(Series[Count]):
    """Joined rows keep their most frequent key, and count the others for 0."""

    def shrunk(self, counts: dict[int, int]) -> dict[int, int]:
        most = max(counts, key=lambda key: (key > 0, counts[key]))
        return {0: sum(counts.values()) - counts[most], most: counts[most]}


def test_counts_of_a_damaged_log_may_be_of_any_size() -> None:
    found = Series(Stretch, 1)
    for t in range(9):
        found.append(Stretch(float(t), t + 1.0), {7: 2**62})
    assert found.counts() == {7: 9 * 2**62}


def test_counts_that_rows_lose_when_they_are_joined_are_lost_to_all_who_asked_before() -> None:
    asked, fresh = Few(Count, 4), Few(Count, 4)
    for at in range(100):
        for each in (asked, fresh):
            each.append(Count(at, at + 1, 1), {at % 5 + 1: 3, at % 7 + 1: 2})
        asked.counts()
    assert asked.counts() == {key: n for key, n in fresh.counts().items() if n}
    assert sum(asked.counts().values()) == sum(fresh.counts().values()) > 300


@pytest.mark.parametrize("apart_s", (1.0, 5.0, 30.0))
def test_rows_that_are_kept_apart_are_never_joined(apart_s: float) -> None:
    found = Series(Count, 2)
    found.keep_apart(apart_s)
    for at in range(100):
        found.append(Count(at, at + 1, 1))
    before, after = found.over(Span(end_s=apart_s)), found.over(Span(apart_s))
    assert before is not None and after is not None
    assert (before.number, after.number) == (apart_s, 100 - apart_s)


@pytest.mark.parametrize("windows", (1, 12, 400))
@pytest.mark.parametrize("ratio", (0.0, 0.03, 0.5, 0.997, 1.0))
def test_a_run_may_be_divided_anywhere(windows: int, ratio: float) -> None:
    found, at_s = counted(windows, 3), ratio * windows
    parts = [found.part(*span) for span in ((-math.inf, at_s), (at_s, math.inf), (0.3 * at_s, at_s), (at_s, 0.0))]
    numbers = [part.number if part is not None else 0.0 for part in parts]
    assert numbers == pytest.approx([at_s, windows - at_s, 0.7 * at_s, 0.0])


def test_sums_that_go_on_are_those_from_the_beginning() -> None:
    asked, never = Series(Count, 4), Series(Count, 4)
    for at in range(200):
        for each in (asked, never):
            each.append(Count(at, at + 1, at), {at % 5: at})
        for since in (0.0, 40.0, at - 3.0):
            assert (asked.over(Span(since)) is None) == (at < since)
            asked.counts(Span(since))
    for since in (0.0, 40.0, 197.0):
        assert asked.over(Span(since)) == never.over(Span(since))
        assert asked.counts(Span(since)) == never.counts(Span(since))


def test_a_window_that_is_known_late_comes_where_it_belongs() -> None:
    found = counted(4, 8)
    assert found.over(Span(1.0, 2.0)) == Count(1, 2, 1)
    found.append(Count(1.5, 1.5, 10))
    assert [row.begin_s for row in found.rows()] == [0, 1, 1.5, 2, 3]
    assert found.over(Span(1.0, 2.0)) == Count(1, 2, 11)


def test_a_day_of_a_rank_takes_a_few_megabytes() -> None:
    phases = {"data": 30, "forward": 10, "between": 10, "eval": 5}
    window, day = records.steps(1.0, phases), step_series()
    row, counts = stretch_of(window), dict.fromkeys(range(100, 116), 10)
    for at in range(86_400):
        day.append(row._replace(begin_s=at, end_s=at + 1.0), counts)
    whole = day.over()
    assert whole is not None and (whole.steps, whole.total_ns) == (864_000, 86_400 * row.total_ns)
    assert size_of(day) < 6e6
    assert len(day.even_rows()) >= 8 * 24


def test_the_session_keeps_the_course_of_a_process() -> None:
    phases = {"data": 30, "forward": 10, "between": 10, "eval": 5}
    windows = records.loop(3, phases)
    session = records.one_process(
        records.threads(0.5, (100, "python", 0.7, "running", 0.2)), *windows, records.steps(4.0, {"data": 1}, count=0)
    )
    rows = session.step_stats[100].stretches()
    assert [(row.end_s, row.steps, row.first_step) for row in rows] == [(1.0, 10, 0), (2.0, 10, 10), (3.0, 10, 20)]
    assert rows[0].total_ns == 500e6
    assert (rows[0].data_ns, rows[0].between_ns, rows[0].eval_ns) == (300e6, 100e6, 50e6)
    assert rows[0].waited_ns == 100e6


def test_windows_of_more_than_30_s_ago_go_but_for_three_with_a_step() -> None:
    session = records.one_process()
    for at in range(6):
        session.add(records.steps(20.0 * (at + 1), {"data": 1.0}, count=int(at != 3), first_index=at))
    assert session.over("recent").of(100).totals.steps == 3
    extend(session, [records.steps(114.0 + at, {"data": 1.0}, count=1, first_index=at) for at in range(6, 40)])
    assert session.over("recent").of(100).totals.steps == 30


# -- single steps by which ranks are compared: in all ranks the same


class Single(NamedTuple):
    number: float
    t: float


def test_ranks_that_begin_apart_keep_the_same_ones_of_a_long_run():
    early, late = ThinnedRows(Single, 64, 512), ThinnedRows(Single, 64, 512)
    for second in range(10_000):
        for t in (second + 0.25, second + 0.5):
            early.append(Single(second, t))
            if second >= 777:
                late.append(Single(second, t))
    kept = [set(of.over(WHOLE_RUN)) for of in (early, late)]
    assert 200 <= len(kept[1]) <= len(kept[0]) <= 512
    assert kept[1] == {single for single in kept[0] if single.number >= 777}
    assert [single.t for single in early.over(Span(9998.3, last_s=30.0))] == [9998.5, 9999.25, 9999.5]


def test_damaged_numbers_are_bounded():
    singles = ThinnedRows(Single, 4, 8)
    for _ in range(1000):
        singles.append(Single(0, 1.0))
    assert len(singles.over(WHOLE_RUN)) == 8
    assert len(singles.over(Span(last_s=30.0))) == 4
