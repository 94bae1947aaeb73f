"""The rule about launches that set the pace: the GPU waits for the CPU to come with more work."""

from __future__ import annotations

from tuimon.diagnosis.evidence.devices import least_utilisation
from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.gpu.allocator import FREES_A_STEP, AllocatorWaits, advice
from tuimon.diagnosis.evidence.gpu.counters import LEAST_IDLE, IdleBounds
from tuimon.diagnosis.evidence.gpu.steps import GpuSteps
from tuimon.diagnosis.evidence.gpu.widths import WIDE
from tuimon.diagnosis.evidence.lines import HotFunction
from tuimon.diagnosis.finding import Finding
from tuimon.diagnosis.needs import GPU_TIMES
from tuimon.diagnosis.rule import Rule
from tuimon.diagnosis.rules.debug_settings import advice_on_debugging
from tuimon.diagnosis.rules.gpu.pace import COMPUTE, IDLE_BOUNDS
from tuimon.diagnosis.speedup import likely, speedup_without
from tuimon.diagnosis.threshold import Threshold
from tuimon.diagnosis.words import at_end, at_hot, percent

_LARGER_LAUNCHES = (
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
    idle = f"{_idle_range(*bounds)} of every step the GPU{_used(evidence)} has nothing to do"
    if allocator is None:
        action = advice_on_debugging("launch_bound", evidence) or _LARGER_LAUNCHES
        return f"launches set the pace: {idle} until the CPU comes with more{at_end(hot)}", action
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


def _idle_range(at_least: float, at_most: float) -> str:
    """``9 to 30 %``, or ``up to 30 %`` where nothing is certain."""
    if percent(at_least) == percent(at_most):
        return percent(at_most)
    if at_least < LEAST_IDLE:
        return f"up to {percent(at_most)}"
    return f"{percent(at_least).removesuffix(' %')} to {percent(at_most)}"


def _used(evidence: Evidence) -> str:
    used = least_utilisation(evidence.gpus)
    return f" (used {percent(used)})" if used is not None else ""


def _idle_gain(evidence: Evidence, share: float) -> float | None:
    """The gain without this idle share; None for one within the error of its bound, or that leaves next to nothing."""
    return speedup_without(evidence, share) if LEAST_IDLE <= share < 1.0 - LEAST_IDLE else None


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
        thresholds=(LAUNCH_SHARE, SAME_LENGTH, LEAST_IDLE, FREES_A_STEP, WIDE, *IDLE_BOUNDS),
        contradicts_order=True,
    ),
)
