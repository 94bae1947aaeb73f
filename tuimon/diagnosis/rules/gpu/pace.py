"""Rules about a GPU that sets the pace, which is as it should be."""

from __future__ import annotations

from collections.abc import Iterator

from tuimon.diagnosis.evidence.devices import least_utilisation
from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.gpu.copies import SLOW_COPY, SMALL_PINNED_BYTES
from tuimon.diagnosis.evidence.gpu.counters import DEVICE_COPIES, GAPS, SLOW_PCIE
from tuimon.diagnosis.evidence.gpu.steps import MIN_STEPS, SMALL_LEAD_US, Contradiction, GpuSteps
from tuimon.diagnosis.finding import Finding, Fix
from tuimon.diagnosis.rule import GPU_TIMES, GPU_WAITS, Rule
from tuimon.diagnosis.threshold import MOST, REPORTED, SMALL, TRACE, Threshold
from tuimon.diagnosis.words import percent
from tuimon.session.rows import LeadRow
from tuimon.text import ms_text

#: The phases that launch a training's work.
COMPUTE = ("forward", "backward", "optimizer")
FULL_LEAD_US = Threshold(
    1000.0,
    "us that launches run ahead at every boundary, from which the driver's queue is full",
    "our choice, a quarter of what fits: a stream takes about 1,000 launches of 4-5 us each before one waits"
    " (https://forums.developer.nvidia.com/t/cuda-stream-are-blocked-when-luanch-lots-of-kernels-1000/68937)",
)


def compute_bound(evidence: Evidence) -> Finding | None:
    """The GPU always has something to do: it is what the training takes its time for, as it should be.

    Except where it may be waiting itself: for other ranks, or for what events on one stream do not show.
    """
    gpu = evidence.gpu_steps
    if gpu is None:
        return None
    if gpu.contradiction is not None and gpu.contradiction.by_events.at_most < REPORTED:
        return _contradicted(gpu.contradiction)
    if not gpu.is_bottleneck:
        return None
    heaviest = max(gpu.phases, key=lambda name: gpu.phases[name].ms)
    hot = evidence.hottest_in("forward") if heaviest == "forward" else None
    headline, action = _busy_words(evidence, gpu, heaviest)
    return Finding(
        severity="benign",
        headline=headline,
        fixes=(Fix(action),),
        share_of_step=1.0 - gpu.idle_at_most,
        where=(hot.place,) if hot else (),
        evidence={
            "gpu_idle_at_most": gpu.idle_at_most,
            "gpu_ms_per_step": gpu.step_ms,
            "gpu_util": least_utilisation(evidence.gpus),
        },
    )


def _busy_words(evidence: Evidence, gpu: GpuSteps, heaviest: str) -> tuple[str, str]:
    """Headline and action. With several ranks the GPU's queue may hold nothing but a wait for the others."""
    busy = "all" if gpu.idle_at_most < 0.005 else f"at least {percent(1 - gpu.idle_at_most)} of"
    most = f"mostly {heaviest} ({ms_text(gpu.phases[heaviest].ms)} a step)"
    ranks = evidence.world_size
    if ranks > 1:
        others = "the other rank" if ranks == 2 else f"the other {ranks - 1} ranks"
        exchange = evidence.exchanges.get(evidence.pid)
        least = exchange.at_least if exchange is not None else 0.0
        waits = f"it waits at least {percent(least)} for {others}" if least >= TRACE else ""
        unknown = f"how much of that it waits for {others} is unknown"
        return (
            f"GPU has work queued {busy} the time, {most}; {waits or unknown}",
            "run tuimon trace: if NCCL kernels fill backward, communicate less; otherwise the loop is in order",
        )
    return (
        f"GPU busy {busy} the time, as it should be: {most}",
        f"leave the loop as it is; only these make it faster: {', '.join(_faster(evidence))}",
    )


