"""What sets the pace: rules on simulated GPU trainings."""

import pytest

from tests.diagnosis.gpu import (
    FORWARD,
    FORWARD_ITEM,
    ITEM,
    MODULE,
    USUAL,
    findings,
    gpu_time,
    session_of,
)
from tests.gpu_simulator.sessions import UUID
from tests.gpu_simulator.training import PID
from tests.session.records import process, steps
from tuimon.diagnosis.evidence.evidence import evidence_of
from tuimon.diagnosis.rules.gpu.pace import unexplained_idle
from tuimon.records import Loader, LoaderFacts, MeasuredBatches, TraceTaken

#: PCIe counters that show next to no copies.
NO_COPIES = {"pcie_rx_bytes_per_s": 1e6, "pcie_tx_bytes_per_s": 1e6}


@pytest.mark.parametrize(
    ("setting", "name"), [("launch_blocking", "CUDA_LAUNCH_BLOCKING"), ("anomaly_detection", "anomaly detection")]
)
def test_a_setting_for_debugging_that_slows_launches_is_to_be_unset_first(setting, name):
    more = [process(PID, gpu_uuids=[UUID], debug_settings=[setting])]
    found = findings("launch_bound", *USUAL, util=0.4, cpu=0.99, more=more, **NO_COPIES)["launch_bound"]
    assert name in found.action
    assert found.estimated_speedup is not None


def test_only_what_is_certain_is_promised():
    known, unknown = findings("launch_bound", *USUAL, util=0.4, **NO_COPIES), findings("launch_bound", *USUAL)
    assert unknown["launch_bound"].estimated_speedup is None
    assert unknown["launch_bound"].fixes[0].gain.high > known["launch_bound"].estimated_speedup > 1.5
    assert unknown["launch_bound"].severity == "warning"
    assert "idle an unknown part of each step" in unknown["launch_bound"].headline
    assert unknown["launch_bound"].evidence["gpu_idle_at_most"] is None


def test_a_loop_that_synchronises_after_every_phase_is_not_launch_bound():
    """Its leads are as small, but the CPU waits for the GPU in most of its samples."""
    busy = {"forward": (30, 0, 30), "backward": (50, 0, 50), "optimizer": (10, 0, 10)}
    leads = dict.fromkeys(("fetch end", "backward begin", "backward end", "optimizer end"), (5.0, 1.0))
    phases = {"data": 1, "forward": 30, "backward": 50, "optimizer": 10}
    more = [gpu_time(5000, busy, leads), steps(5000, phases)]
    found = findings("launch_bound", ([FORWARD, MODULE, FORWARD_ITEM], 900), *USUAL, more=more)
    assert "launch_bound" not in found


def test_a_queue_that_a_synchronisation_empties_is_not_full():
    assert "queue_full" not in findings("gpu_bound", ([ITEM], 90), *USUAL[:1])
    assert "queue_full" not in findings("gpu_bound")  # no samples: what the CPU waits at is not known


def test_where_nvml_contradicts_the_events_neither_is_believed():
    found = findings("gpu_bound", ([ITEM], 90), *USUAL[:2], util=0.32, cpu=0.98, **NO_COPIES)
    finding = found["compute_bound"]
    assert finding.severity == "info"
    assert "as it should be" not in finding.headline
    assert "unknown: at most 0 % by its events, at least 6" in finding.headline
    assert not {"spin_wait", "queue_full", "low_precision_unused"} & found.keys()
    assert finding.action.startswith("run tuimon trace")
    trace = TraceTaken(t=1010.0, pid=PID, begin_s=1009.0, end_s=1010.0, steps=5, wanted=5, file="t.json.gz",
                       gpu_span_ns=1_000_000_000, gpu_busy_ns=400_000_000)  # fmt: skip
    found = findings("gpu_bound", ([ITEM], 90), *USUAL[:2], util=0.32, cpu=0.98, more=[trace], **NO_COPIES)
    assert found["compute_bound"].action.startswith("go by the trace: the GPU idled 60 % of its steps")


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


@pytest.mark.parametrize(
    ("cpu", "autograd", "who"),
    [(0.99, 0.0, "99 % CPU in backward()"), (0.3, 0.9, "100 % CPU in backward() (its own thread)")],
)
def test_full_cpu_in_backward_is_told_as_such(cpu, autograd, who):
    found = findings("queue_full", *USUAL, util=0.99, cpu=cpu, autograd=autograd)["spin_wait"]
    assert (found.severity, found.headline) == ("benign", f"{who} is CUDA polling for the GPU, not work: harmless")


@pytest.mark.parametrize(("samples", "lines"), [(USUAL, [43]), ((), [])])
def test_of_an_idle_gpu_the_line_is_told_at_which_the_cpu_is_meanwhile(samples, lines):
    session = session_of("launch_bound", *samples, util=0.4, cpu=0.99, **NO_COPIES)
    found = unexplained_idle(evidence_of(session.over("recent"), PID))
    assert [place.line for place in found.where] == lines
    assert ("mostly in backward" in found.headline, "cause unknown" in found.headline) == (True, True)
