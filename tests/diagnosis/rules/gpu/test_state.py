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