def _faster(evidence: Evidence) -> Iterator[str]:
    """Changes that make a busy GPU faster and are not made yet."""
    process = evidence.process
    if process is None or not {"float16", "bfloat16"}.intersection(process.matmul_dtypes + process.parameter_dtypes):
        yield "lower precision"
    if not evidence.launching.is_compiled:
        yield "torch.compile"
    yield from ("a smaller model", "a faster GPU")


def _contradicted(found: Contradiction) -> Finding:
    """Events and NVML exclude each other: neither is believed."""
    events, counters = found
    return Finding(
        severity="info",
        headline=(
            f"GPU idle time unknown: {_at_most(events.at_most)} by its events, at least"
            f" {percent(counters.at_least)} by NVML's utilisation"
        ),
        fixes=(
            Fix(
                "run tuimon trace to see which is right: queued work may wait for a copy or another stream, which no"
                " event shows"
            ),
        ),
        evidence={
            "gpu_idle_at_most_by_events": events.at_most,
            "gpu_idle_at_least_by_nvml": counters.at_least,
            "gpu_idle_at_least": events.at_least,
            "gpu_idle_at_most": counters.at_most,
        },
    )


def _at_most(idle: float) -> str:
    return "none" if idle < 0.005 else f"at most {percent(idle)}"


def queue_full(evidence: Evidence) -> Finding | None:
    """Launches have run so far ahead that each waits for room in the driver's queue: harmless."""
    gpu, waits = evidence.gpu_steps, evidence.gpu_waits
    if gpu is None or not gpu.is_bottleneck or waits is None or waits.share >= SMALL:
        return None
    leads = gpu.time.leads
    if not leads or any((_least_us(lead) or 0.0) < FULL_LEAD_US for lead in leads):
        return None
    medians = [lead.median_us for lead in leads if lead.median_us is not None]
    ahead_ms = max(medians or [_least_us(lead) or 0.0 for lead in leads]) / 1e3
    hot = evidence.hottest_in("forward")
    return Finding(
        severity="benign",
        headline=(
            f"launches run {'' if medians else 'at least '}{ms_text(ahead_ms)} ahead and wait for room in the GPU's"
            " queue: harmless"
        ),
        fixes=(
            Fix("change nothing: the model's lines take CPU time only in this wait; GPU time shows which are slow"),
        ),
        where=(hot.place,) if hot else (),
        evidence={"lead_ms": ahead_ms, "gpu_idle_at_most": gpu.idle_at_most},
    )


def _least_us(lead: LeadRow) -> float | None:
    """How far launches run ahead at one kind of boundary at least; None where that is unknown."""
    return lead.min_us if lead.min_us is not None else lead.at_least_us


_COUNTERS = (TRACE, GAPS, DEVICE_COPIES, TRACE, MOST, SLOW_PCIE, SLOW_COPY, SMALL_PINNED_BYTES)
#: The thresholds of bounds of the GPU's idle time.
IDLE_BOUNDS = (REPORTED, MIN_STEPS, SMALL_LEAD_US, MOST, TRACE, *_COUNTERS)
QUEUE_FULL = Rule(
    title="The GPU's queue is full",
    judge=queue_full,
    explanation=(
        "Launches have run so far ahead that each waits for room in the driver's queue, which is harmless: the time"
        " that the model's lines seem to take on the CPU is this waiting. It rests on launches far ahead at every"
        " boundary, while the GPU is the bottleneck and few samples wait for it."
    ),
    needs=(GPU_TIMES, GPU_WAITS),
    thresholds=(FULL_LEAD_US, SMALL, *IDLE_BOUNDS),
)

COMPUTE_BOUND = Rule(
    title="The GPU is the bottleneck",
    judge=compute_bound,
    explanation=(
        "The GPU always has something to do: its work takes the training's time, as it should be. It rests on GPU"
        " times, almost none of which are, or may be, idle. With several ranks they include waits for the others; if"
        " NVML's utilisation contradicts the GPU times, neither is believed."
    ),
    needs=(GPU_TIMES,),
    thresholds=IDLE_BOUNDS,
    ranked_as="info",
)
