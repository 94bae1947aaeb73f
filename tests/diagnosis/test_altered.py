"""What is said of logs of an H100 with one fact of the GPU altered: each row is a fault that no log at hand has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import pytest
from msgspec import structs

from tests.recorded_logs import log_path
from tuimon.diagnosis.evidence.evidence import evidence_of
from tuimon.diagnosis.finding import Finding
from tuimon.diagnosis.verdicts import fold
from tuimon.records import Gpu, GpuProcess, Throttle
from tuimon.session.session import Session
from tuimon.sources.log.reader import read_log

Facts = Mapping[str, object]


class Altered(NamedTuple):
    """A log, what each record of its GPU has instead, and what is then said by this rule, at which place."""

    log: str
    facts: Callable[[Gpu], Facts]
    rule: str
    says: tuple[str, str] | None  # severity, and words of the headline; None: the rule is silent
    first: bool = False


def _beside(ratio: float, own: float = 0.0) -> Callable[[Gpu], Facts]:
    def facts(gpu: Gpu) -> Facts:
        ours = [GpuProcess(each.pid, each.memory_bytes, own) for each in gpu.processes]
        return {"processes": [*ours, GpuProcess(99, 1 << 30, ratio)], "pids": [*gpu.pids, 99]}

    return facts


def _unnamed(gpu: Gpu) -> Facts:
    return {"processes": [GpuProcess(0, each.memory_bytes, 0.6) for each in gpu.processes], "pids": []}


def _with(**facts: object) -> Callable[[Gpu], Facts]:
    return lambda _: facts


_CLOCK = {"sm_clock_mhz": 1100, "sm_clock_max_mhz": 1980}
_HOT = [Throttle("thermal (hardware)", 0.9)]
_CAPPED = {"throttled": [Throttle("power cap", 0.9)], "power_limit_w": 400.0, "power_limit_default_w": 700.0}
_LINK = {"pcie_generation": 4, "pcie_width": 8, "pcie_generation_max": 5, "pcie_width_max": 16}

ALTERED = (
    Altered("seed_dummy_loader", _beside(0.2), "neighbour", None),  # which leaves its GPU idle for 93 % of the time
    Altered("guard_in_every_layer", _beside(0.5, 0.5), "neighbour", ("critical", "the training waits"), first=True),
    Altered("guard_in_every_layer", _beside(0.5, 0.95), "neighbour", ("info", "may wait")),  # both at a time
    Altered("masked_loss", _unnamed, "neighbour", None),
    Altered("guard_in_every_layer", _with(xids=[48]), "gpu_health", ("critical", "Xid 48: memory error"), first=True),
    Altered("compiled", _with(ecc_errors=3), "gpu_health", ("warning", "3 uncorrected memory errors")),
    Altered("compiled", _with(row_remap="pending"), "gpu_health", ("warning", "at its next reset")),
    Altered("masked_loss", _with(**_CLOCK, throttled=_HOT), "throttled", ("critical", "thermal (hardware) (1100 of")),
    Altered(
        *("guard_in_every_layer", _with(**_CLOCK, throttled=_HOT, tensor_ratio=0.4)),
        *("throttled", ("critical", "thermal")),
        first=True,
    ),
    Altered("guard_in_every_layer", _with(**_CLOCK), "throttled", ("warning", "the driver names no cause (1100 of")),
    Altered("seed_dummy_loader", _with(**_CLOCK), "throttled", None),  # its GPU idles
    Altered(
        "masked_loss", _with(**_CLOCK, **_CAPPED), "throttled", ("warning", "with a limit of 400 W instead of 700 W")
    ),
    Altered("masked_loss", _with(**_LINK), "throttled", ("info", "PCIe 4.0 x8, where card and slot can 5.0 x16")),
)


def _fold(log: str, facts: Callable[[Gpu], Facts]) -> tuple[Session, list[Finding]]:
    records = read_log(str(log_path(f"h100_{log}")))
    return fold(structs.replace(each, **facts(each)) if isinstance(each, Gpu) else each for each in records)


@pytest.mark.parametrize("case", ALTERED, ids=lambda case: f"{case.log}-{case.rule}")
def test_a_fact_of_the_gpu_that_was_altered_is_told(case: Altered) -> None:
    _, findings = _fold(case.log, case.facts)
    found = next((finding for finding in findings if finding.rule == case.rule), None)
    assert (found is None) == (case.says is None)
    if found is not None and case.says is not None:
        assert found.severity == case.says[0] and case.says[1] in found.headline
    assert not case.first or findings[0] is found


def _slower(link: Facts) -> Callable[[Gpu], Facts]:
    """Its copies take ten times as long, over a link of 0.5 GB/s."""
    return lambda gpu: {**link, "pcie_rx_bytes_per_s": (gpu.pcie_rx_bytes_per_s or 0.0) / 10}


@pytest.mark.parametrize(
    ("facts", "least"),
    [
        (_with(pcie_rx_bytes_per_s=0.0, pcie_tx_bytes_per_s=0.0), 0.7),  # as if there were no copies
        (_with(pcie_rx_bytes_per_s=0.0, pcie_tx_bytes_per_s=0.0, c2c=True), 0.0),
        (_slower({"pcie_generation": 5, "pcie_width": 16}), 0.15),
        (_slower({"pcie_generation": 1, "pcie_width": 2}), 0.0),
    ],
    ids=["no copies", "over C2C", "few copies", "slow copies"],
)
def test_a_gpu_that_copies_for_most_of_the_time_does_not_idle(facts: Callable[[Gpu], Facts], least: float) -> None:
    session, _ = _fold("pageable_images", facts)
    steps = evidence_of(session.over("whole"), session.trainer() or 0).gpu.steps
    assert steps is not None
    assert steps.idle.low == pytest.approx(least, abs=0.05)
