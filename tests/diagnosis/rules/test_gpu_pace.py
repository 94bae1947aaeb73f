"""What sets the pace: rules on simulated GPU trainings."""

import pytest

from tests.diagnosis.gpu import (
    FORWARD_ITEM,
    ITEM,
    USUAL,
    findings,
    gpu_time,
)
from tests.session.records import steps

LOUD = ("critical", "warning")


def loud(found):
    return [rule for rule, finding in found.items() if finding.severity in LOUD]


def test_small_kernels_are_launch_bound_at_the_models_line():
    found = findings("launch_bound", *USUAL, util=0.4, cpu=0.99)
    first = next(iter(found.values()))
    assert (first.rule, first.severity) == ("launch_bound", "critical")
    assert first.where[0].line == 42
    assert first.evidence["lead_us"] < 100
    assert first.share_of_step == pytest.approx(0.89, abs=0.03)
    assert not {"compute_bound", "small_batch", "spin_wait", "input_bound"} & found.keys()


def test_only_what_is_certain_is_promised():
    known, unknown = findings("launch_bound", *USUAL, util=0.4), findings("launch_bound", *USUAL)
    assert unknown["launch_bound"].estimated_speedup is None
    assert unknown["launch_bound"].evidence["speedup_at_most"] > known["launch_bound"].estimated_speedup > 1.5
    assert unknown["launch_bound"].severity == "warning"


def test_an_item_in_a_launch_bound_loop_is_named_beside_it():
    found = findings("launch_bound", *USUAL, ([ITEM], 8), util=0.4, cpu=0.99)
    first = next(iter(found.values()))
    assert (first.rule, [place.line for place in first.where]) == ("launch_bound", [42, 45])
    assert "loss.detach()" in first.action
    assert "sync_point" not in found


def test_launches_that_run_ahead_are_no_launch_bound():
    for kind in ("gpu_bound", "queue_full", "sync_item", "data_starved", "transfer"):
        assert "launch_bound" not in findings(kind, *USUAL, util=0.9), kind


def test_a_loop_that_synchronises_after_every_phase_is_not_launch_bound():
    """Its leads are as small, but the CPU waits for the GPU in most of its samples."""
    busy = {"forward": (30, 0, 30), "backward": (50, 0, 50), "optimizer": (10, 0, 10)}
    leads = dict.fromkeys(("fetch end", "backward begin", "backward end", "optimizer end"), (5.0, 1.0))
    phases = {"data": 1, "forward": 30, "backward": 50, "optimizer": 10}
    more = [gpu_time(5000, busy, leads), steps(5000, phases)]
    found = findings("launch_bound", ([FORWARD_ITEM], 900), *USUAL, more=more)
    assert "launch_bound" not in found


def test_a_gpu_that_is_always_busy_is_the_verdict_and_benign():
    found = findings("gpu_bound", ([ITEM], 90), *USUAL[:2], util=0.99, cpu=0.98)
    assert next(iter(found)) == "compute_bound"
    assert found["compute_bound"].severity == "benign"
    assert "busy all the time, most of it in backward" in found["compute_bound"].headline
    assert not loud(found)


def test_a_full_queue_explains_where_the_cpu_time_is():
    found = findings("queue_full", *USUAL, util=0.99, cpu=1.0)
    assert next(iter(found)) == "compute_bound"
    assert 30 < found["queue_full"].evidence["lead_ms"] < 60
    assert not loud(found)


def test_a_queue_that_a_synchronisation_empties_is_not_full():
    assert "queue_full" not in findings("gpu_bound", ([ITEM], 90), *USUAL[:1])
    assert "queue_full" not in findings("gpu_bound")  # no samples: what the CPU waits at is not known
