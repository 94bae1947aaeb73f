"""How well a GPU works that sets the pace: on simulated trainings, and on logs of an H100 with one fact altered."""

import msgspec
import pytest

from tests.diagnosis.gpu import CONVOLUTION, FORWARD, ITEM, MODULE, PID, USUAL, findings, gpu, session_of
from tests.gpu_simulator.sessions import UUID
from tests.session.records import process
from tests.verdicts import accepted_reports
from tuimon.diagnosis.evidence.evidence import evidence_of
from tuimon.diagnosis.judging import diagnose
from tuimon.records import Loader, LoaderFacts, MeasuredBatches, TorchMemory, TraceTaken

#: PCIe counters that show next to no copies.
NO_COPIES = {"pcie_rx_bytes_per_s": 1e6, "pcie_tx_bytes_per_s": 1e6}


def findings_of(run):
    """Those that were accepted of an altered run, by rule and cause, the most important first."""
    return {"/".join(filter(None, (each.rule, each.cause))): each for each in ALTERED[run].findings}


ALTERED = accepted_reports("altered")
AS_IT_SHOULD_BE = "compute_bound", "as it should be", "leave the loop"
MEMORY_TRAFFIC = "compute_bound/memory_traffic", "bound by its memory: 92 %", "fuse kernels"
FEW_PRODUCTS = "compute_bound/few_products", "most of its kernels do not use them", "run tuimon trace"


@pytest.mark.parametrize(
    ("run", "name", "says", "fix"),
    [
        ("few_sms", "compute_bound/few_sms", "but with only 6 % of its SMs", "fewer, larger kernels"),
        ("some_sms", "compute_bound/few_sms", "but with only 40 % of its SMs", "fewer, larger kernels"),
        ("memory_traffic", *MEMORY_TRAFFIC),
        ("memory_traffic_by_some_sms", *MEMORY_TRAFFIC),
        ("memory_traffic_in_half", *MEMORY_TRAFFIC),
        ("in_half", *AS_IT_SHOULD_BE),
        ("idle_at_the_end", *AS_IT_SHOULD_BE),
        ("before_hopper", *AS_IT_SHOULD_BE),
        ("at_little_power", "compute_bound/low_power", "26 % of its power limit at full clock: a weak", "tuimon trace"),
        ("at_low_clocks", *AS_IT_SHOULD_BE),
        ("other_streams", "compute_bound/other_streams", "60 % in work that its events do not", "tuimon trace"),
        ("half_without_products", *FEW_PRODUCTS),
        ("tf32_without_products", *FEW_PRODUCTS),
        ("dead_counters", *AS_IT_SHOULD_BE),
        ("float64", "slow_setting/float64", "takes 90 to 99 % of each step", "use float32"),
    ],
)
def test_a_busy_gpu_is_judged_by_what_it_does(run, name, says, fix):
    found = findings_of(run)
    assert found.keys() - {"sync_point", "throttled"} == {name}
    assert says in found[name].headline and fix in found[name].action


@pytest.mark.parametrize(
    ("run", "name", "says"),
    [
        ("power_limit_lowered_midway", "throttled", "with a limit of 300 W instead of 700 W"),
        ("fell_off_the_bus", "gpu_health", "Xid 79: the GPU has fallen off the bus"),
        ("resends", "gpu_health", "resends 80 packets a minute"),
        ("hot_while_idle", "throttled", "thermal (hardware)"),
        ("second_gpu_unused", "idle_gpu/unused", "nothing runs on GPU 1: the training uses 1 of 2 GPUs"),
        ("ranks_on_one_gpu", "neighbour", "3 ranks share GPU 0"),
        ("others_until_the_end", "neighbour", "process 99 takes 50 % of GPU 0's time: the training waits meanwhile"),
    ],
)
def test_one_altered_fact_is_told(run, name, says):
    assert says in findings_of(run)[name].headline


@pytest.mark.parametrize(
    ("run", "first", "headline"),
    [
        ("dead_counters_midway", "low_precision_unused", ": lower precision is not used"),
        ("utilisation_of_nothing", "sync_point", "the GPU then idles, 19 to 35 % of each step"),
        ("mig_instance_that_waits", "sync_point", "the GPU then idles, up to 36 % of each step"),
    ],
)
def test_counters_that_others_contradict_or_that_are_absent_change_no_verdict(run, first, headline):
    found = findings_of(run)
    assert next(iter(found)) == first
    assert headline in found[first].headline


