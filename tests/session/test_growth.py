"""What a Session holds does not grow with the length of a run; what it has counted stays exact."""

from tests.session.records import MS, frames, header, process, session_of, stacks, steps, threads
from tests.state_size import largest, size_of
from tuimon.records import (
    Gil,
    GilCount,
    GpuPhase,
    GpuTime,
    Loader,
    LoaderFacts,
    LoaderWorker,
    Notice,
    RangeTime,
    TorchMemory,
    Uncaught,
)

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
    return session_of(header(), process(), frames(*PLACES))


def holds_still(session, fill, plateau, rounds):
    """``fill(n)`` for ``rounds`` rounds: from ``plateau`` on, what the session holds stays what it is."""
    for n in range(plateau):
        fill(n)
    before = size_of(session)
    for n in range(plateau, rounds):
        fill(n)
    after = size_of(session)
    # windows of steps are joined as they age: their number grows with the logarithm of time
    assert after <= before * 1.05 + 10_000, "\n".join(map(str, largest(session)))


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
    (loader,) = session.over("recent").loaders(100)
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

    holds_still(session, trial, plateau=300, rounds=500)
    assert 10 <= len(session.trainers()) <= 64
    assert max(session.trainers()) == 2000 + 499


def test_all_ranks_of_a_job_are_kept_at_its_end():
    session = begun()
    ranks = range(1000, 1064)
    for rank, pid in enumerate(ranks):
        session.add(process(pid, rank=rank))
        train(session, 10.0, pid)
    for pid in ranks:
        session.add(process(pid, t=20.0 + (pid - 1000) / 64, rank=pid - 1000, ended=True))
    assert session.trainers() == list(ranks)
    assert all(session.over("whole").steps(pid).total == 10 for pid in ranks)


def test_short_lived_programs_leave_nothing():
    session = begun()

    def program(n):
        t, pid = float(n + 1), 2000 + n
        session.add(process(pid, "other", t=t))
        live(session, t, pid)
        session.add(process(pid, "other", t=t + 0.5, ended=True))

    holds_still(session, program, plateau=200, rounds=400)


def test_processes_whose_ends_were_lost_leave_the_latest():
    session = begun()
    train(session, 1.0)

    def program(n):
        session.add(process(2000 + n, "other", t=float(n + 1)))
        live(session, float(n + 1), 2000 + n)

    holds_still(session, program, plateau=2200, rounds=2600)
    assert session.step_stats.get(100).total == 10


def test_processes_that_no_record_announced_are_bounded():
    session = begun()
    holds_still(session, lambda n: live(session, float(n), 2000 + n), plateau=1200, rounds=1600)


def test_names_of_ranges_without_end_are_summed_up():
    session = begun()

    def window(n):
        ranges = [RangeTime(f"batch {50 * n + i}", 1, MS, "forward") for i in range(50)]
        train(session, float(n + 1), ranges=ranges)

    holds_still(session, window, plateau=1850, rounds=2050)
    totals = session.step_stats.get(100).since_start().ranges
    assert sum(count for count, _, _ in totals.values()) == 2050 * 50
    assert len(totals) <= 257


def test_notices_phases_and_gpus_of_any_name_are_bounded():
    session = begun()

    def window(n):
        session.add(Notice(t=float(n), pid=0, source=f"source {n}", level="info", message="x" * 100))
        session.add(steps(float(n), {f"phase {n}": 1.0}, first_index=10 * n))

    holds_still(session, window, plateau=1900, rounds=2200)


def test_threads_that_come_and_go_leave_nothing():
    """8,000 threads, each sampled for a second."""
    session = begun()

    def second(n):
        t = float(n + 1)
        tids = [10_000 + 20 * n + i for i in range(20)]
        session.add(threads(t, (100, "python", 0.5, "running"), *((tid, "pool", 0.1, "waiting") for tid in tids)))
        for tid in tids:
            session.add(stacks(t, ([1, 2], 10), tid=tid))

    holds_still(session, second, plateau=300, rounds=400)


def test_a_pid_that_is_used_again_begins_from_nothing():
    session = begun()
    train(session, 10.0)
    live(session, 10.0, 100)
    session.add(process(t=11.0, ended=True))
    session.add(process(t=12.0, start_unix_s=1.7e9 + 500))
    assert session.step_stats.get(100) is None
    assert session.stacks.get(100) is None
