"""Rules about cores on literal sessions."""

import pytest

from tests.session.records import header, process, steps, threads
from tuimon.diagnosis import diagnose
from tuimon.diagnosis.finding import Fix
from tuimon.session.session import Session

PHASES = {"forward": 40, "backward": 50, "optimizer": 10}


def run(*records, pids=(100,), cpu_count=2, phases=PHASES):
    session = Session()
    session.add(header(cpu_count=cpu_count))
    for pid in pids:
        session.add(process(pid))
    for t in range(1, 13):
        for pid in pids:
            session.add(steps(t, phases, pid=pid, first_index=10 * (t - 1)))
    for record in records:
        session.add(record)
    return {finding.rule: finding for finding in diagnose(session)}


def busy(pid, number, cpu, delay):
    """A process with so many threads, each with this CPU and run-queue delay."""
    rows = [(pid + n, "python", cpu, "running", delay) for n in range(number)]
    return threads(12, *rows, pid=pid, cpu_ratio=number * cpu)


def test_two_trainings_with_two_threads_each_want_more_cores_than_there_are():
    found = run(busy(100, 2, 0.5, 0.5), busy(500, 2, 0.5, 0.5), pids=(100, 500))
    finding = found["cpu_oversubscribed"]
    assert finding.severity == "critical"
    assert finding.headline == ("2 trainings x 2 threads want 4.0 of 2 cores: they wait for one 50 % of the time")
    assert "torch.set_num_threads(1)" in finding.action
    assert finding.share_of_step == pytest.approx(0.5)
    assert "neighbour" not in found


def test_two_trainings_with_a_core_each_are_benign():
    found = run(busy(100, 1, 0.99, 0.01), busy(500, 1, 0.99, 0.01), pids=(100, 500))
    assert found["neighbour"].severity == "benign"
    assert found["neighbour"].headline == (
        "2 trainings at 99 % CPU and more do not hurt each other: they wait for a core 1 % of the time"
    )
    assert "cpu_oversubscribed" not in found


def test_others_on_the_machine_are_not_blamed_on_the_run():
    found = run(busy(100, 1, 0.6, 0.4))
    assert found["neighbour"].severity == "warning"
    assert "40 % of the time" in found["neighbour"].headline
    assert not found["neighbour"].other_fixes
    assert "cpu_oversubscribed" not in found


def test_beside_others_threads_that_wait_for_each_other_are_better_one():
    found = run(busy(100, 2, 0.35, 0.65))
    assert "cpu_oversubscribed" not in found
    (fix,) = found["neighbour"].other_fixes
    assert fix.action.startswith("torch.set_num_threads(1)") and fix.estimated_speedup is None


def test_one_training_on_all_cores_is_well():
    assert set(run(busy(100, 2, 0.97, 0.03))) == {"compute_bound_cpu"}


def test_nothing_is_reported_of_cores_without_run_queue_delay():
    rows = [(100 + n, "python", 0.25, "running") for n in range(8)]
    assert set(run(threads(12, *rows, cpu_ratio=2.0))) == {"compute_bound_cpu"}


def test_too_many_workers_are_reported_with_the_data_they_bring_late():
    starved = {"data": 60, "forward": 20, "backward": 20}
    helpers = [
        record for n in range(4) for record in (process(200 + n, "worker", ppid=100), busy(200 + n, 1, 0.45, 0.5))
    ]
    found = run(busy(100, 1, 0.2, 0.2), *helpers, phases=starved)
    assert "cpu_oversubscribed" not in found
    assert found["input_bound"].evidence["cores_waited_for"] == pytest.approx(2.2)
    best, *_, fewer = found["input_bound"].fixes
    assert best.action.startswith("make items cheaper")
    assert best.estimated_speedup == pytest.approx(100 / 22, rel=0.03)  # nobody would wait for a core any more
    assert fewer == Fix("use fewer workers: 1 on 2 cores")


def test_an_update_that_is_slow_for_want_of_cores_is_not_blamed():
    slow = {"forward": 30, "backward": 30, "optimizer": 40}
    assert set(run(busy(100, 1, 1.0, 0.0), phases=slow)) == {"optimizer_bound"}
    assert set(run(busy(100, 4, 0.5, 0.5), phases=slow)) == {"cpu_oversubscribed"}
