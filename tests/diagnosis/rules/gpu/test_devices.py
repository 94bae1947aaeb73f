"""GPUs that do nothing, and processes far from their GPU, on literal sessions."""

import pytest

from tests.diagnosis.cpu import AUGMENT, HEALTHY
from tests.session.records import by_rule, header, loop, process, session_of
from tuimon.records import Gpu, GpuProcess, MachineMemory, PlacedProcess

BUSY, IDLE = 0.9, 0.0
LASTS_S = 40


def gpu(t, index, util, **more):
    facts = {"memory_total_bytes": 80 << 30, "memory_used_bytes": 1 << 20, "name": "A GPU"}
    return Gpu(t=float(t), pid=0, index=index, uuid=f"GPU-{index}", util_ratio=util, **(facts | more))


def rank(number, *uuids, **more):
    facts = {"torch": "2.13.0+cu130", "gpu_uuids": [f"GPU-{uuid}" for uuid in uuids], "rank": number, "world_size": 4}
    return process(100 + number, **(facts | more))


def alone(*uuids, **more):
    return rank(0, *uuids, **({"rank": None, "world_size": None} | more))


def found(processes, gpus, phases=HEALTHY, seconds=LASTS_S, rule="idle_gpu", more=()):
    """The finding of a rule, or None; ``gpus``: (utilisation, more facts) of each."""
    made = [loop(seconds, phases, pid=each.pid) for each in processes if each.role == "trainer"]
    counters = [gpu(t, n, util, **facts) for t in range(1, seconds + 1) for n, (util, facts) in enumerate(gpus)]
    return by_rule(session_of(header(), AUGMENT, processes, made, counters, more)).get(rule)


# -- unused


def test_a_named_gpu_that_nobody_uses():
    finding = found([alone(0)], [(BUSY, {"chosen": True}), (IDLE, {"chosen": True}), (IDLE, {})])
    assert (finding.severity, finding.cause) == ("info", "unused")
    assert finding.headline == "nothing runs on GPU 1: the training uses 1 of 2 GPUs"
    assert finding.action.startswith("train on all 2 (torchrun --nproc-per-node 2,")
    assert finding.best.estimated_speedup is None


def test_several_of_them_beside_ranks():
    gpus = [(BUSY, {}), (BUSY, {}), (IDLE, {}), (IDLE, {})]
    finding = found([rank(0, 0), rank(1, 1)], gpus)
    assert finding.headline == "nothing runs on GPU 2, 3: the training uses 2 of 4 GPUs"


@pytest.mark.parametrize(
    ("util", "facts"),
    [
        (IDLE, {"pids": [7], "processes": [GpuProcess(7, 9 << 30)]}),  # of another job, which rests
        (0.5, {}),  # of another container: the driver does not list it
        (IDLE, {"memory_used_bytes": 20 << 30}),
        (IDLE, {"name": "A small GPU"}),
        (None, {}),
    ],
)
def test_gpus_that_others_use_or_that_are_unlike_the_one_in_use_are_left_out(util, facts):
    assert found([alone(0)], [(BUSY, {}), (util, facts)]) is None


def test_a_run_that_uses_all_it_has_is_in_order():
    assert found([alone(0)], [(BUSY, {})]) is None
    assert found([alone(0)], [(BUSY, {"chosen": True}), (IDLE, {})]) is None
    assert found([rank(0, 0), rank(1, 1)], [(BUSY, {"chosen": True}), (0.3, {"chosen": True})]) is None


def test_a_run_that_has_just_begun_is_not_judged():
    assert found([alone(0)], [(BUSY, {"chosen": True}), (IDLE, {"chosen": True})], seconds=20) is None


def test_a_gpu_that_has_worked_once_does_something():
    gpus = [(gpu(t, 0, BUSY), gpu(t, 1, 0.8 if t == 5 else IDLE)) for t in range(1, LASTS_S + 1)]  # an evaluation
    assert "idle_gpu" not in by_rule(session_of(header(), AUGMENT, alone(0, 1), loop(LASTS_S, HEALTHY), gpus))


# -- held


def test_a_gpu_that_is_held_without_a_kernel():
    held = {"pids": [100], "processes": [GpuProcess(100, 3 << 30)], "memory_used_bytes": 3 << 30}
    finding = found([alone(0, 1)], [(BUSY, {"pids": [100]}), (IDLE, held)])
    assert finding.cause == "held"
    assert finding.headline == "the training holds GPU 1, and runs no kernel there"


# -- a model on the CPU


def test_a_model_on_the_cpu_beside_the_gpu_that_it_was_given():
    finding = found([alone()], [(IDLE, {"chosen": True})], rule="compute_bound_cpu")
    assert "move the model and each batch to GPU 0" in finding.action
    assert found([alone()], [(IDLE, {"chosen": True})]) is None  # told once