def test_a_link_that_copies_do_not_use_is_not_slow():
    assert "throttled" in findings_of("slow_link")
    assert "throttled" not in findings_of("slow_link_beside_c2c")


@pytest.mark.parametrize("run", ["beside_an_idle_one", "others_after_the_end"])
def test_a_process_that_takes_no_time_of_the_steps_changes_nothing(run):
    alone = accepted_reports("logs")["h100_guard_in_every_layer"]
    assert [*findings_of(run).values()] == alone.findings


def test_idle_time_that_launches_explain_has_no_unknown_cause() -> None:
    """Its fixes gain too little for a warning, as no larger batch fits into the memory."""
    assert [*findings_of("no_memory_left")] == ["launch_bound"]


def test_counters_that_events_contradict_advise_nothing():
    """NVML reads 0 while events show work."""
    found = findings_of("counters_of_nothing")
    assert found.keys() == {"sync_point", "compute_bound"}
    assert found["compute_bound"].headline.startswith("GPU idle time unknown: CUDA events say at most 27 %")
    assert "idle_gpu" not in findings("gpu_bound", *USUAL, util=0.0, seconds=60.0, pids=[PID])


TF32 = "use torch.set_float32_matmul_precision('high') (TF32), or torch.autocast('cuda', torch.bfloat16)"
FLOAT16 = "use torch.autocast('cuda', torch.float16) with torch.amp.GradScaler('cuda')"
UNKNOWN_PART = "an unknown part in products of float32: its tensor cores idle"


@pytest.mark.parametrize(
    ("run", "says", "fix", "low", "high"),
    [
        ("a100_in_full", UNKNOWN_PART, TF32, None, None),
        ("a100_in_full_traced", "at least 38 % in products of float32: its", TF32, 1.38, None),
        ("a100_in_full_at_little_power", "26 % of its power limit at full clock, a weak sign of few", TF32, None, None),
        ("l4_in_full_while_waiting", UNKNOWN_PART, TF32, None, 1.73),
        ("rtx_3090_in_full_traced", UNKNOWN_PART, TF32, None, None),  # the peaks of TF32 and float32 are equal
        ("t4_in_full", UNKNOWN_PART, FLOAT16, None, None),
        ("v100_in_bfloat16", "an unknown part in products of bfloat16", FLOAT16, None, None),
    ],
)
def test_before_hopper_types_and_settings_show_that_tensor_cores_idle(run, says, fix, low, high):
    found = findings_of(run)["low_precision_unused"]
    assert says in found.headline
    assert found.action.startswith(fix)
    assert [found.fixes[0].low, found.fixes[0].high] == pytest.approx([low, high], abs=0.02)
    assert not any("as it should be" in each.headline for each in findings_of(run).values())


@pytest.mark.parametrize("run", ["a100_in_tf32", "a100_of_unknown_products", "p100_in_full", "mi300x_in_full"])
def test_tensor_cores_that_are_absent_or_may_be_used_are_not_said_to_idle(run):
    assert "low_precision_unused" not in findings_of(run)


def test_what_may_be_used_is_named_beside_a_busy_gpu():
    busy = findings_of("a100_of_unknown_products")["compute_bound"]
    assert f"lower precision ({TF32.removeprefix('use ')})" in busy.fixes[-1].action


@pytest.mark.parametrize(
    ("cudnn_tf32", "layer", "speaks"), [(True, MODULE, True), (True, CONVOLUTION, False), (False, CONVOLUTION, True)]
)
def test_convolutions_use_tf32_by_default(cudnn_tf32, layer, speaks):
    facts = msgspec.structs.replace(FLOAT32, matmul_dtypes=["float32"], cudnn_tf32=cudnn_tf32)
    found = findings("gpu_bound", ([FORWARD, layer], 30), *USUAL[1:], util=0.99, compute_capability=8.0, more=[facts])
    assert ("low_precision_unused" in found) == speaks


FLOAT32 = process(PID, torch="2.13.0+cu130", gpu_uuids=[UUID], parameter_dtypes=["float32"], tf32=False)
HALF = process(PID, torch="2.13.0+cu130", gpu_uuids=[UUID], parameter_dtypes=["bfloat16"], tf32=False)


