"""Bounds of the GPU's idle time by NVML's utilisation, which may contradict those of the events; why they are wide."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from tuimon.diagnosis.interval import Interval
from tuimon.diagnosis.threshold import LARGE, TRACE, Threshold
from tuimon.session.rows import GpuMeans, GpuRow

GAPS = Threshold(
    0.02,
    "share of the time that lies between works that follow each other, which utilisation may count as idle",
    "measured in tests/gpu_simulator: 0.1 to 1.7 % of recorded trainings on V100, RTX 2080 Ti and MI300X",
)
DEVICE_COPIES = Threshold(
    0.03,
    "share of the time that one of several ranks spends in copies within the GPU's own memory, which no counter shows",
    "measured in tests/gpu_simulator: 0.6 to 2.9 % of recorded trainings on V100, A100 and MI300X, mostly buckets of"
    " gradients",
)
SLOW_PCIE = Threshold(
    1.3e9,
    "bytes a second by NVML's PCIe counters, below which no copy goes",
    "a third of what pageable memory reaches on PCIe 3 (4 GB/s:"
    " https://developer.nvidia.com/blog/how-optimize-data-transfers-cuda-cc/), as the counters showed 2.0 of 5.5 GB/s"
    " on an H100",
)
MEASURED_BY = "tuimon trace measures it"


class Copies(Struct, frozen=True, gc=False):
    """The most time that copies between host and GPU take: utilisation does not count them, as they are not kernels."""

    in_phase: float  # share of the steps in the phase that copies lie in
    sampled: float | None = None  # share of all time, by samples; None where that is not known

    def in_steps(self, means: GpuMeans) -> float:
        """Share of the steps, by the counters of PCIe as well."""
        rates = [rate for rate in (means.pcie_rx_bytes_per_s, means.pcie_tx_bytes_per_s) if rate is not None]
        known = [sum(rates) / SLOW_PCIE] if rates else []
        known += [self.sampled] if self.sampled is not None else []
        return min((share / (means.steps_ratio or 1.0) for share in known), default=self.in_phase)


def idle_by_counters(gpus: Sequence[GpuRow], copies: Copies, *, alone: bool) -> Interval | None:
    """Bounds of the time without work, from the share of time in which a kernel ran; None where it is not measured.

    ``alone``: no other program and no other rank has kernels on the GPU that could hide idle time.
    """
    known = [row.means for row in gpus if row.means is not None and row.means.util_at_most is not None]
    if not known:
        return None
    error = max(TRACE / (means.steps_ratio or 1.0) for means in known)
    most = max(means.util_at_most or 0.0 for means in known) + error
    least = min(means.util_at_least or 0.0 for means in known) - error
    copying = min(1.0, max(map(copies.in_steps, known))) + (TRACE if alone else DEVICE_COPIES)
    at_most = 1.0 - max(0.0, least) if alone else 1.0
    return Interval(max(0.0, 1.0 - min(1.0, most) - copying - GAPS), at_most)


def why_wide(
    idle: Interval, counters: Interval | None, gpus: Sequence[GpuRow], copies: Copies, ranks: int
) -> str | None:
    """Why the bounds lie far apart; None where they are close; ``counters``: the bounds by NVML's utilisation."""
    if idle.width < LARGE:
        return None
    reasons = []
    if counters is None:
        reasons.append("NVML's utilisation is not known")
    else:
        rates = [rate for row in gpus for rate in (row.latest.pcie_rx_bytes_per_s, row.latest.pcie_tx_bytes_per_s)]
        if ranks > 1:
            reasons.append("NVML counts NCCL's kernels as busy, also where they wait")
        if any(row.others for row in gpus):
            reasons.append("NVML counts other programs as busy")
        if copies.sampled is None and all(rate is None for rate in rates):
            reasons.append("NVML gives no PCIe rates, so copies may take all that no kernel does")
    return f"{'; '.join(reasons or ['launches are hardly ahead'])}; {MEASURED_BY}"
