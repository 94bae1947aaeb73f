"""The rows of ranks, from literal records."""

import pytest

from tests.session.records import MS, frames, header, process, session_of, stacks, steps, threads
from tuimon.records import Exit, Gpu
from tuimon.session.ranks import rank_rows, with_utilisation

LINES = frames(
    ("train.py", 10, "main", "loss.backward()", True),
    ("/opt/tuimon/agent/hooks.py", 7, "tuimon_backward"),
    ("train.py", 20, "tokenize", "return [vocabulary[w] for w in text]", True),
)
EVEN = {"data": 5, "forward": 20, "backward": 75}
LATE = {"data": 45, "forward": 20, "backward": 35}


def rank(number, **more):
    return process(100 + number, rank=number, world_size=3, ppid=50, python="3.11.7", **more)


def window(t, number, phases=EVEN, cpu=0.4, state="running", **more):
    pid = 100 + number
    return threads(t, (pid, "python", cpu, state, 0.0), pid=pid), steps(
        t, phases, pid=pid, first_index=10 * int(t), **more
    )


def run(until=10, late=2, phases=LATE, **more):
    records = [header(), LINES, *(rank(n) for n in range(3))]
    for t in range(1, until + 1):
        for n in range(3):
            records += window(t, n, phases, 0.8, **more) if n == late else window(t, n)
    records.append(stacks(until, ([2], 30), ([0, 1], 10), pid=100 + late))
    return session_of(*records)


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
    assert max(rows[2].excess, key=lambda part: part[1])[0] == "data"
    assert max(rank_rows(run().over("whole"))[2].excess, key=lambda part: part[1])[0] == "data"


def test_figures_are_of_the_last_thirty_seconds():
    session = run()
    for t in range(11, 60):
        for n in range(3):
            for record in window(t, n):
                session.add(record)
    assert [row.late_ms for row in rank_rows(session.over("recent"))] == pytest.approx([0, 0, 0])


def test_a_step_longer_than_that_stays():
    session = run(until=2)
    session.add(steps(40, {}, count=0, pid=102, first_index=30))
    assert rank_rows(session.over("recent"))[2].step_ms == pytest.approx(100)


def test_ranks_of_different_lengths_and_one_that_is_lost():
    session = run()
    session.add(rank(1, t=10.0, ended=True))
    assert [row.state for row in rank_rows(session.over("recent"))] == ["training", "lost", "training"]
    session.add(Exit(t=11.0, pid=50, exit_code=1))
    assert [row.state for row in rank_rows(session.over("recent"))] == ["training", "ended", "training"]


def test_a_rank_that_has_come_to_the_end_of_its_data_is_compared_with_nobody():
    """It waits for the others outside its steps: what its samples show belongs to none of them."""
    records = [header(), *(rank(n) for n in range(3))]
    for t in range(1, 20):
        for n in range(3):
            records += window(t, n, EVEN if n != 2 or t < 9 else {}, count=0 if n == 2 and t >= 9 else 10)
    rows = rank_rows(session_of(*records).over("recent"))
    assert [(row.late_ms is None, row.step_ms) for row in rows] == [(False, 100), (False, 100), (True, 100)]
    assert rows[2].behind and dict(rows[2].phases)["backward"] == pytest.approx(0.75)


def test_one_that_has_not_begun_and_one_that_says_nothing_any_more():
    session = session_of(header(), *(rank(n) for n in range(3)))
    for t in range(1, 40):
        for record in (*window(t, 0), *(window(t, 1) if t < 10 else ())):
            session.add(record)
    rows = rank_rows(session.over("recent"))
    assert [row.state for row in rows] == ["training", "silent", "starting"]
    assert rows[1].behind == 300
    assert rows[2].step_ms is None


def test_a_stopped_one():
    session = session_of(header(), *(rank(n) for n in range(3)))
    for t in range(1, 11):
        for n in range(3):
            for record in window(t, n, cpu=0.1, state="stopped" if n == 1 and t % 2 == 0 else "running"):
                session.add(record)
    row = rank_rows(session.over("recent"))[1]
    assert (row.state, row.stopped_ratio) == ("stopped", pytest.approx(0.5, abs=0.06))


def test_windows_that_end_at_different_moments_are_no_lag():
    session = run()
    session.add(steps(11, EVEN, pid=100, first_index=110))
    assert [row.behind for row in rank_rows(session.over("recent"))] == [0, 0, 0]


def test_nor_is_what_a_long_window_has_not_told_of_yet():
    """After a pause of all ranks, the one with windows of a second is soon many steps ahead of a window with few."""
    session = session_of(header(), *(rank(n) for n in range(3)))
    totals = [0, 0, 0]

    def add(t, number, count, window_s):
        session.add(steps(t, EVEN, pid=100 + number, first_index=totals[number], count=count, window_s=float(window_s)))
        totals[number] += count

    for t in range(1, 45):
        moving = not 37 <= t <= 40
        add(t, 0, 10 if moving else 0, 1)
        if t % 4 == 0 and t < 44:
            for n in (1, 2):
                add(t, n, 40 if moving else 1, 4)
        if t > 40:
            assert [row.behind for row in rank_rows(session.over("recent"))] == [0, 0, 0], t
    for t in range(45, 60):
        add(t, 0, 10, 1)
    assert rank_rows(session.over("recent"))[1].behind > 100


def test_time_that_no_marker_divides_is_divided_by_samples():
    session = run(phases={"between": 65, "backward": 35})
    shares = dict(rank_rows(session.over("recent"))[2].phases)
    assert shares["backward"] == pytest.approx(0.35)
    assert "between" not in shares and sum(shares.values()) == pytest.approx(1.0)


def test_a_training_of_one_process_has_no_rows():
    assert rank_rows(session_of(header(), process(100), steps(1, EVEN)).over("recent")) == []


def test_collections_are_counted_by_step():
    assert rank_rows(run(gc_ns=400 * MS).over("recent"))[2].gc_ms == pytest.approx(40)


def test_the_utilisation_of_a_ranks_gpus_is_their_mean_over_the_steps():
    """And not the last reading, after them; rules, which do not need it, do not pay for it."""
    session = run()
    for n in range(3):
        session.add(rank(n, gpu_uuids=[f"GPU-{n}"]))
        for t in range(12):
            util = 0.1 * (n + 1) if t < 11 else 0.0
            session.add(Gpu(t=float(t), pid=0, index=n, uuid=f"GPU-{n}", name="X", util_ratio=util))
    assert {row.gpu_ratio for row in rank_rows(session.over("recent"))} == {None}
    shown = [row.gpu_ratio for row in with_utilisation(session.over("recent"), rank_rows(session.over("recent")))]
    assert shown == pytest.approx([0.1, 0.2, 0.3])
    assert shown == [row.figures.util_ratio for row in session.over("recent").gpus()]
