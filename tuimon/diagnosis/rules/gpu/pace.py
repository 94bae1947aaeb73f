"""Rules about what sets the pace: the GPU, which is as it should be, or the CPU that launches its work."""

from __future__ import annotations

from tuimon.diagnosis.evidence.devices import least_utilisation
from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.gpu.allocator import FREES_A_STEP, AllocatorWaits, advice
from tuimon.diagnosis.evidence.gpu.copies import SMALL_PINNED_BYTES
from tuimon.diagnosis.evidence.gpu.counters import (
    DEVICE_COPIES,
    GAPS,
    LEAST_IDLE,
    SLOW_COPY,
    UTILISATION_ERROR,
    IdleBounds,
)
from tuimon.diagnosis.evidence.gpu.steps import (
    BUSY_IDLE,
    IDLE_STREAM_RATIO,
    MIN_STEPS,
    SMALL_LEAD_US,
    SOME_WAITS,
    Contradiction,
    GpuSteps,
)
from tuimon.diagnosis.evidence.gpu.widths import WIDE
from tuimon.diagnosis.evidence.lines import HotFunction
from tuimon.diagnosis.finding import Finding
from tuimon.diagnosis.needs import GPU_TIMES, GPU_WAITS
from tuimon.diagnosis.rule import Rule
from tuimon.diagnosis.speedup import likely, speedup_without
from tuimon.diagnosis.threshold import Threshold
from tuimon.diagnosis.words import at_end, at_hot, percent
from tuimon.session.rows import LeadRow

#: The phases that launch a training's work.
COMPUTE = ("forward", "backward", "optimizer")
LARGER_LAUNCHES = (
    "put more into each launch: a larger batch; torch.compile(model, mode='reduce-overhead') or CUDA graphs;"
    " a fused optimizer (fused=True); fewer small operations in Python"
)
LAUNCH_SHARE = Threshold(
    0.20,
    "share of the GPU's time in forward, backward and optimizer that may idle for want of launches, as a warning",
    "our choice: an upper bound; with less, the idle time that is certain is mostly below the 5 % of a warning",
)
SAME_LENGTH = Threshold(
    0.20,
    "relative difference of a phase's length on CPU and GPU up to which launches set its pace",
    "our choice: 10 % for each clock, as CPU times are of all steps and GPU times of some",
)
FULL_LEAD_US = Threshold(
    1000.0,
    "us that launches run ahead at every boundary, from which the driver's queue is full",
    "our choice, a quarter of what fits: a stream takes about 1,000 launches of 4-5 us each before one waits"
    " (https://forums.developer.nvidia.com/t/cuda-stream-are-blocked-when-luanch-lots-of-kernels-1000/68937)",
)
FEW_WAITS = Threshold(
    0.05,
    "share of samples that wait for the GPU, below which nothing synchronises to speak of",
    "our choice: a synchronisation every step empties the queue and shows in far more",
)


def launch_bound(evidence: Evidence) -> Finding | None:
    """The GPU keeps up with the CPU within the computation: it waits for each launch."""
    gpu = evidence.gpu_steps
    if gpu is None or gpu.is_bottleneck:
        return None
    followed = [name for name in COMPUTE if _is_followed(evidence, gpu, name)]
    at_most = gpu.idle_in(*followed).at_most
    if at_most < LAUNCH_SHARE:
        return None
    idle = IdleBounds(min(at_most, gpu.idle_in(*COMPUTE).at_least), at_most)
    allocator = evidence.allocator_waits
    hot = _hottest_launches(evidence, followed) if allocator is None else allocator.hot
    headline, action = _launch_words(evidence, idle, allocator, hot)
    return Finding(
        rule="launch_bound",
        severity="warning",
        cause=None if allocator is None else "allocator",
        headline=headline,
        action=action,
        share_of_step=idle.at_most,
        where=(hot.place,) if hot else (),
        evidence=_launch_figures(evidence, gpu, idle, allocator),
        estimated_speedup=likely(_idle_gain(evidence, idle.at_least), _idle_gain(evidence, idle.at_most)),
        speedup_at_least=_idle_gain(evidence, idle.at_least),
    )


def _launch_words(
    evidence: Evidence, bounds: IdleBounds, allocator: AllocatorWaits | None, hot: HotFunction | None
) -> tuple[str, str]:
    """Headline and action."""
    idle = f"{idle_range(*bounds)} of every step the GPU{_used(evidence)} has nothing to do"
    if allocator is None:
        return f"launches set the pace: {idle} until the CPU comes with more{at_end(hot)}", LARGER_LAUNCHES
    return (
        f"torch's allocator waits for the GPU to give memory back: {idle} meanwhile{at_end(hot)}",
        advice(allocator, [at_hot(hot)] if hot else []),
    )


