"""Errors of a GPU, and what holds it below its speed: rules on simulated trainings with NVML's figures beside them."""

import msgspec
import pytest

from tests.diagnosis.gpu import PID, USUAL, findings, gpu
from tests.session.records import process
from tuimon.records import Throttle

# -- gpu_health


@pytest.mark.parametrize(
    ("figures", "severity", "says", "to_do"),
    [
        ({"xids": [79]}, "critical", "has reported Xid 79: the GPU has fallen off the bus", "restart the machine"),
        ({"xids": [31]}, "warning", "Xid 31: a kernel accessed memory that it does not own", "compute-sanitizer"),
        ({"xids": [45]}, "benign", "Xid 45: work was taken off the GPU", "change nothing"),
        ({"xids": [109]}, "critical", "Xid 109: the GPU could not change to another program's work", "reset it"),
        ({"xids": [121]}, "info", "Xid 121: corrected errors on the link to the CPU", "when nothing uses it"),
        ({"xids": [149]}, "warning", "Xid 149: NVLink error", "reset the GPUs at both ends"),
        ({"xids": [999]}, "warning", "Xid 999: an error that tuimon does not know", "look up that number"),
        ({"xids": [48, 63, 45]}, "critical", "Xid 48: memory error that could not be corrected", "reset it"),
        ({"ecc_errors": 3}, "warning", "has had 3 uncorrected memory errors", "reset it"),
        ({"row_remap": "pending"}, "warning", "replaces faulty memory at its next reset", "reset this GPU"),
        ({"row_remap": "failed", "ecc_errors": 1}, "critical", "has no spare memory left", "have it replaced"),
    ],
)
def test_an_error_of_a_gpu_is_told_with_what_it_means_and_what_to_do(figures, severity, says, to_do):
    found = findings("gpu_bound", *USUAL, util=0.99, **figures)["gpu_health"]
    assert (found.severity, found.evidence["gpu"]) == (severity, 0)
    assert found.headline.startswith("GPU 0 ") and says in found.headline
    assert to_do in found.action


def test_all_errors_of_a_gpu_are_told_with_the_gravest():
    found = findings("gpu_bound", *USUAL, util=0.99, row_remap="failed", xids=[13, 45], ecc_errors=2)["gpu_health"]
    assert "spare memory" in found.headline
    assert "Xid 13: a kernel failed" in found.evidence["it_also"] and "2 uncorrected" in found.evidence["it_also"]
    assert "it_also" not in findings("gpu_bound", *USUAL, util=0.99, xids=[13, 45])["gpu_health"].evidence


@pytest.mark.parametrize("figures", [{}, {"xids": [], "ecc_errors": 0, "row_remap": "none", "pcie_replays": 7}])
def test_a_sound_gpu_has_no_errors(figures):
    assert "gpu_health" not in findings("gpu_bound", *USUAL, util=0.99, **figures)


@pytest.mark.parametrize(("more", "is_told"), [(8, False), (40, True)])
def test_packets_that_are_sent_again_are_told_by_their_rate(more, is_told):
    """A few are usual."""
    counted = [gpu(1000.0 + t, 0.99, pcie_replays=500 + (more if t > 15 else 0)) for t in (14, 15, 16, 17)]
    found = findings("gpu_bound", *USUAL, util=0.99, more=counted)
    assert ("gpu_health" in found) == is_told
    if is_told:
        assert found["gpu_health"].headline == "GPU 0 resends 40 packets a minute over PCIe"


def test_errors_of_a_gpu_that_others_use_are_not_ours():
    others = msgspec.structs.replace(gpu(1020.0, 0.99, xids=[79]), uuid="GPU-other", index=1)
    assert "gpu_health" not in findings("gpu_bound", *USUAL, util=0.99, more=[others])


# -- throttled

HOT = {"throttled": [Throttle("thermal (hardware)", 0.8)], "sm_clock_mhz": 990, "sm_clock_max_mhz": 1980}
LINK = {"pcie_generation": 3, "pcie_width": 8, "pcie_generation_max": 5, "pcie_width_max": 16}


def held(kind="gpu_bound", **figures):
    return findings(kind, *USUAL, **({"util": 0.99} | figures)).get("throttled")