def test_idle_tensor_cores_of_a_busy_gpu():
    finding = findings("gpu_bound", *USUAL, util=0.99, tensor_ratio=0.004, more=[FLOAT32])["low_precision_unused"]
    assert finding.severity == "info"
    assert "0.4 %" in finding.headline
    assert "set_float32_matmul_precision('high')" in finding.action


@pytest.mark.parametrize(
    ("tf32", "cudnn_tf32", "action"),
    [
        (False, True, "use torch.set_float32_matmul_precision('high') (TF32), or"),
        (True, False, "use torch.backends.cudnn.allow_tf32 = True (TF32), or"),
        (None, False, "use torch.set_float32_matmul_precision('high') and torch.backends.cudnn.allow_tf32 = True"),
        (True, True, None),
    ],
)
def test_of_the_two_settings_of_tf32_that_which_is_off_is_advised(tf32, cudnn_tf32, action):
    facts = msgspec.structs.replace(FLOAT32, tf32=tf32, cudnn_tf32=cudnn_tf32)
    found = findings("gpu_bound", *USUAL, util=0.99, tensor_ratio=0.004, more=[facts]).get("low_precision_unused")
    assert (found is not None) == (action is not None)
    assert found is None or found.action.startswith(action)


def test_without_facts_of_the_process_the_counters_show_enough():
    finding = findings("gpu_bound", *USUAL, util=0.99, tensor_ratio=0.0)["low_precision_unused"]
    assert finding.headline.endswith("lower precision is not used")


@pytest.mark.parametrize(
    ("kind", "figures"),
    [
        ("gpu_bound", {"tensor_ratio": 0.3}),
        ("gpu_bound", {"tensor_ratio": None}),
        ("launch_bound", {"tensor_ratio": 0.0}),
        ("gpu_bound", {"tensor_ratio": 0.0, "more": [HALF]}),
    ],
)
def test_it_abstains_where_tensor_cores_work_are_unknown_in_use_already_or_would_not_help(kind, figures):
    assert "low_precision_unused" not in findings(kind, *USUAL, util=0.9, **figures)


def test_where_nvml_contradicts_the_events_neither_is_believed():
    found = findings("gpu_bound", ([ITEM], 90), *USUAL[:2], util=0.32, cpu=0.98, **NO_COPIES)
    finding = found["compute_bound"]
    assert finding.severity == "info"
    assert "as it should be" not in finding.headline
    assert "unknown: CUDA events say at most 0 %, NVML's utilisation at least 6" in finding.headline
    assert not {"spin_wait", "queue_full", "low_precision_unused"} & found.keys()
    assert finding.action.startswith("run tuimon trace")
    trace = TraceTaken(t=1010.0, pid=PID, begin_s=1009.0, end_s=1010.0, steps=5, wanted=5, file="t.json.gz",
                       gpu_span_ns=1_000_000_000, gpu_busy_ns=400_000_000)  # fmt: skip
    found = findings("gpu_bound", ([ITEM], 90), *USUAL[:2], util=0.32, cpu=0.98, more=[trace], **NO_COPIES)
    assert found["compute_bound"].action.startswith("trust the trace: the GPU idled 60 % of the traced steps")


@pytest.mark.parametrize(("world_size", "praised"), [(None, True), (1, True), (2, False), (8, False)])
def test_with_several_ranks_a_busy_gpu_may_be_waiting_for_the_others(world_size, praised):
    ranks = process(PID, torch="2.13.0+cu130", gpu_uuids=[UUID], rank=0, world_size=world_size)
    found = findings("gpu_bound", ([ITEM], 90), *USUAL[:2], util=0.99, cpu=0.98, more=[ranks])
    assert ("as it should be" in found["compute_bound"].headline) == praised
    assert ("an unknown part of that is waiting for the other ranks" in found["compute_bound"].headline) != praised


@pytest.mark.parametrize(("padding", "cause", "severity"), [(0, None, "benign"), (8_600, "padding", "critical")])
def test_a_busy_gpu_that_computes_padding_is_not_as_it_should_be(padding, cause, severity):
    measured = MeasuredBatches(10, 10 << 14, 160, 10, None, 10_000, padding, tensors=30)
    facts = {"facts": LoaderFacts("Rows", "map", 4, batch_size=16), "batches": measured}
    texts = Loader(t=1020.0, pid=PID, window_s=10.0, number=0, role="train", fetches=600, **facts)
    found = findings("gpu_bound", *USUAL, more=[texts])["compute_bound"]
    assert (found.cause, found.severity) == (cause, severity)
    assert ("as it should be" in found.headline, "leave the loop" in found.action) == (cause is None, cause is None)
    assert cause is None or 1.5 < found.best.gain.low < found.best.gain.high <= 1 / (1 - found.share_of_step)


