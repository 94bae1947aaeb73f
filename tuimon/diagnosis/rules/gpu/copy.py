"""The rule about copies to the GPU that the training thread waits for."""

from __future__ import annotations

import re
from typing import NamedTuple

from tuimon.diagnosis.cells import of_step
from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.gpu.exchange import BACKWARD_PER_FORWARD
from tuimon.diagnosis.evidence.gpu.samples import PINNED_RATIO as LINK_RATIO
from tuimon.diagnosis.evidence.gpu.samples import bytes_per_step, pcie_bytes_per_s
from tuimon.diagnosis.evidence.gpu.steps import GpuSteps
from tuimon.diagnosis.finding import Finding, Fix
from tuimon.diagnosis.interval import Interval
from tuimon.diagnosis.rule import GPU_TIMES, GPU_WAITS, Rule
from tuimon.diagnosis.step_model.edits import HALF
from tuimon.diagnosis.step_model.measured import without_cost
from tuimon.diagnosis.threshold import NEARLY_ALL, REPORTED, Threshold
from tuimon.diagnosis.words import at, idle_part
from tuimon.session.series import sampling_error

PINNED_TAKES_LEAST = Threshold(
    0.14,
    "what remains of a copy's time with pinned memory at least",
    "measured in bench/gpu on an H100 with PCIe 5: 7 GB/s from pageable memory, 50 from pinned memory",
)


#: Chips whose copies go over NVLink, not over PCIe.
_SUPERCHIP = re.compile(r"\bG[HB]\d{3}\b")


class _Copy(NamedTuple):
    """The copy of a step to the GPU, for which all wait."""

    lost: Interval  # share of the step that it costs
    ms: float
    total_bytes: float | None  # None where batches come from no DataLoader
    is_pinned: bool | None
    pinned_part: float  # what would remain of its time in pinned memory
    pinned_least: float  # the same at least

    @property
    def bytes_per_s(self) -> float | None:
        """How fast it goes."""
        return self.total_bytes / (self.ms / 1e3) if self.total_bytes and self.ms else None


def transfer_bound(evidence: Evidence) -> Finding | None:
    """Batches are copied to the GPU while training thread and GPU wait for it: memory that is not pinned."""
    gpu, copying = evidence.gpu_steps, evidence.samples.in_steps.where(doing="transfer")
    hot = copying.hottest()
    if gpu is None or evidence.gpu_waits is None or hot is None:
        return None
    waiting = of_step(evidence).where(doing={"copy"}).cpu
    if waiting < REPORTED:
        return None
    lost = _lost(evidence, gpu, waiting)
    if lost.low < REPORTED:
        return None
    copied = _copied(evidence, lost, gpu.step_ms)
    place, between = hot.place, idle_part(lost)
    rate = f" at {copied.bytes_per_s / 1e9:.2g} GB/s" if copied.bytes_per_s else ""
    return Finding(
        headline=f"{between} of each step copies the batch to the GPU{rate} while CPU and GPU wait",
        fixes=_fixes(evidence, copied, at(place)),
        share_of_step=lost.high,
        where=(place,),
        evidence={
            "waiting_share": waiting,
            "lead_ms": _ahead_ms(gpu),
            "copy_ms_per_step": copied.ms,
            "copy_bytes_per_step": copied.total_bytes,
            "pinned": None if copied.is_pinned is None else int(copied.is_pinned),
        },
    )


def _lost(evidence: Evidence, gpu: GpuSteps, waiting: float) -> Interval:
    """The share of the step that the copy costs.

    The samples at the copy include waiting until the GPU comes to it: the launch lead at the fetch's end is taken off.
    If the lead is unknown, forward is no longer than backward without the copy, and a third of it at least: what it is
    longer on the GPU is the copy, and the time until launches have caught up with the GPU that waited for it. A copy
    behind an exchange of gradients on another stream waits for that.
    """
    ahead_ms, forward, backward = _ahead_ms(gpu), gpu.share("forward"), gpu.share("backward")
    if ahead_ms is not None:
        least = min(waiting - ahead_ms / gpu.step_ms, forward)
        most = min(least + sampling_error(waiting, evidence.samples.in_steps.total), forward)
    else:
        least, most = (min(waiting, forward - part) for part in (backward, backward / BACKWARD_PER_FORWARD))
    exchange = evidence.exchanges.get(evidence.pid) if evidence.world_size > 1 else None
    others = exchange.share.high if exchange is not None else 0.0
    return Interval(least - others, max(least, most) - others)


