"""Communication between ranks on literal sessions."""

import pytest

from tests.diagnosis.cpu import AUGMENT, BACKWARD, FORWARD
from tests.session.records import by_rule, extend, frames, header, loop, rank, session_of, stacks, thread
from tuimon.records import CollectiveCount, CollectiveCounts, Frame

LINES = frames(
    ("train.py", 54, "main", "dist.all_reduce(loss)", True),
    ("/lib/site-packages/torch/distributed/distributed_c10d.py", 2000, "all_reduce"),
    ("train.py", 50, "main", "time.sleep(0.01)", True),
    ("/lib/site-packages/torch/distributed/_functional_collectives.py", 142, "wait_tensor"),
    ("/lib/site-packages/torch/_ops.py", 1279, "__call__"),
    ("/lib/site-packages/torch/distributed/algorithms/ddp_comm_hooks/powerSGD_hook.py", 34, "_orthogonalize"),
    first=12,
)
PHASES = {"forward": 30, "backward": 60, "optimizer": 5, "other": 5}


def ranks(*of_each, counted=((FORWARD, 30), (BACKWARD, 60)), phases=PHASES, world_size=2, more=(), **facts):
    """Ranks of like steps; ``of_each``: CPU of the training thread, run-queue delay."""
    session = session_of(header(cpu_count=8), AUGMENT, LINES)
    for pid, (cpu, delay) in enumerate(of_each, 100):
        extend(session, rank(pid - 100, of=world_size, **facts), loop(11, phases, pid=pid))
        extend(session, more, stacks(11, *counted, pid=pid), thread(11, cpu, delay, pid=pid))
    return by_rule(session)


def test_waiting_inside_backward_is_the_all_reduce():
    finding = ranks((0.55, 0.0), (0.65, 0.0))["comm_bound"]
    assert (finding.severity, finding.where) == ("critical", ())
    assert finding.share_of_step == pytest.approx(0.35)  # of the rank that waits least
    assert finding.estimated_speedup == pytest.approx(1 / 0.65)
    assert len(finding.fixes) == 1
    assert "no_sync()" in finding.action and "changes the training" in finding.action
    assert "35 % of each step" in finding.headline and "2 ranks, inside backward" in finding.headline


def test_a_hook_that_compresses_gradients_is_left_out_and_no_other_is_advised():
    finding = ranks((0.55, 0.0), (0.65, 0.0), counted=((FORWARD, 30), (BACKWARD, 40), ([*BACKWARD, 17], 20)))[
        "comm_bound"
    ]
    assert finding.headline.endswith("inside backward, with a communication hook (powerSGD_hook.py)")
    assert finding.action.startswith("leave out the communication hook (torch's powerSGD_hook.py)")
    assert "bf16" not in finding.action and finding.best.most == pytest.approx(1 / 0.65)


def test_checks_of_every_collective_are_to_be_turned_off_first():
    finding = ranks((0.55, 0.0), (0.65, 0.0), debug_settings=["distributed_debug"])["comm_bound"]
    assert "TORCH_DISTRIBUTED_DEBUG" in finding.action
    assert (finding.estimated_speedup, finding.fixes[1:]) == (None, ())
    plain = ranks((0.55, 0.0), (0.65, 0.0), debug_settings=["anomaly_detection"])["comm_bound"]
    assert "TORCH_DISTRIBUTED_DEBUG" not in plain.action


