"""What sets the pace: rules on simulated GPU trainings."""

import pytest

from tests.diagnosis.gpu import FORWARD, FORWARD_ITEM, ITEM, MODULE, USUAL, findings, gpu_time
from tests.gpu_simulator.sessions import UUID
from tests.gpu_simulator.training import PID
from tests.session.records import process, steps

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


@pytest.mark.parametrize(
    ("cpu", "autograd", "who"),
    [(0.99, 0.0, "99 % CPU in backward()"), (0.3, 0.9, "100 % CPU in backward() (its own thread)")],
)
def test_full_cpu_in_backward_is_told_as_such(cpu, autograd, who):
    found = findings("queue_full", *USUAL, util=0.99, cpu=cpu, autograd=autograd)["spin_wait"]
    assert (found.severity, found.headline) == ("benign", f"{who} is CUDA polling for the GPU, not work: harmless")
