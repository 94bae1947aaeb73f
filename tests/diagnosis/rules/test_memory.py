"""Memory on literal sessions."""

import pytest

from tests.session.records import header, process, steps, threads
from tuimon.diagnosis import diagnose
from tuimon.diagnosis.unjudged import unjudged
from tuimon.records import MachineMemory, Threads
from tuimon.session.session import Session

GB = 1 << 30
PHASES = {"data": 1, "forward": 40, "backward": 45, "optimizer": 10, "other": 4}


def machine(t=30.0, total=16 * GB, available=8 * GB, **more):
    return MachineMemory(t=t, pid=0, window_s=5.0, total_bytes=total, available_bytes=available, **more)


def growing(pid=100, mb_a_look=100, looks=6):
    row = threads(0).threads
    return [
        Threads(t=5.0 * n, pid=pid, window_s=1.0, cpu_ratio=0.5, rss_bytes=GB + n * mb_a_look * (1 << 20), threads=row)
        for n in range(1, looks + 1)
    ]


def session_of(*records, phases=PHASES, **in_steps):
    """Eleven windows."""
    session = Session()
    session.add(header())
    session.add(process())
    for t in range(1, 12):
        session.add(steps(t, phases, first_index=10 * t, **in_steps))
    for record in records:
        session.add(record)
    return session


def found(*records, rule="memory_pressure", **in_steps):
    return {finding.rule: finding for finding in diagnose(session_of(*records, **in_steps))}.get(rule)


def test_a_machine_with_room_is_not_reported():
    assert found(machine()) is None
    assert found(machine(), *growing()) is None


def test_without_figures_of_the_machine_nothing_is_reported():
    session = session_of()
    assert "memory_pressure" in dict(unjudged(session))
    assert found() is None
    assert found(machine(total=None, available=None)) is None


def test_figures_of_long_ago_are_no_verdict():
    assert found(machine(t=1.0, available=GB // 10), steps(60, PHASES, first_index=500)) is None


@pytest.mark.parametrize(("available", "reported"), [(0.06, False), (0.04, True)])
def test_five_percent_left_is_short(available, reported):
    assert (found(machine(available=int(available * 16 * GB))) is not None) == reported


def test_who_grows_is_reported_with_when_memory_is_full():
    finding = found(machine(available=GB // 2), *growing())
    assert finding.severity == "critical"
    assert finding.headline == (
        "the machine has 512 MiB of 16 GiB of memory left: the training (100) grows by 1.17 GiB a minute,"
        " full in a minute"
    )
    assert "detach" in finding.action
    assert finding.evidence["full_in_s"] == pytest.approx(25.6)


def test_a_worker_that_grows_gets_the_advice_for_workers():
    finding = found(machine(available=GB // 2), process(201, "worker", ppid=100), *growing(201))
    assert finding.evidence["growing_pid"] == 201
    assert "worker" in finding.headline and "prefetch_factor" in finding.action


def test_a_control_groups_limit_counts_earlier_while_the_run_grows():
    near = {"limit_bytes": 4 * GB, "limit_used_bytes": int(3.6 * GB)}
    assert found(machine(**near)) is None
    finding = found(machine(**near), *growing())
    assert "the container has 410 MiB of 4 GiB" in finding.headline


def test_swapping_is_reported_and_a_little_is_not():
    finding = found(machine(swap_in_bytes_per_s=2.0 * (1 << 20), swap_out_bytes_per_s=0.0))
    assert (finding.severity, finding.headline) == ("warning", "the machine swaps 2 MiB/s")
    assert found(machine(swap_in_bytes_per_s=1e5, swap_out_bytes_per_s=0.0)) is None