@pytest.mark.parametrize(
    ("line", "library", "advice"),
    [
        ("values = metrics(y, t)", "torchmetrics/metric.py", "let the metrics at main() train.py:70 exchange once"),
        (
            "self.log('loss', loss, sync_dist=True)",
            "torchmetrics/metric.py",
            "call log() at main() train.py:70 without",
        ),
        ("group = dist.new_group([0, 1])", "", "make the group at main() train.py:70 once, before the loop"),
        ("model = DDP(model)", "", "wrap the model at main() train.py:70 once, before the loop"),
        ("dist.all_gather_object(names, name)", "", "exchange tensors instead of objects at main() train.py:70"),
        ("accelerator.wait_for_everyone()", "accelerate/accelerator.py", "leave out the barrier at main() train.py:70"),
        ("dist.broadcast(scale, src=0)", "", "exchange less often at main() train.py:70, or everything with one call"),
        ("loss = model(x)", "", "accumulate gradients of n batches under no_sync()"),  # FullyShardedDataParallel's
    ],
)
def test_an_exchange_outside_backward_is_advised_on_by_its_line(line, library, advice):
    calls = [
        ("train.py", 70, "main", line, True),
        ("/lib/site-packages/torch/distributed/c10d_logger.py", 83, "wrapper"),
    ]
    through = [(f"/lib/site-packages/{library}", 518, "sync")] if library else []
    counted = ((FORWARD, 30), (BACKWARD, 50), ([60, 61, 62][: 2 + len(through)], 20))
    more, phases = [frames(calls[0], *through, calls[1], first=60)], {"forward": 30, "backward": 50, "other": 20}
    finding = ranks((0.98, 0.0), (0.98, 0.0), counted=counted, phases=phases, more=more)["comm_bound"]
    assert finding.action.startswith(advice) and ("no_sync()" in finding.action) is finding.best.changes_training
    assert (finding.where[0].line, finding.share_of_step) == (70, pytest.approx(0.2))


LOOP = frames(
    Frame("train.py", 60, "average", "dist.all_reduce(p.grad)", user=True, loop=True),
    Frame("train.py", 50, "main", "dist.all_reduce(p.grad)", user=True, loop=True, loops=2),
    first=90,
)


@pytest.mark.parametrize(
    ("calls", "stack", "at_once"),
    [
        (16, [12, 13], True),  # as the recorder counts them, of a step of four
        (4, [12, 13], False),
        (0, [12, 90, 13], True),  # in a loop of a function of its own
        (0, [91, 13], True),  # in one within the training's
        (0, [12, 13], False),  # the loop around it may be the training's
        (4, [12, 90, 13], False),
    ],
)
def test_one_exchange_instead_of_many_is_advised_where_there_are_many(calls, stack, at_once):
    counted, phases = ((FORWARD, 30), (BACKWARD, 50), (stack, 20)), {"forward": 30, "backward": 50, "other": 20}
    row = CollectiveCount("all_reduce", calls, calls << 20, 1 << 20)
    more = [LOOP, *([CollectiveCounts(t=11, pid=100, steps=4, collectives=[row])] if calls else [])]
    finding = ranks((0.98, 0.0), (0.98, 0.0), counted=counted, phases=phases, more=more)["comm_bound"]
    assert ("with one call, as one flat tensor" in finding.action) is at_once
    assert "DistributedDataParallel" in finding.action
    assert finding.evidence.get("collectives") == (f"all_reduce of 1 MiB, {calls // 4} a step" if calls else None)


@pytest.mark.parametrize(
    ("counted", "text"),
    [
        ([CollectiveCount("all_reduce", 12, 300 << 20, 40 << 20)], "all_reduce of up to 40 MiB, 3 a step"),
        ([CollectiveCount("all_gather", 2, 2 << 20, 1 << 20)], "all_gather of 1 MiB, 0.5 a step"),
        ([CollectiveCount("send", 8)], "send, 2 a step"),
        ([CollectiveCount("reduce_scatter", 4, 4 << 20, 1 << 20), CollectiveCount("all_reduce", 4, 16, 4)],
         "reduce_scatter of 1 MiB, 1 a step"),
        ([CollectiveCount("all_reduce", 4, 4 << 20, 1 << 20), CollectiveCount("all_gather", 8, 2 << 20, 1 << 18)],
         "all_reduce of 1 MiB, 1 a step; all_gather of 256 KiB, 2 a step"),
    ],
)  # fmt: skip
def test_the_collectives_are_named_with_their_size_and_number(counted, text):
    more = [CollectiveCounts(t=11, pid=100, steps=4, collectives=counted)]
    assert ranks((0.55, 0.0), (0.65, 0.0), more=more)["comm_bound"].evidence["collectives"] == text


