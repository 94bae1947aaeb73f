"""Memory, tensor cores and room of a GPU: rules on simulated trainings with NVML's figures beside them."""

import msgspec
import pytest

from tests.diagnosis.gpu import PID, USUAL, findings, gpu, session_of
from tests.gpu_simulator.sessions import UUID
from tests.session.records import process
from tuimon.diagnosis import diagnose
from tuimon.diagnosis.evidence.evidence import evidence_of
from tuimon.records import Loader, LoaderFacts, TorchMemory

# -- allocator_retries


def retried(*counts, first_s=1001.0):
    return [
        TorchMemory(
            t=first_s + 15.0 + n, pid=PID, device=0, allocated_bytes=70, reserved_bytes=78, alloc_retries=count, ooms=2
        )
        for n, count in enumerate(counts)
    ]


def test_retries_after_warm_up_are_reported():
    finding = findings("gpu_bound", *USUAL, util=0.99, more=retried(4, 7))["allocator_retries"]
    assert (finding.severity, finding.evidence["retries"]) == ("warning", 3 + 4)
    assert finding.evidence["caught_ooms"] == 2
    assert "expandable_segments" in finding.action


def test_without_retries_nothing_is_reported():
    assert "allocator_retries" not in findings("gpu_bound", *USUAL)
    assert "allocator_retries" not in findings("gpu_bound", *USUAL, more=retried(0, 0))


# -- low_precision_unused


FLOAT32 = process(PID, torch="2.13.0+cu130", gpu_uuids=[UUID], parameter_dtypes=["float32"], tf32=False)
HALF = process(PID, torch="2.13.0+cu130", gpu_uuids=[UUID], parameter_dtypes=["bfloat16"], tf32=False)


def test_idle_tensor_cores_of_a_busy_gpu():
    finding = findings("gpu_bound", *USUAL, util=0.99, tensor_ratio=0.004, more=[FLOAT32])["low_precision_unused"]
    assert finding.severity == "info"
    assert "0.4 %" in finding.headline
    assert "set_float32_matmul_precision('high')" in finding.action


def test_without_facts_of_the_process_the_counters_show_enough():
    finding = findings("gpu_bound", *USUAL, util=0.99, tensor_ratio=0.0)["low_precision_unused"]
    assert finding.headline.endswith("lower precision is not used")


def test_an_older_gpu_gets_advice_that_it_can_follow():
    finding = findings("gpu_bound", *USUAL, util=0.99, tensor_ratio=0.0, compute_capability=7.5)["low_precision_unused"]
    assert "float16" in finding.action and "TF32" not in finding.action


@pytest.mark.parametrize(
    ("kind", "figures"),
    [
        ("gpu_bound", {"tensor_ratio": 0.3}),
        ("gpu_bound", {"tensor_ratio": None}),
        ("gpu_bound", {"tensor_ratio": 0.0, "compute_capability": 6.1}),
        ("gpu_bound", {"tensor_ratio": 0.0, "compute_capability": None}),
        ("launch_bound", {"tensor_ratio": 0.0}),
        ("gpu_bound", {"tensor_ratio": 0.0, "more": [HALF]}),
    ],
)
def test_it_abstains_where_tensor_cores_work_are_unknown_in_use_already_or_would_not_help(kind, figures):
    assert "low_precision_unused" not in findings(kind, *USUAL, util=0.9, **figures)


# -- small_batch


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
    t, steps = session.now_s, session.shown().steps(PID)
    facts = LoaderFacts(dataset="D", kind="map", workers=2, batch_size=32)
    session.add(Loader(t=t, pid=PID, number=0, window_s=1.0, role="train", fetches=steps.total, facts=facts))
    session.add(TorchMemory(t=t, pid=PID, device=0, allocated_bytes=30 * GIB, reserved_bytes=32 * GIB))
    found = [finding for finding in diagnose(session) if finding.rule == "small_batch"]
    assert len(found) == (times is not None)
    for finding in found:
        action = finding.fixes[0].action
        assert "use a batch 2x as large" in action
        assert "up to 62 GiB of its 80 GiB are then in use" in action


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
    assert [row.latest.uuid for row in evidence_of(session.over("recent"), PID).gpu.rows] == [UUID]
    assert [row.latest.uuid for row in evidence_of(session.over("recent"), 300).gpu.rows] == ["GPU-second"]
    assert len(evidence_of(session.over("recent"), 301).gpu.rows) == 2  # it has not reported which


@pytest.mark.parametrize(("dtype", "is_told"), [("float64", True), ("float32", False)])
def test_float64_on_a_gpu_is_told(dtype, is_told):
    """Not what it gains: that depends on the card, from next to nothing to 64 times."""
    facts = process(PID, gpu_uuids=[UUID], parameter_dtypes=[dtype], matmul_dtypes=[dtype])
    found = findings("gpu_bound", *USUAL, util=0.99, more=[facts])
    assert ("slow_setting" in found) == is_told
    assert ("compute_bound" in found) != is_told
    if is_told:
        assert (found["slow_setting"].cause, found["slow_setting"].severity) == ("float64", "warning")
        assert found["slow_setting"].fixes[0].action.startswith("use float32")
        assert found["slow_setting"].estimated_speedup is None


# -- idle_sms


def test_a_busy_gpu_whose_sms_are_idle_is_not_as_it_should_be():
    found = findings("gpu_bound", *USUAL, util=0.93, sm_ratio=0.06)
    assert "compute_bound" not in found
    assert (found["idle_sms"].severity, found["idle_sms"].evidence["sm_ratio"]) == ("info", pytest.approx(0.06))
    assert "with 6 % of its SMs" in found["idle_sms"].headline
    assert found["idle_sms"].fixes[1].action.startswith("use a batch 2x as large")


@pytest.mark.parametrize(
    ("kind", "figures"),
    [
        ("gpu_bound", {"sm_ratio": 0.8}),
        ("gpu_bound", {}),  # before Hopper
        ("launch_bound", {"sm_ratio": 0.06, "util": 0.4}),  # that it idles says why
        ("gpu_bound", {"sm_ratio": 0.06, "more": [process(PID, gpu_uuids=[UUID], rank=0, world_size=2)]}),
    ],
)
def test_sms_that_work_are_unknown_or_may_wait_for_ranks_are_not_judged(kind, figures):
    assert "idle_sms" not in findings(kind, *USUAL, **({"util": 0.93} | figures))