def _ahead_ms(gpu: GpuSteps) -> float | None:
    """How long the GPU still has to do when the batch is there; None where that is not known."""
    lead = gpu.lead("fetch end") or gpu.lead("optimizer end")
    if lead is None:
        return None
    ahead_us = lead.mean_us if lead.mean_us is not None else lead.median_us
    if ahead_us is not None:  # the mean: what is ahead in every second step only is half of that in every step
        return max(0.0, ahead_us / 1e3)
    return 0.0 if lead.stream_idle_ratio >= NEARLY_ALL else None


def _copied(evidence: Evidence, lost: Interval, step_ms: float) -> _Copy:
    """By the bytes of the loader's batches, and the link that the GPU uses now, where both are known."""
    loader, ms = evidence.loader, lost.low * step_ms
    batches = loader.batches if loader is not None else None
    pinned = loader.facts.pin_memory if loader is not None else None
    if batches is not None and batches.on_cpu and batches.pinned is not None:
        pinned = 2 * batches.pinned >= batches.on_cpu
    total_bytes = bytes_per_step(loader, evidence.step_ms)
    latest = [row.latest for row in evidence.gpus if not _SUPERCHIP.search(row.latest.name)]
    rates = [rate for gpu in latest if (rate := pcie_bytes_per_s(gpu.pcie_generation, gpu.pcie_width)) is not None]
    if not total_bytes or not rates or not ms:
        return _Copy(lost, ms, total_bytes, pinned, float(HALF), float(PINNED_TAKES_LEAST))
    part = min(1.0, 1e3 * total_bytes / min(rates) / ms)
    return _Copy(lost, ms, total_bytes, pinned, part, part)


def _fixes(evidence: Evidence, copied: _Copy, place: str) -> tuple[Fix, ...]:
    """The gains of pinning alone, and of copying a batch ahead: the link is then busy while the GPU computes."""
    ahead = f"non_blocking=True at {place}, and copy the next batch meanwhile on a stream of its own"
    if copied.is_pinned:
        return (without_cost(evidence, f"use {ahead}", _hidden(copied.lost, 1.0)),)
    alone = Interval(copied.lost.low * (1.0 - copied.pinned_part), copied.lost.high * (1.0 - copied.pinned_least))
    how = _pinning(evidence)
    return (
        without_cost(evidence, f"use {how} and {ahead}", _hidden(copied.lost, copied.pinned_part)),
        without_cost(evidence, f"use {how} and non_blocking=True alone", alone),
        Fix("send small types (uint8) and convert them on the GPU: a quarter of float32's bytes"),
    )


def _hidden(share: Interval, part: float) -> Interval:
    """What goes of a copy's share of the step where this part of it is done while the GPU computes the rest."""
    return Interval(share.low - max(0.0, part * share.low - (1.0 - share.low)), share.high)


def _pinning(evidence: Evidence) -> str:
    if evidence.launching.owner == "transformers":
        return "dataloader_pin_memory=True in TrainingArguments"
    if evidence.loader is not None:
        return "pin_memory=True in the DataLoader"
    return "tensor.pin_memory() once, on the tensor that batches are cut from,"


TRANSFER_BOUND = Rule(
    title="Copies to the GPU",
    judge=transfer_bound,
    explanation=(
        "Batches are copied to the GPU while the training thread and the GPU wait: mostly memory that is not pinned. It"
        " rests on samples at .to(...), .cuda() and their like, less what they waited for the GPU to begin the copy."
        " The gain of pinned memory follows from the bytes of a batch and the PCIe link in use, if both are known."
    ),
    needs=(GPU_TIMES, GPU_WAITS),
    thresholds=(REPORTED, HALF, PINNED_TAKES_LEAST, NEARLY_ALL, LINK_RATIO),
    contradicts_order=True,
)
