"""The session's answers over the last seconds and over the whole steady part of a run."""

import pytest

from tests.session.records import (
    MS,
    extend,
    frames,
    header,
    hot_lines,
    loop,
    one_process,
    process,
    session_of,
    stacks,
    steps,
    thread,
    threads,
    total_of,
)
from tuimon.diagnosis.evidence.run import core_demand
from tuimon.records import Loader, LoaderFacts, Notice
from tuimon.session.phase_table import PhaseTable
from tuimon.session.session import Session

LOOP = frames(
    ("train.py", 5, "main", "import numpy", True),
    ("train.py", 10, "main", "x = get_batch()", True),
    ("train.py", 11, "main", "loss = model(x)", True),
    ("/lib/site-packages/torch/nn/modules/module.py", 99, "_call_impl"),
    ("train.py", 12, "main", "loss.backward()", True),
    ("/opt/tuimon/agent/hooks.py", 7, "tuimon_backward"),
)
EARLY, LATE = (([1], 60), ([2, 3], 20), ([4, 5], 20)), (([2, 3], 80), ([4, 5], 20))


def run():
    """A minute that prepares data for long, and a minute that does not; set-up before, and a long end."""
    phases, begun = {"between": 80, "backward": 20}, {2: 1.0}
    trained = [
        (
            steps(t, phases, first_index=10 * (t - 2), first_step_s=begun.get(t)),
            stacks(t, *(EARLY if t < 62 else LATE)),
            threads(t, (100, "python", 1.0 if t < 62 else 0.5, "running", 0.2)),
        )
        for t in range(2, 122)
    ]
    stays = loop(range(122, 152), {}, ([1], 100), count=0, first_index=1200)
    set_up = stacks(1, ([0], 900)), steps(1, {}, count=0)
    return one_process(LOOP, set_up, trained, stays, process(ended=True, t=152.0))


def test_what_came_after_the_last_step_is_no_part_of_it():
    whole = run().over("whole")
    assert whole.of(100).totals.sums.span_s == pytest.approx(120)
    assert whole.of(100).steps.per_second == pytest.approx(10)
    data = hot_lines(whole, 100, "data")
    assert total_of(data[0]) <= 0.31 * whole.of(100).samples.marked_counts().total()


@pytest.mark.parametrize("late", [False, True], ids=["all known", "last known late"])
def test_a_run_that_ends_within_a_window_is_as_fast_as_before(late):
    """A fifth of a second of its last window: at two more steps, not ten, it is not slower."""
    session = one_process(loop(5, {"backward": 100}), steps(6, {"backward": 100}, count=2 - late, first_index=50))
    if late:
        session.add(steps(6.2, {"backward": 100}, count=1, first_index=51, window_s=0.2, last_step_s=5.2))
    whole = session.over("whole").of(100)
    assert (whole.totals.steps, whole.totals.sums.span_s) == (52, pytest.approx(5.2))
    assert whole.steps.per_second == pytest.approx(10)


def test_steps_that_are_known_late_took_the_time_of_earlier_windows():
    """As of a library whose first updates are only seen to be steps once it has fetched again."""
    unknown = [steps(t, {"eval": 500}, count=0, eval_count=1, backwards=9) for t in range(1, 5)]
    late = steps(5, {"backward": 100}, count=30, first_step_s=0.0)
    whole = one_process(unknown, late, loop(range(6, 11), {"backward": 100})).over("whole").of(100)
    assert (whole.totals.steps, whole.totals.sums.span_s) == (80, 10.0)