@pytest.mark.parametrize(("first", "buffers"), [("broadcast", True), ("all_reduce", False)])
def test_buffers_that_are_sent_before_each_forward_pass_need_not_be(first, buffers):
    rows = [CollectiveCount(name, 4, (32 if name == first else 1) << 20) for name in ("broadcast", "all_reduce")]
    rows.sort(key=lambda row: row.name != first)
    more = [CollectiveCounts(t=11, pid=100, steps=4, collectives=rows)]
    (fix, *_) = ranks((0.55, 0.0), (0.65, 0.0), more=more)["comm_bound"].fixes
    assert ("broadcast_buffers=False" in fix.action) is buffers and fix.changes_training is not buffers


def test_layers_that_ranks_share_exchange_whatever_is_accumulated():
    counted = ((FORWARD, 30), (BACKWARD, 40), ([*FORWARD, 15, 16], 30))
    finding = ranks((0.98, 0.0), (0.98, 0.0), counted=counted, phases={"forward": 60, "backward": 40})["comm_bound"]
    assert (finding.share_of_step, finding.where[0].line) == (pytest.approx(0.3), 46)
    assert finding.action.startswith("divide layers over fewer ranks") and finding.estimated_speedup is None


def test_shards_of_single_layers_are_to_be_joined():
    gathers = frames(
        ("/lib/site-packages/torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py", 364, "foreach"), first=90
    )
    counted = ((FORWARD, 30), (BACKWARD, 40), ([*FORWARD, 90, 13], 30))
    phases = {"forward": 60, "backward": 40}
    finding = ranks((0.98, 0.0), (0.98, 0.0), counted=counted, phases=phases, more=[gathers])["comm_bound"]
    assert finding.action.startswith("shard whole blocks") and finding.estimated_speedup is None


def test_a_share_that_may_as_well_be_below_the_threshold_is_none():
    few, many = (((FORWARD, 34 * n), (BACKWARD, 50 * n), ([12, 13], 16 * n)) for n in (1, 10))
    phases = {"forward": 34, "backward": 50, "other": 16}
    assert "comm_bound" not in ranks((0.98, 0.0), (0.98, 0.0), counted=few, phases=phases)  # 16 +- 7 %
    found = ranks((0.98, 0.0), (0.98, 0.0), counted=many, phases=phases)["comm_bound"]
    assert found.share_of_step == pytest.approx(0.16)


def test_what_else_waits_is_known_no_better_than_its_samples():
    for samples, is_told in ((1, False), (10, True)):
        counted = ((FORWARD, 30 * samples), (BACKWARD, 46 * samples), ([14], 24 * samples))
        phases = {"forward": 30, "backward": 46, "other": 24}
        assert ("comm_bound" in ranks((0.62, 0.0), (0.62, 0.0), counted=counted, phases=phases)) is is_told


@pytest.mark.parametrize(
    ("of_each", "facts"),
    [
        ([(0.97, 0.0), (0.96, 0.0)], {}),
        ([(0.55, 0.42), (0.55, 0.42)], {}),  # they wait for a core
        ([(0.3, 0.5), (0.3, 0.5)], {}),  # ... and so for each other
        ([(0.55, 0.0), (0.97, 0.0)], {}),  # the second is who the first waits for
        ([(0.5, 0.0)], {"world_size": 1}),
        ([(0.5, 0.0)], {"world_size": None}),
        ([(0.5, 0.0), (0.5, 0.0)], {"counted": ((BACKWARD, 5),)}),
        ([(0.5, None), (0.5, None)], {}),
        ([(0.5, 0.0), (0.5, 0.0)], {"torch": "2.13.0+cu130", "gpu_uuids": ["GPU-a"]}),  # in backward that shows nothing
    ],
)
def test_it_abstains_where_ranks_compute_or_it_is_unknown_whether_they_wait(of_each, facts):
    assert "comm_bound" not in ranks(*of_each, **facts)


def test_ranks_elsewhere_are_not_measured_so_no_gain_is_promised():
    assert ranks((0.5, 0.0), (0.5, 0.0), world_size=4)["comm_bound"].estimated_speedup is None