def _launch_figures(
    evidence: Evidence, gpu: GpuSteps, idle: IdleBounds, allocator: AllocatorWaits | None
) -> dict[str, float | int | str | None]:
    lead = gpu.lead("backward end")
    return {
        **idle.as_evidence(),
        "lead_us": lead.median_us if lead else None,
        "stream_idle_ratio": lead.stream_idle_ratio if lead else None,
        "gpu_ms_per_step": gpu.step_ms,
        "gpu_util": least_utilisation(evidence.gpus),
        "speedup_at_most": _idle_gain(evidence, idle.at_most),
        **gpu.width_evidence,
        **({"device_frees_per_step": allocator.frees_per_step} if allocator is not None else {}),
    }


def _is_followed(evidence: Evidence, gpu: GpuSteps, name: str) -> bool:
    """Whether a phase ends with the GPU close behind the CPU, and is as long on the one as on the other."""
    phase, on_cpu = gpu.phases.get(name), evidence.phase(name)
    if phase is None or phase.ms <= 0 or not gpu.keeps_up(name):
        return False
    if on_cpu is None or on_cpu.ms_per_step is None or on_cpu.estimated:
        return True  # its length on the CPU rests on samples
    return abs(phase.ms - on_cpu.ms_per_step) <= SAME_LENGTH * max(phase.ms, on_cpu.ms_per_step)


def _hottest_launches(evidence: Evidence, followed: list[str]) -> HotFunction | None:
    """The user's line that launches most of the forward pass; what backward and optimizer launch is torch's own."""
    return evidence.hottest_in("forward") if "forward" in followed else None


def idle_range(at_least: float, at_most: float) -> str:
    """``9 to 30 %``, or ``up to 30 %`` where nothing is certain."""
    if percent(at_least) == percent(at_most):
        return percent(at_most)
    if at_least < LEAST_IDLE:
        return f"up to {percent(at_most)}"
    return f"{percent(at_least).removesuffix(' %')} to {percent(at_most)}"


def compute_bound(evidence: Evidence) -> Finding | None:
    """The GPU always has something to do: it is what the training takes its time for, as it should be.

    Except where it may be waiting itself: for other ranks, or for what events on one stream do not show.
    """
    gpu = evidence.gpu_steps
    if gpu is None:
        return None
    if gpu.contradiction is not None and gpu.contradiction.by_events.at_most < BUSY_IDLE:
        return _contradicted(gpu.contradiction)
    if not gpu.is_bottleneck:
        return None
    heaviest = max(gpu.phases, key=lambda name: gpu.phases[name].ms)
    hot = evidence.hottest_in("forward") if heaviest == "forward" else None
    headline, action = _busy_words(evidence, gpu, heaviest)
    return Finding(
        rule="compute_bound",
        severity="benign",
        headline=headline,
        action=action,
        share_of_step=1.0 - gpu.idle_at_most,
        where=(hot.place,) if hot else (),
        evidence={
            "gpu_idle_at_most": gpu.idle_at_most,
            "gpu_ms_per_step": gpu.step_ms,
            "gpu_util": least_utilisation(evidence.gpus),
            **{f"{name}_gpu_share": gpu.share(name) for name in COMPUTE},
        },
    )


def _busy_words(evidence: Evidence, gpu: GpuSteps, heaviest: str) -> tuple[str, str]:
    """Headline and action. With several ranks the GPU's queue may hold nothing but a wait for the others."""
    busy = "all" if gpu.idle_at_most < 0.005 else f"at least {percent(1 - gpu.idle_at_most)} of"
    most = f", most of it in {heaviest} ({gpu.phases[heaviest].ms:.3g} ms a step)"
    ranks = (evidence.process.world_size if evidence.process is not None else None) or 1
    if ranks > 1:
        others = "the other rank" if ranks == 2 else f"the other {ranks - 1} ranks"
        exchange = evidence.exchanges.get(evidence.pid)
        least = exchange.at_least if exchange is not None else 0.0
        waits = f"it waits at least {percent(least)} for {others}" if least >= LEAST_IDLE else ""
        unknown = f"how much of that it waits for {others} is not known"
        return (
            f"the GPU has work queued {busy} the time{most}; {waits or unknown}",
            "tuimon trace shows kernels: if those of NCCL fill backward, communicate less; else the loop is in order",
        )
    return (
        f"the GPU is the bottleneck, as it should be: busy {busy} the time{most}",
        "the loop is in order; faster: lower precision, torch.compile, a smaller model, a faster GPU. What the CPU"
        " does meanwhile costs nothing",
    )