def test_a_last_step_that_is_only_known_at_the_end_has_no_part_in_what_came_after_it():
    """Without a DataLoader a step ends with its update, but only the next backward, or the end, shows that it has."""
    opened = steps(31, {}, count=0, first_index=300, backwards=1, updates=1, gc_ns=2 * MS, gc_count=1)
    session, late = (one_process(loop(30, {"backward": 100}, gc_ns=0), opened) for _ in range(2))
    extend(late, loop(range(32, 92), {}, count=0, first_index=300, gc_ns=500 * MS, gc_count=1))
    late.add(steps(92, {"backward": 100}, count=1, first_index=300, last_step_s=30.9, gc_ns=500 * MS, gc_count=1))
    before, after = session.over("whole").of(100).totals, late.over("whole").of(100).totals
    assert (before.sums.span_s, before.steps) == (30.0, 300)
    assert (after.sums.span_s, after.steps, after.sums.gc_ns, after.sums.gc_count) == (31.0, 301, 2 * MS, 1)
    assert late.step_stats.get(100).steady_span().end_s == 30.9
    recent = late.over("recent").of(100).totals  # of the last 30 s no step is known: since the last but two windows
    assert (recent.steps, recent.sums.gc_count) == (21, 1)
    everything = late.step_stats.get(100).since_start()
    assert (everything.sums.span_s, everything.steps, everything.sums.gc_count) == (92.0, 301, 62)


def test_threads_are_means_and_a_process_that_lived_in_it_counts_as_alive():
    whole = run().over("whole")
    assert whole.of(100).thread_figures.threads[0].cpu_ratio == pytest.approx(0.75, abs=0.01)
    assert [threads.pid for threads in whole.live_threads(0)] == [100]
    assert not whole.of(100).process.ended
    assert whole.of(100).totals.steps == 1200


def test_workers_that_lived_one_after_the_other_count_as_one():
    """Two of each epoch: seen half their lives, they use half a core each, and wait for one as long."""
    session = one_process()
    for t in range(1, 41):
        epoch, second = divmod(t - 1, 4)
        pids = (200 + epoch, 300 + epoch)
        if not second:
            for pid in pids if epoch == 0 else (*pids, 199 + epoch, 299 + epoch):
                session.add(process(pid, "worker", ppid=100, t=t - 1.0, ended=pid not in pids))
        session.add(steps(t, {"data": 20, "backward": 80}, first_index=10 * t))
        session.add(thread(t, 0.7, 0.3))
        for pid in pids if second in (1, 2) else ():
            rows = (pid, "pt_data_worker", 0.5, "running", 0.5), (pid + 1000, "pt_data_worker", 0.0, "idle", 0.0)
            session.add(threads(t, *rows, pid=pid, cpu_ratio=0.5))
    found = session.over("whole").live_threads(0)
    assert sorted(each.pid for each in found) == [100, 209, 309]
    demand = core_demand(found, 2)
    assert demand.cpu == pytest.approx(0.7 + 2 * 0.5, abs=0.02)
    assert demand.wanted == pytest.approx(3.0, abs=0.05)
    assert demand.busy_threads == {100: 1, 209: 1, 309: 1}


@pytest.mark.parametrize("span", ["recent", "whole"])
def test_a_view_holds_until_the_session_moves_on(span):
    session = run()
    view = session.over(span)
    table = view.of(100).phases
    assert session.over(span) is view and view.of(100).phases is table
    assert (view.of(pid=100).phases, view.of(pid=7).phases) == (table, PhaseTable(7))
    session.add(process(ended=True, t=153.0))
    with pytest.raises(RuntimeError, match="out of date"):
        _ = view.of(100).phases
    assert session.over(span).of(100).phases == table


def test_loaders_of_a_long_run_are_told_by_all_their_windows():
    """Two windows of eight have fetches that wait: which of them were kept would decide."""
    facts = LoaderFacts("Rows", "map", workers=2, prefetch=2)
    session = one_process()
    for t in range(1, 1001):
        waits = t % 8 in (3, 4)
        fetched = {"fetches": 10, "wait_ns": 10 * (100 if waits else 1) * MS}
        ready = {"ready_fetches": 10, "ready_none": 10 if waits else 0}
        extend(session, loop([t], {"data": 5.0, "forward": 5.0}))
        session.add(Loader(t=float(t), pid=100, number=0, window_s=1.0, facts=facts, **fetched, **ready))
    (row,) = session.over("whole").of(100).loaders
    assert row.wait_ms == pytest.approx((2 * 100 + 6 * 1) / 8, rel=0.03)
    assert row.ready_none_ratio == pytest.approx(0.25, abs=0.01)
    assert row.fetches_per_s == pytest.approx(10.0)


