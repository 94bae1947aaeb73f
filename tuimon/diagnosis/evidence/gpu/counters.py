"""Bounds of the GPU's idle time by NVML's utilisation, which may contradict those of the events; why they are wide."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from msgspec import Struct

from tuimon.diagnosis.threshold import LARGE, MOST, TRACE, Threshold
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
    # Shares of all time; None where that is not known: by samples, and by the bytes of the batches.
    sampled: float | None = None
    by_bytes: float | None = None

    def in_steps(self, means: GpuMeans) -> float:
        """Share of the steps, by the counters of PCIe as well."""
        rates = [rate for rate in (means.pcie_rx_bytes_per_s, means.pcie_tx_bytes_per_s) if rate is not None]
        by_pcie, steps_ratio = (sum(rates) / SLOW_PCIE if rates else None), means.steps_ratio or 1.0
        known: list[float | None] = [share for share in (self.sampled, by_pcie) if share is not None]
        known = known or [self.by_bytes]
        return min((share / steps_ratio for share in known if share is not None), default=self.in_phase)


class IdleBounds(NamedTuple):
    """Idle time of the GPU, as shares of the step."""

    at_least: float
    at_most: float

    def as_evidence(self, name: Literal["gpu_idle", "gpu_waits"] = "gpu_idle") -> dict[str, float | None]:
        """The bounds as findings report them: None where they say next to nothing.

        ``gpu_idle``: all that the GPU idles in a step. ``gpu_waits``: the part of it for which one cause lasts.
        """
        known = self.at_most - self.at_least <= MOST
        return {
            f"{name}_at_least": self.at_least if known else None,
            f"{name}_at_most": self.at_most if known else None,
        }

    @property
    def middle(self) -> tuple[float, float]:
        """The middle, and how far the ends are from it; (0, 0) where next to nothing is certain."""
        if self.at_least < TRACE:
            return 0.0, 0.0
        return (self.at_least + self.at_most) / 2, (self.at_most - self.at_least) / 2

    @property
    def likely(self) -> float:
        """The share to order findings by: the middle; the upper end where next to nothing is certain."""
        return (self.at_least + self.at_most) / 2 if self.at_least >= TRACE else self.at_most

    def up_to(self, most: float) -> IdleBounds:
        """The part of it that a cause explains which lasts for this share of the time at most."""
        return IdleBounds(min(self.at_least, most), min(self.at_most, most))

    def meets(self, other: IdleBounds) -> bool:
        """True if both can be true."""
        return self.at_least <= other.at_most and other.at_least <= self.at_most

    def joined(self, other: IdleBounds) -> IdleBounds:
        """The bounds that both allow; if they contradict each other, those that at least one allows."""
        narrow = IdleBounds(max(self.at_least, other.at_least), min(self.at_most, other.at_most))
        if self.meets(other):
            return narrow
        return IdleBounds(min(self.at_least, other.at_least), max(self.at_most, other.at_most))


def idle_by_counters(gpus: Sequence[GpuRow], copies: Copies, *, alone: bool) -> IdleBounds | None:
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
    return IdleBounds(max(0.0, 1.0 - min(1.0, most) - copying - GAPS), at_most)


def why_wide(
    idle: IdleBounds, counters: IdleBounds | None, gpus: Sequence[GpuRow], copies: Copies, ranks: int
) -> str | None:
    """Why the bounds lie far apart; None where they are close; ``counters``: the bounds by NVML's utilisation."""
    if idle.at_most - idle.at_least < LARGE:
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
