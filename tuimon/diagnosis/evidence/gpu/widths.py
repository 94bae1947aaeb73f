"""Why the bounds of the GPU's idle time are far apart, for people: what hides the rest, and what would show it."""

from __future__ import annotations

from collections.abc import Sequence

from tuimon.diagnosis.evidence.gpu.counters import Copies, IdleBounds
from tuimon.diagnosis.threshold import Threshold
from tuimon.session.rows import GpuRow

WIDE = Threshold(
    0.20,
    "share of the step between the bounds of the idle time, from which the reason is reported",
    "our choice: narrower ones show whether a fix is worth it",
)
MEASURED_BY = "tuimon trace measures it"


def why_wide(
    idle: IdleBounds, counters: IdleBounds | None, gpus: Sequence[GpuRow], copies: Copies, ranks: int
) -> str | None:
    """Why the bounds lie far apart; None where they are close; ``counters``: the bounds by NVML's utilisation."""
    if idle.at_most - idle.at_least < WIDE:
        return None
    reasons = list(_reasons(counters, gpus, copies, ranks)) or ["launches are hardly ahead"]
    return f"{'; '.join(reasons)}; {MEASURED_BY}"


def _reasons(counters: IdleBounds | None, gpus: Sequence[GpuRow], copies: Copies, ranks: int) -> Sequence[str]:
    if counters is None:
        return ["NVML's utilisation is not known"]
    found = []
    if ranks > 1:
        found.append("NVML counts NCCL's kernels as busy, also where they wait")
    if any(row.others for row in gpus):
        found.append("NVML counts other programs as busy")
    if copies.sampled is None and copies.by_bytes is None and not any(map(_has_pcie_rates, gpus)):
        found.append("NVML gives no PCIe rates, so copies may take all that no kernel does")
    return found


def _has_pcie_rates(row: GpuRow) -> bool:
    return row.latest.pcie_rx_bytes_per_s is not None or row.latest.pcie_tx_bytes_per_s is not None