def _contradicted(found: Contradiction) -> Finding:
    """Events and NVML exclude each other: neither is believed."""
    events, counters = found
    return Finding(
        rule="compute_bound",
        severity="info",
        headline=(
            f"not known who waits: by its events the GPU is idle at most {percent(events.at_most)} of the time, by"
            f" NVML's utilisation at least {percent(counters.at_least)}"
        ),
        action=(
            "tuimon trace shows which is right: what is queued may wait for a copy or another stream, which events on"
            " the training's own stream do not show"
        ),
        evidence={
            "gpu_idle_at_most_by_events": events.at_most,
            "gpu_idle_at_least_by_nvml": counters.at_least,
            "gpu_idle_at_least": events.at_least,
            "gpu_idle_at_most": counters.at_most,
        },
    )


def queue_full(evidence: Evidence) -> Finding | None:
    """Launches have run so far ahead that each waits for room in the driver's queue: harmless."""
    gpu, waits = evidence.gpu_steps, evidence.gpu_waits
    if gpu is None or not gpu.is_bottleneck or waits is None or waits.share >= FEW_WAITS:
        return None
    leads = gpu.time.leads
    if not leads or any((_least_us(lead) or 0.0) < FULL_LEAD_US for lead in leads):
        return None
    medians = [lead.median_us for lead in leads if lead.median_us is not None]
    ahead_ms = max(medians or [_least_us(lead) or 0.0 for lead in leads]) / 1e3
    hot = evidence.hottest_in("forward")
    return Finding(
        rule="queue_full",
        severity="benign",
        headline=(
            f"launches run {'' if medians else 'at least '}{ahead_ms:.3g} ms ahead and wait for room in the GPU's"
            " queue: the time that lines of the model seem to take on the CPU is this waiting"
        ),
        action="nothing: the CPU is ahead; look at GPU time, not at CPU time, for what is slow",
        where=(hot.place,) if hot else (),
        evidence={"lead_ms": ahead_ms, "gpu_idle_at_most": gpu.idle_at_most},
    )


def _least_us(lead: LeadRow) -> float | None:
    """How far launches run ahead at one kind of boundary at least; None where that is unknown."""
    return lead.min_us if lead.min_us is not None else lead.at_least_us


def _used(evidence: Evidence) -> str:
    used = least_utilisation(evidence.gpus)
    return f" (used {percent(used)})" if used is not None else ""


def _idle_gain(evidence: Evidence, share: float) -> float | None:
    """The gain without this idle share; None for one within the error of its bound, or that leaves next to nothing."""
    return speedup_without(evidence, share) if LEAST_IDLE <= share < 1.0 - LEAST_IDLE else None


_COUNTERS = (UTILISATION_ERROR, GAPS, DEVICE_COPIES, SLOW_COPY, SMALL_PINNED_BYTES)
_IDLE_BOUNDS = (BUSY_IDLE, MIN_STEPS, SMALL_LEAD_US, IDLE_STREAM_RATIO, SOME_WAITS, *_COUNTERS)
RULES = (
    Rule(
        name="launch_bound",
        title="Launches set the pace",
        order=30,
        judge=launch_bound,
        explanation=(
            "The GPU is done before the CPU comes with more work: small kernels, or too much Python between them. It"
            " rests on GPU times: forward, backward or optimizer end with launches hardly ahead, and take the same time"
            " on the GPU as on the CPU. What the GPU idles there lies between bounds: at most the time in which the CPU"
            " is still launching, and what NVML's utilisation leaves. Where torch's allocator gives memory back to the"
            " driver in every step, which waits for the GPU, that is the cause: allocator."
        ),
        needs=(GPU_TIMES,),
        thresholds=(LAUNCH_SHARE, SAME_LENGTH, LEAST_IDLE, FREES_A_STEP, WIDE, *_IDLE_BOUNDS),
        contradicts_order=True,
    ),
    Rule(
        name="queue_full",
        title="The GPU's queue is full",
        order=200,
        judge=queue_full,
        explanation=(
            "Launches have run so far ahead that each waits for room in the driver's queue, which is harmless: the"
            " time that the model's lines seem to take on the CPU is this waiting. It rests on launches far ahead at"
            " every boundary, while the GPU is the bottleneck and few samples wait for it."
        ),
        needs=(GPU_TIMES, GPU_WAITS),
        thresholds=(FULL_LEAD_US, FEW_WAITS, *_IDLE_BOUNDS),
    ),
    Rule(
        name="compute_bound",
        title="The GPU is the bottleneck",
        order=220,
        judge=compute_bound,
        explanation=(
            "The GPU always has something to do: it is what the training takes its time for, as it should be. It rests"
            " on GPU times, of which next to none are idle or may be. With several ranks that includes waiting for"
            " the others; and where NVML's utilisation contradicts the GPU times, neither is believed."
        ),
        needs=(GPU_TIMES,),
        thresholds=_IDLE_BOUNDS,
        ranked_as="info",
    ),
)
