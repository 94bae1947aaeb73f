"""The rule about copies to the GPU that the training thread waits for."""

from __future__ import annotations

from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.gpu.steps import GpuSteps
from tuimon.diagnosis.evidence.lines import HotFunction
from tuimon.diagnosis.finding import Finding
from tuimon.diagnosis.needs import GPU_TIMES, GPU_WAITS
from tuimon.diagnosis.rule import Rule
from tuimon.diagnosis.speedup import likely, speedup_without
from tuimon.diagnosis.threshold import Threshold
from tuimon.diagnosis.words import at, percent

TRANSFER_SHARE = Threshold(
    0.10,
    "share of the step in copies, from which it is a warning",
    "our choice: pinned memory halves the copy, so this gains the 5 % of a warning",
)
PINNED_RATIO = Threshold(
    0.5,
    "what remains of a copy's time with pinned memory",
    "our choice: pinned memory is faster by an amount that depends on the machine"
    " (https://developer.nvidia.com/blog/how-optimize-data-transfers-cuda-cc/);"
    " tests/scenarios/streams.py simulates half",
)
IDLE_STREAM_RATIO = Threshold(
    0.9,
    "share of boundaries at which a query found the stream idle, from which the GPU has nothing left to do",
    "our choice: nearly all, as the lead is then taken for 0",
)


def transfer_bound(evidence: Evidence) -> Finding | None:
    """Batches are copied to the GPU while training thread and GPU wait for it: memory that is not pinned.

    The samples at the copy include waiting until the GPU comes to it: the launch lead at the fetch's end is taken off.
    Where the lead is unknown, only what forward takes longer on the GPU than backward counts, which without a copy is
    the longer one.
    """
    gpu, waits = evidence.gpu_steps, evidence.gpu_waits
    if gpu is None or waits is None or waits.hot_transfer is None or waits.transfer < TRANSFER_SHARE:
        return None
    ahead_ms = _ahead_ms(gpu)
    if ahead_ms is not None:
        share = min(waits.transfer - ahead_ms / gpu.step_ms, gpu.share("forward"))
    else:
        share = min(waits.transfer, gpu.share("forward") - gpu.share("backward"))
    if share < TRANSFER_SHARE:
        return None
    loader = evidence.loader
    rates = [rate for row in evidence.gpus if (rate := row.latest.pcie_rx_bytes_per_s) is not None]
    pinned = loader.facts.pin_memory if loader is not None else None
    gained = speedup_without(evidence, share if pinned else share * PINNED_RATIO)
    most = speedup_without(evidence, share)
    return Finding(
        rule="transfer_bound",
        severity="warning",
        headline=(
            f"{percent(share)} of every step goes to copying the batch to the GPU while all wait:"
            f" {at(waits.hot_transfer.place)}"
        ),
        action=_advice(waits.hot_transfer, pinned),
        share_of_step=share,
        where=(waits.hot_transfer.place,),
        evidence={
            "waiting_share": waits.transfer,
            "lead_ms": ahead_ms,
            "copy_ms_per_step": share * gpu.step_ms,
            "pcie_rx_bytes_per_s": max(rates, default=None),
            "pinned": None if pinned is None else int(pinned),
            "speedup_at_most": most,
        },
        estimated_speedup=likely(gained, most),
        speedup_at_least=gained,
    )


def _ahead_ms(gpu: GpuSteps) -> float | None:
    """How long the GPU still has to do when the batch is there; None where that is not known."""
    lead = gpu.lead("fetch end") or gpu.lead("optimizer end")
    if lead is None:
        return None
    ahead_us = lead.mean_us if lead.mean_us is not None else lead.median_us
    if ahead_us is not None:  # the mean: what is ahead in every second step only is half of that in every step
        return max(0.0, ahead_us / 1e3)
    return 0.0 if lead.stream_idle_ratio >= IDLE_STREAM_RATIO else None


def _advice(hot: HotFunction, pinned: bool | None) -> str:
    place = at(hot.place)
    if pinned:
        return f"non_blocking=True at {place}, and copy the next batch on a stream of its own meanwhile"
    return (
        f"pin_memory=True in the DataLoader and non_blocking=True at {place};"
        " send small types (uint8) and convert them on the GPU"
    )


RULES = (
    Rule(
        name="transfer_bound",
        title="Copies to the GPU",
        order=50,
        judge=transfer_bound,
        explanation=(
            "Batches are copied to the GPU while the training thread and the GPU wait: mostly memory that is not"
            " pinned. It rests on samples at .to(...), .cuda() and their like, less what they waited for the GPU to"
            " come to the copy at all."
        ),
        needs=(GPU_TIMES, GPU_WAITS),
        thresholds=(TRANSFER_SHARE, PINNED_RATIO, IDLE_STREAM_RATIO),
        contradicts_order=True,
    ),
)