def test_the_trainer_is_who_trains_not_who_was_launched():
    session = session_of(
        header(pid=1), process(1, "other"), process(5, "trainer", ppid=1), steps(1, {"data": 1}, pid=5)
    )
    assert session.trainer() == 5
    assert session_of(header(pid=1)).trainer() == 1
    assert Session().trainer() == 0


def test_focus_moves_on_when_the_first_trainer_ends():
    session = session_of(process(5), process(9), steps(1, {"data": 1}, pid=5), steps(1, {"data": 1}, pid=9))
    session.add(process(5, ended=True))
    assert session.trainer() == 9


def test_threads_have_roles_and_places():
    session = one_process(
        process(201, "worker", ppid=100),
        process(202, "worker", ppid=100),
        process(300, "other", ppid=100, command=["/usr/bin/bash", "x"]),
        frames(("a.py", 3, "work", "x = 1", True)),
        stacks(1, ([0], 5), pid=201),
        steps(1, {"data": 1}),
        threads(1, (300, "bash", 0.0, "waiting"), pid=300),
        threads(1, (202, "pt_data_worker", 0.9, "running"), pid=202),
        threads(1, (201, "pt_data_worker", 1.0, "running"), pid=201),
        threads(1, (100, "python", 0.5, "waiting"), (101, "pt_data_pin", 0.0, "waiting"), (102, "x", 0.0, "waiting")),
    )
    rows = session.over("recent").threads()
    assert [row.role for row in rows] == ["main", "pin-memory", "native", "worker 0", "worker 1", "bash"]
    assert rows[3].place.source == "x = 1"
    assert rows[4].place is None


def test_a_worker_that_takes_the_place_of_another_has_its_number():
    workers = [process(pid, "worker", ppid=100) for pid in (201, 202)]
    session = one_process(steps(1, {"data": 1}), workers, process(201, "worker", ppid=100, ended=True))
    session.add(process(203, "worker", ppid=100))
    extend(session, [threads(2, (pid, "python", 1.0, "running"), pid=pid) for pid in (202, 203)])
    assert [row.role for row in session.over("recent").threads()] == ["worker 1", "worker 0"]
    assert len(session.over("recent").of(100).workers) == 2


def test_the_last_picture_keeps_its_threads_and_workers():
    session = session_of(
        process(100),
        process(201, "worker", ppid=100),
        process(202, "worker", ppid=100),
        steps(1, {"data": 1}),
        threads(1, (100, "python", 0.5, "running")),
        threads(1, (201, "pt_data_worker", 1.0, "running"), pid=201),
        threads(1, (202, "pt_data_worker", 1.0, "running"), pid=202),
        process(202, "worker", ppid=100, ended=True, t=2.0),
    )
    assert [row.role for row in session.over("recent").threads()] == ["main", "worker 0"]
    extend(session, process(201, "worker", ppid=100, ended=True, t=60.0), process(100, ended=True, t=61.0))
    rows = session.over("recent").threads()
    assert [(row.role, row.ended) for row in rows] == [("main", True), ("worker 0", True)]
    assert [p.pid for p in session.over("recent").of(100).workers] == [201]


def test_notices_stand_until_their_source_is_well():
    session = session_of(Notice(t=1, pid=0, source="gpu", level="warning", message="no driver"))
    assert session.notices["gpu"].message == "no driver"
    session.add(Notice(t=2, pid=0, source="gpu", level="ok", message="back"))
    assert not session.notices


def test_a_forked_rank_is_no_worker_once_it_trains():
    session = one_process(steps(1, {"data": 1}), process(201, "worker", ppid=100))
    assert session.run_processes.had_workers(100)
    session.add(process(201, "trainer", ppid=100))
    assert not session.run_processes.had_workers(100)
    extend(session, process(202, "worker", ppid=100), process(202, "worker", ppid=100, ended=True))
    assert session.run_processes.had_workers(100) and session.over("recent").of(100).workers == []
