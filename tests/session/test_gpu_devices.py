"""GPUs in the picture: what is used, histories, throttling, energy, errors."""

import pytest
from msgspec import structs

from tests.session.records import header, loop, one_process, process, session_of, steps
from tuimon.records import Gpu, GpuProcess, Throttle, TorchMemory
from tuimon.session.ranks import rows_of, with_utilisation


def gpu(t, index=0, **more):
    facts = {"uuid": f"GPU-{index}", "name": "X"}
    return Gpu(t=float(t), pid=0, index=index, **(facts | more))


def only(session):
    (row,) = session.over("recent").gpus()
    return row


def used(session):
    return [row.latest.uuid for row in session.over("recent").gpus() if row.used_by_run]


def test_a_torch_that_does_not_tell_instances_from_gpus_is_understood():
    session = session_of(
        process(100, gpu_uuids=["GPU-aB"]),
        gpu(1, 0),
        gpu(1, 1),
        gpu(1, 1, uuid="MIG-Ab", parent_uuid="GPU-1"),
        gpu(1, 1, uuid="MIG-Ac", parent_uuid="GPU-1"),
    )
    assert [row.latest.uuid for row in session.over("recent").gpus()] == ["GPU-1", "MIG-Ab", "GPU-0", "MIG-Ac"]
    assert used(session) == ["GPU-1", "MIG-Ab"]  # with what it is cut from: its power, its clocks
    session.add(gpu(2, 1, uuid="MIG-Ab", parent_uuid="GPU-1", util_ratio=0.5, processes=[GpuProcess(100, 7)]))
    session.add(TorchMemory(t=2.0, pid=100, device=0, reserved_bytes=5))
    (row,) = with_utilisation(now := session.over("recent"), rows_of([now.of(100)]))
    assert (row.memory_bytes, row.gpu_ratio, session.over("recent").of(100).torch_memory[0].uuid) == (7, 0.5, "MIG-Ab")


def test_visible_devices_count_only_until_a_process_tells():
    session = session_of(process(100), gpu(1, 0, chosen=True), gpu(1, 1))
    assert used(session) == ["GPU-0"]
    session.add(process(100, gpu_uuids=["GPU-1"]))
    assert used(session) == ["GPU-1"]


@pytest.mark.parametrize("span", ["recent", "whole"])
def test_a_gpu_whose_process_has_ended_was_used_all_the_same(span):
    """At the end of a run its driver lists no process any more; torch before 2.5 does not tell which GPU it is."""
    held = [gpu(t, pids=[100], processes=[GpuProcess(100, 7)]) for t in range(1, 11)]
    session = one_process(loop(10, {"forward": 100.0}), held, gpu(11), process(100, t=11.0, ended=True))
    (row,) = session.over(span).gpus()
    assert (row.used_by_run, [*row.run_pids]) == (True, [100])


def test_the_histories_of_a_whole_run_are_of_its_steps():
    session = one_process(gpu_uuids=["GPU-0"])
    for t in range(1, 2001):
        session.add(steps(t, {"forward": 100.0} if t > 10 else {}, count=10 if t > 10 else 0, first_index=10 * t))
        session.add(gpu(t, util_ratio=0.5 if t > 10 else 0.0, memory_used_bytes=2 << 30 if t == 20 else 1 << 30))
    (row,) = session.over("whole").gpus()
    assert set(row.history("util_ratio")[1:]) == {0.5} and max(row.history("memory_used_bytes")) == 2 << 30
    assert 400 < len(row.history("util_ratio")) < 1100
    assert only(session).history("util_ratio") == (0.5,) * 512


def test_throttling_over_the_window():
    session = session_of(*(gpu(t, throttled=[Throttle("power brake", 1.0)]) for t in range(21)))  # before the window
    for t in range(21, 51):
        counted = [Throttle("power cap", 0.5)] if t > 35 else []
        moments = [Throttle("application clocks")] if t > 38 else []
        session.add(gpu(t, throttled=counted + moments))
    assert only(session).throttled == (("application clocks", pytest.approx(0.4)), ("power cap", pytest.approx(0.25)))