@pytest.mark.parametrize(("dtype", "is_advised"), [("float32", True), ("bfloat16", False)])
def test_a_busy_gpu_is_not_advised_what_is_so_already(dtype, is_advised):
    facts = process(PID, gpu_uuids=[UUID], parameter_dtypes=[dtype], matmul_dtypes=[dtype])
    found = findings("gpu_bound", *USUAL, more=[facts])["compute_bound"]
    assert ("lower precision" in found.fixes[-1].action) == is_advised


SMALL = {"memory_used_bytes": 8 << 30, "memory_total_bytes": 80 << 30}


def without_events(**figures):
    session = session_of("queue_full", *USUAL, **figures)
    session.gpu_times.clear()
    return session


def test_a_gpu_with_room_for_more():
    (finding,) = (f for f in diagnose(without_events(util=0.3, **SMALL)) if f.rule == "small_batch")
    assert finding.severity == "info"
    assert all(fact in finding.headline for fact in ("GPU 0", "30 % of the time", "10 % of its memory"))


GIB = 1 << 30


@pytest.mark.parametrize(
    ("others", "times"), [(0, 2), (40, None)], ids=["alone", "beside a program that holds half of the GPU"]
)
def test_a_larger_batch_has_to_fit_beside_others(others, times):
    """Twice the 30 GiB that torch holds."""
    session = without_events(util=0.3, memory_used_bytes=(32 + others) * GIB, memory_total_bytes=80 * GIB)
    t, steps = session.now_s, session.shown().of(PID).steps
    facts = LoaderFacts(dataset="D", kind="map", workers=2, batch_size=32)
    session.add(Loader(t=t, pid=PID, number=0, window_s=1.0, role="train", fetches=steps.total, facts=facts))
    session.add(TorchMemory(t=t, pid=PID, device=0, allocated_bytes=30 * GIB, reserved_bytes=32 * GIB))
    found = [finding for finding in diagnose(session) if finding.rule == "small_batch"]
    assert len(found) == (times is not None)
    for finding in found:
        action = finding.fixes[0].action
        assert "use a batch 2x as large" in action
        assert "at most 62 GiB of its 80 GiB are then in use" in action


def test_where_torch_does_not_tell_its_memory_all_that_is_used_may_grow_with_the_batch():
    found = without_events(util=0.3, memory_used_bytes=30 * GIB, memory_total_bytes=80 * GIB)
    (larger,) = (finding.action for finding in diagnose(found) if finding.rule == "small_batch")
    assert "at most 60 GiB of its 80 GiB are then in use" in larger
    half = without_events(util=0.3, memory_used_bytes=38 * GIB, memory_total_bytes=80 * GIB)
    assert "small_batch" not in {finding.rule for finding in diagnose(half)}


@pytest.mark.parametrize("figures", [{"util": 0.6, **SMALL}, {"util": 0.3}, {}])
def test_a_full_one_or_an_unknown_one_is_not_reported(figures):
    assert "small_batch" not in {f.rule for f in diagnose(without_events(**figures))}


def test_what_explains_an_idle_gpu_better_is_reported_instead():
    assert "small_batch" not in findings("launch_bound", *USUAL, util=0.3, **SMALL)
    assert "small_batch" not in findings("data_starved", *USUAL, util=0.3, **SMALL)


def test_each_rank_is_judged_by_its_own_gpu():
    second = process(300, rank=1, torch="2.13.0+cu130", gpu_uuids=["GPU-second"])
    others = msgspec.structs.replace(gpu(1020.0, 0.1), uuid="GPU-second", index=1)
    session = session_of("gpu_bound", *USUAL, util=0.99, more=[second, others])
    assert [row.latest.uuid for row in evidence_of(session.over("recent").of(PID)).gpu.rows] == [UUID]
    assert [row.latest.uuid for row in evidence_of(session.over("recent").of(300)).gpu.rows] == ["GPU-second"]
    assert len(evidence_of(session.over("recent").of(301)).gpu.rows) == 2  # it has not reported which
    session.add(process(302, rank=2, torch="2.13.0+cu130", gpu_uuids=["GPU-lost"]))  # which gives no figures
    assert evidence_of(session.over("recent").of(302)).gpu.rows == ()
