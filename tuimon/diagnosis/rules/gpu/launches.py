"""The rule about launches that set the pace: the GPU waits for the CPU to come with more work."""

from __future__ import annotations

from tuimon.diagnosis.evidence.devices import least_utilisation
from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.gpu.allocator import AllocatorWaits, advice
from tuimon.diagnosis.evidence.gpu.counters import IdleBounds
from tuimon.diagnosis.evidence.gpu.steps import GpuSteps
from tuimon.diagnosis.evidence.lines import HotFunction
from tuimon.diagnosis.finding import Finding
from tuimon.diagnosis.needs import GPU_TIMES
from tuimon.diagnosis.rule import Rule
from tuimon.diagnosis.rules.compute.fused import FOREACH_OF_SINGLE, FUSED_OF_FOREACH, FUSED_OF_SINGLE, TAKES_ERROR
from tuimon.diagnosis.rules.gpu.launch_fixes import (
    AUTOCAST_TAKES,
    BATCH_MEMORY,
    LaunchFixes,
    launch_fixes,
    without_idling,
)
from tuimon.diagnosis.rules.gpu.pace import COMPUTE, IDLE_BOUNDS
from tuimon.diagnosis.threshold import LARGE, MOST, REPORTED, SMALL, TRACE
from tuimon.diagnosis.words import at_hot, idle_part, in_library

#: Why the GPU waits, unless the loop does something that others do not.
_CAUSE = "many small kernels, launched one at a time"
_OF_COMPILED = "the compiled model's kernels end before the next ones are launched"


def launch_bound(evidence: Evidence) -> Finding | None:
    """The GPU keeps up with the CPU within the computation: it waits for each launch."""
    gpu = evidence.gpu_steps
    if gpu is None or gpu.is_bottleneck or evidence.awaits_idle_causes:
        return None
    followed = [name for name in COMPUTE if _is_followed(evidence, gpu, name)]
    if gpu.idle_in(*followed).at_most < LARGE:
        return None
    idle = gpu.idle_in(*COMPUTE, "other").up_to(evidence.launches_at_most)
    if idle.at_most < LARGE:
        return None
    allocator = evidence.allocator_waits
    hot = _hottest_launches(evidence, followed) if allocator is None else allocator.hot
    why, fixes = _fixes(evidence, idle, allocator, hot)
    return Finding(
        rule="launch_bound",
        severity="warning",
        cause=None if allocator is None else "allocator",
        headline=_headline(IdleBounds(gpu.idle, gpu.idle_at_most), allocator, why or _cause(evidence))
        + in_library(hot),
        fixes=tuple(fixes),
        share_of_step=idle.likely,
        where=(hot.place,) if hot else (),
        evidence=_launch_figures(evidence, gpu, idle, allocator),
    )


def _headline(idle: IdleBounds, allocator: AllocatorWaits | None, why: str) -> str:
    cause = why if allocator is None else "torch's allocator waits for it to give memory back"
    return f"GPU idle {idle_part(idle)} of each step: {cause}"


def _cause(evidence: Evidence) -> str:
    return _OF_COMPILED if evidence.launching.is_compiled else _CAUSE


def _fixes(
    evidence: Evidence, idle: IdleBounds, allocator: AllocatorWaits | None, hot: HotFunction | None
) -> LaunchFixes:
    if allocator is None:
        return launch_fixes(evidence, idle)
    return LaunchFixes("", [without_idling(evidence, advice(allocator, [at_hot(hot)] if hot else []), idle)])


def _launch_figures(
    evidence: Evidence, gpu: GpuSteps, idle: IdleBounds, allocator: AllocatorWaits | None
) -> dict[str, float | int | str | None]:
    lead = gpu.lead("backward end")
    return {
        **IdleBounds(gpu.idle, gpu.idle_at_most).as_evidence(),
        "lead_us": lead.median_us if lead else None,
        "stream_idle_ratio": lead.stream_idle_ratio if lead else None,
        "gpu_ms_per_step": gpu.step_ms,
        "gpu_util": least_utilisation(evidence.gpus),
        **gpu.width_evidence,
        **({"device_frees_per_step": allocator.frees_per_step} if allocator is not None else {}),
    }


def _is_followed(evidence: Evidence, gpu: GpuSteps, name: str) -> bool:
    """True if a phase ends with the GPU close behind the CPU, and is as long on the one as on the other."""
    phase, on_cpu = gpu.phases.get(name), evidence.phase(name)
    if phase is None or phase.ms <= 0 or not gpu.keeps_up(name):
        return False
    if on_cpu is None or on_cpu.ms_per_step is None or on_cpu.estimated:
        return True  # its length on the CPU rests on samples
    return abs(phase.ms - on_cpu.ms_per_step) <= LARGE * max(phase.ms, on_cpu.ms_per_step)


def _hottest_launches(evidence: Evidence, followed: list[str]) -> HotFunction | None:
    """The user's line that launches most of the forward pass; what backward and optimizer launch is torch's own."""
    return evidence.hottest_in("forward") if "forward" in followed else None


RULES = (
    Rule(
        name="launch_bound",
        title="Launches set the pace",
        order=30,
        judge=launch_bound,
        explanation=(
            "The GPU is done before the CPU launches more work: small kernels, or too much Python between them. It"
            " rests on GPU times: forward, backward or optimizer end with launches hardly ahead, and take the same time"
            " on the GPU as on the CPU. The GPU's idle time there lies between bounds: at most the time in which the"
            " CPU is still launching, at most the CPU time of the threads that launch, and at most the time that NVML's"
            " utilisation leaves. With the cause allocator,"
            " torch returns memory to the driver in each step, which waits for the GPU."
        ),
        needs=(GPU_TIMES,),
        thresholds=(
            LARGE,
            TRACE,
            MOST,
            SMALL,
            AUTOCAST_TAKES,
            TAKES_ERROR,
            FUSED_OF_SINGLE,
            FUSED_OF_FOREACH,
            FOREACH_OF_SINGLE,
            BATCH_MEMORY,
            REPORTED,
            *IDLE_BOUNDS,
        ),
        contradicts_order=True,
    ),
)
