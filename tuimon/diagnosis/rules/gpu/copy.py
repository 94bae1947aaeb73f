"""The rule about copies to the GPU that the training thread waits for."""

from __future__ import annotations

from tuimon.diagnosis.cells import Cells, of_step
from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.gpu_steps import GpuSteps
from tuimon.diagnosis.evidence.ranks import BACKWARD_PER_FORWARD
from tuimon.diagnosis.finding import Finding, Fix
from tuimon.diagnosis.interval import Interval
from tuimon.diagnosis.rule import GPU_TIMES, GPU_WAITS, Rule
from tuimon.diagnosis.rules.owner_options import options
from tuimon.diagnosis.step_model.edits import HALF
from tuimon.diagnosis.step_model.measured import without_cost
from tuimon.diagnosis.threshold import NEARLY_ALL, REPORTED, Threshold
from tuimon.diagnosis.words import at, idle_part
from tuimon.records import Gpu

PINNED_TAKES_LEAST = Threshold(
    0.14,
    "what remains of a copy's time with pinned memory at least",
    "measured in bench/gpu on an H100 with PCIe 5: 7 GB/s from pageable memory, 50 from pinned memory",
)


def transfer_bound(evidence: Evidence) -> Finding | None:
    """Batches are copied to the GPU while both the training thread and the GPU wait: their memory is not pinned."""
    gpu, copies = evidence.gpu.steps, of_step(evidence).where(doing={"copy"})
    hot = evidence.samples.in_steps.hottest(doing="transfer")
    if gpu is None or evidence.gpu.waits is None or hot is None or copies.cpu < REPORTED:
        return None
    lost = _lost(evidence, gpu, copies)
    if lost.low < REPORTED:
        return None
    loader = evidence.data.loader
    batches = loader.batches if loader is not None else None
    pinned = loader.facts.pin_memory if loader is not None else None
    if batches is not None and batches.on_cpu and batches.pinned is not None:
        pinned = 2 * batches.pinned >= batches.on_cpu
    return Finding(
        headline=f"{idle_part(lost)} of each step copies the batch to the GPU while CPU and GPU wait",
        fixes=_fixes(evidence, lost, at(hot.place), is_pinned=bool(pinned)),
        share_of_step=lost.high,
        where=(hot.place,),
        evidence={
            "waiting_share": copies.cpu,
            "lead_ms": _ahead_ms(gpu),
            "copy_ms_per_step": lost.low * gpu.step_ms,
            "pinned": None if pinned is None else int(pinned),
            "pcie_link": next((_link(row.latest) for row in evidence.gpu.rows), None),
        },
    )


def _link(gpu: Gpu) -> str | None:
    """Generation and lanes of the link, ``4.0 x8``: it shows if there are fewer than 16 lanes."""
    known = gpu.pcie_generation is not None and gpu.pcie_width is not None
    return f"{gpu.pcie_generation}.0 x{gpu.pcie_width}" if known else None


def _lost(evidence: Evidence, gpu: GpuSteps, copies: Cells) -> Interval:
    """The share of the step that the copy costs.

    Samples at the copy include the time until the GPU reaches it, so the launch lead at the end of the fetch is
    subtracted. If the lead is unknown, forward without the copy is assumed to take between a third of backward and all
    of it: the excess of forward on the GPU is the copy, and the time until launches have caught up with the waiting
    GPU. A copy queued behind an exchange of gradients on another stream also waits for that.
    """
    ahead_ms, forward, backward = _ahead_ms(gpu), gpu.share("forward"), gpu.share("backward")
    if ahead_ms is not None:
        ahead = ahead_ms / gpu.step_ms
        least, most = (min(share - ahead, forward) for share in (copies.cpu, copies.between.high))
    else:
        least, most = (min(copies.cpu, forward - part) for part in (backward, backward / BACKWARD_PER_FORWARD))
    exchange = evidence.ranks.exchanges.get(evidence.pid) if evidence.world_size > 1 else None
    others = exchange.share.high if exchange is not None else 0.0
    return Interval(least - others, max(least, most) - others)


def _ahead_ms(gpu: GpuSteps) -> float | None:
    """How much work the GPU still has, in ms, when the batch is there; None if unknown."""
    lead = gpu.lead("fetch end") or gpu.lead("optimizer end")
    if lead is None:
        return None
    ahead_us = lead.mean_us if lead.mean_us is not None else lead.median_us
    if ahead_us is not None:  # the mean: a lead in every second step counts as half of that lead in every step
        return max(0.0, ahead_us / 1e3)
    return 0.0 if lead.stream_idle_ratio >= NEARLY_ALL else None


def _fixes(evidence: Evidence, lost: Interval, place: str, *, is_pinned: bool) -> tuple[Fix, ...]:
    """The fixes: pinning alone; and copying the next batch ahead, so that the link works while the GPU computes."""
    ahead = f"non_blocking=True at {place}, and copy the next batch meanwhile on a stream of its own"
    if is_pinned:
        return (without_cost(evidence, f"use {ahead}", _hidden(lost, 1.0)),)
    how = options(evidence).pin
    if evidence.data.loader is None and evidence.gpu.launching.owner is None:
        how = "tensor.pin_memory() once, on the tensor that batches are cut from,"
    alone = Interval(lost.low * (1.0 - HALF), lost.high * (1.0 - PINNED_TAKES_LEAST))
    return (
        without_cost(evidence, f"use {how} and {ahead}", _hidden(lost, HALF)),
        without_cost(evidence, f"use {how} and non_blocking=True alone", alone),
        Fix("send small types (uint8) and convert them on the GPU: a quarter of float32's bytes"),
    )


def _hidden(share: Interval, part: float) -> Interval:
    """What is saved of a copy's share of the step if this part of it is done while the GPU computes the rest."""
    return Interval(share.low - max(0.0, part * share.low - (1.0 - share.low)), share.high)


TRANSFER_BOUND = Rule(
    title="Copies to the GPU",
    judge=transfer_bound,
    needs=(GPU_TIMES, GPU_WAITS),
    thresholds=(REPORTED, HALF, PINNED_TAKES_LEAST, NEARLY_ALL),
    contradicts_order=True,
    takes=lambda cell, _: cell.doing == "copy",
)