def test_a_model_on_the_cpu_beside_a_gpu_with_a_context():
    held = {"pids": [100], "processes": [GpuProcess(100, 400 << 20)]}
    finding = found([alone(0)], [(IDLE, held)], rule="compute_bound_cpu")
    assert "to GPU 0" in finding.action


def test_where_little_is_computed_the_idle_gpu_is_told_for_itself():
    waiting = {"data": 80, "forward": 8, "backward": 8, "optimizer": 2, "other": 2}
    finding = found([alone(torch="2.13.0+cpu")], [(IDLE, {"chosen": True})], waiting)
    assert finding.cause == "model_on_cpu"
    assert finding.headline == "no kernel runs on GPU 0: the model computes on the CPU"
    assert "a build with CUDA" in finding.action


def test_a_gpu_of_another_job_is_not_advised():
    others = {"pids": [7], "processes": [GpuProcess(7, 9 << 30)]}
    finding = found([alone(torch="2.13.0+cpu")], [(0.5, others)], rule="compute_bound_cpu")
    assert "GPU 0" not in finding.action


# -- contexts


def test_ranks_that_hold_memory_of_another_ranks_gpu():
    everyone = [GpuProcess(100, 9 << 30, 0.9), GpuProcess(101, 512 << 20), GpuProcess(102, 512 << 20)]
    ranks = [rank(0, 0), rank(1, 1), rank(2, 2)]
    gpus = [(BUSY, {"pids": [100, 101, 102], "processes": everyone}), (BUSY, {}), (BUSY, {})]
    finding = found(ranks, gpus)
    assert finding.cause == "context"
    assert finding.headline == "memory of GPU 0 is held but not used by 2 ranks"
    assert "set_device(local_rank)" in finding.action


def test_workers_that_hold_a_context():
    processes = [GpuProcess(100, 9 << 30, 0.9), GpuProcess(201, 512 << 20)]
    workers = [alone(0), process(201, "worker", ppid=100)]
    finding = found(workers, [(BUSY, {"pids": [100, 201], "processes": processes})])
    assert finding.headline == "memory of GPU 0 is held but not used by 1 DataLoader worker"


def test_workers_that_compute_on_the_gpu_are_in_order():
    processes = [GpuProcess(100, 9 << 30, 0.9), GpuProcess(201, 512 << 20, 0.2)]
    workers = [alone(0), process(201, "worker", ppid=100)]
    assert found(workers, [(BUSY, {"pids": [100, 201], "processes": processes})]) is None


# -- placement


def placed(processes, gpus, places, readings=8):
    """The finding of ``placement``, or None; ``places``: [node that it ran on, nodes that it may use] of each."""
    read = []
    for reading in range(readings):
        rows = [
            PlacedProcess(each.pid, ran_on[reading % len(ran_on)], allowed)
            for each, (ran_on, allowed) in zip(processes, places, strict=True)
        ]
        read.append(MachineMemory(t=LASTS_S + reading / 100, pid=0, window_s=5.0, placed=rows))
    return found(processes, [(BUSY, {"near_nodes": near}) for near in gpus], rule="placement", more=read)


def test_a_rank_that_runs_on_the_other_node():
    finding = placed([rank(0, 0), rank(1, 1)], [[0], [1]], [([0], [0, 1]), ([0], [0, 1])])
    assert finding.severity == "info"
    assert finding.headline == "GPU 1 is attached to NUMA node 1, and its process runs on node 0"
    assert "torchrun --numa-binding=node, or numactl --cpunodebind=1" in finding.action
    assert (finding.evidence["ranks_far"], finding.evidence["ranks"]) == (1, 2)


def test_a_process_that_may_only_run_on_the_other_node():
    finding = placed([alone(0)], [[1]], [([0], [0])], readings=1)
    assert finding.headline == "GPU 0 is attached to NUMA node 1, and its process may only run on node 0"
    assert "change what binds it" in finding.action


@pytest.mark.parametrize(
    ("near", "place", "readings"),
    [
        ([0], ([0], [0, 1]), 8),  # where it belongs
        ([1], ([0, 1], [0, 1]), 8),  # now here, now there
        ([1], ([0], [0, 1]), 3),  # too few readings
        ([1, 0], ([0], [0]), 8),  # two nodes of one socket
        (None, ([0], [0]), 8),  # the firmware does not tell
        ([0], ([0], [0]), 0),  # a machine of one node
    ],
)
def test_what_is_in_place_or_unknown_is_not_reported(near, place, readings):
    assert placed([alone(0)], [near], [place], readings) is None