def test_a_hot_gpu_at_work_is_reported_with_its_clocks_and_what_they_cost_at_most():
    finding = held(**HOT)
    assert (finding.severity, finding.estimated_speedup) == ("critical", None)
    assert all(fact in finding.headline for fact in ("GPU 0", "80 %", "thermal (hardware)", "990 of 1980 MHz"))
    assert finding.best.gain.high == pytest.approx(2)


@pytest.mark.parametrize(
    ("figures", "severity", "says", "to_do"),
    [
        ({}, "info", "power cap", "change nothing"),
        ({"power_limit_w": 700.0, "power_limit_default_w": 700.0}, "info", "power cap", "change nothing"),
        (
            {"power_limit_w": 400.0, "power_limit_default_w": 700.0},
            "warning",
            "power cap (990 of 1980 MHz), with a limit of 400 W instead of 700 W",
            "nvidia-smi -pl 700",
        ),
        ({"throttled": [], "power_w": 71.0, "power_limit_w": 72.0}, "info", "power cap", "change nothing"),
    ],
)
def test_the_power_limit_of_a_busy_gpu_is_no_fault_unless_it_is_below_the_default(figures, severity, says, to_do):
    finding = held(**{**HOT, "throttled": [Throttle("power cap", 0.9)], **figures})
    assert finding.severity == severity
    assert says in finding.headline and to_do in finding.action
    assert (finding.best.gain is None) == (severity == "info")


def test_each_remedy_has_its_own_gain_and_what_is_normal_is_none():
    both = [Throttle("thermal (hardware)", 0.75), Throttle("power cap", 0.25)]
    heat, link = held(**{**HOT, "throttled": both}, **LINK, pcie_rx_bytes_per_s=2e9).fixes
    assert (heat.action.partition(":")[0], heat.gain.high) == ("check the cooling", pytest.approx(1.6))
    assert (link.action.partition(",")[0], link.gain.high) == ("check the card's seat", pytest.approx(3.0, rel=0.01))


def test_clocks_that_are_low_for_no_reason_are_told():
    """So are those that someone has locked."""
    finding = held(sm_clock_mhz=900, sm_clock_max_mhz=1980)
    assert finding.severity == "warning"
    assert finding.headline.endswith("the driver names no cause (900 of 1980 MHz)")
    assert "reset the clocks" in finding.action
    assert held(sm_clock_mhz=1600, sm_clock_max_mhz=2100) is None  # as some cards do
    assert held("launch_bound", util=0.3, sm_clock_mhz=900, sm_clock_max_mhz=1980) is None  # an idle GPU lowers them


@pytest.mark.parametrize(("uuid", "is_told"), [("GPU-a3ff", True), ("a3ff74a1-0000", False)], ids=["NVIDIA", "AMD"])
def test_of_a_driver_that_does_not_name_all_causes_low_clocks_are_not_told(uuid, is_told):
    uses = process(PID, gpu_uuids=[uuid])
    found = held(sm_clock_mhz=900, sm_clock_max_mhz=1980, uuid=uuid, more=[uses])
    assert (found is not None) == is_told


def test_a_hot_gpu_that_waits_is_only_mentioned_after_what_it_waits_for():
    found = findings("launch_bound", *USUAL, util=0.4, **HOT)
    assert next(iter(found)) == "launch_bound"
    assert found["throttled"].severity == "info"


@pytest.mark.parametrize("held_down", [[], [Throttle("thermal (hardware)", 0.1)], [Throttle("display clocks", 0.9)]])
def test_little_throttling_is_not_reported(held_down):
    assert held(throttled=held_down) is None


def test_the_clocks_of_a_gpu_that_others_use_are_not_ours():
    others = msgspec.structs.replace(gpu(1020.0, 0.99, **HOT), uuid="GPU-other", index=1)
    assert held(more=[others]) is None


@pytest.mark.parametrize(("copied", "severity"), [(0.0, "info"), (4e9, "warning")])
def test_a_link_that_is_slower_than_both_its_ends_costs_what_copies_take_longer(copied, severity):
    finding = held(**LINK, pcie_rx_bytes_per_s=copied)
    assert finding.severity == severity
    assert finding.headline == "GPU 0 is linked by PCIe 3.0 x8, although card and slot support 5.0 x16"