@pytest.mark.parametrize("span", ["recent", "whole"])
def test_memory_and_throttling_are_those_of_the_steps(span):
    """A run gives its memory back at its end, and its GPU cools down."""
    session = one_process(gpu_uuids=["GPU-0"])
    for t in range(1, 61):
        does_step = t <= 40
        session.add(steps(t, {"forward": 100.0} if does_step else {}, count=10 * does_step, first_index=10 * t))
        hot = [Throttle("thermal (hardware)", 0.6)] if does_step else [Throttle("power cap", 0.9)]
        session.add(gpu(t, memory_used_bytes=60 if does_step else 2, memory_total_bytes=80, throttled=hot))
    (row,) = session.over(span).gpus()
    assert (row.memory_ratio, row.latest.memory_ratio) == (0.75, 0.025)
    assert row.throttled == (("thermal (hardware)", pytest.approx(0.6)),)


def test_errors_since_the_run_began_and_what_is_told_once():
    first, later = (
        gpu(1, xids=[13], compute_capability=9.0, ecc_errors=0),
        [gpu(t, ecc_errors=2) for t in range(2, 100)],
    )
    row = only(session_of(first, later, gpu(100, xids=[31, 79], ecc_errors=2)))
    assert (row.xids, row.latest.compute_capability, row.latest.ecc_errors) == ((13, 31, 79), 9.0, 2)


def test_packets_sent_again_count_for_the_minute_after_they_were_counted():
    session = session_of(gpu(0, pcie_replays=500))
    resent = []
    for t, counted in ((1, None), (60, 540), (61, None), (119, None), (125, None), (180, 541), (240, 2)):
        session.add(gpu(t, pcie_replays=counted))
        resent.append(only(session).resent_per_min)
    assert resent == [0, 40, 40, 40, 0, 1, 0]


def run_of(gpus, seconds=20, **process_facts):
    """Ten steps a second, on GPUs that draw so many watts each."""
    drawn = [
        gpu(t, index, energy_j=None if watts is None else 5000.0 + watts * t)
        for t in range(1, seconds + 1)
        for index, watts in enumerate(gpus)
    ]
    return one_process(loop(seconds, {"forward": 100.0}), drawn, **process_facts)


def joules(session):
    rows = session.over("recent").gpus()
    return {row.latest.uuid: row.joules_per_step for row in rows if row.joules_per_step is not None}


def test_joules_are_not_known_without_counter_steps_or_owner():
    assert joules(run_of([300.0, None], gpu_uuids=["GPU-0", "GPU-1"])) == {}
    assert joules(run_of([300.0], gpu_uuids=[])) == {}
    assert joules(run_of([300.0], gpu_uuids=["GPU-0", "GPU-9"])) == {}
    assert joules(run_of([300.0], seconds=3, gpu_uuids=["GPU-0"])) == {}  # too short a time to tell
    idle = session_of(process(100, gpu_uuids=["GPU-0"]), *(gpu(t, energy_j=10.0 * t) for t in range(20)))
    assert joules(idle) == {}


def test_a_driver_that_was_loaded_anew_counts_from_zero():
    counted = [gpu(t, energy_j=(9000.0 if t < 10 else 0.0) + 100.0 * t) for t in range(1, 21)]
    session = session_of(process(100, gpu_uuids=["GPU-0"]), loop(20, {"forward": 100.0}), counted)
    assert joules(session) == {"GPU-0": pytest.approx(10.0)}


def test_figures_are_old_after_three_windows():
    rows = [only(session_of(header(), gpu(60), process(100, t=t))) for t in (67.0, 69.0)]
    assert [row.is_old for row in rows] == [False, True]
    long = structs.replace(header(), interval_s=60.0)
    assert not only(session_of(long, gpu(60), process(100, t=119.0))).is_old
