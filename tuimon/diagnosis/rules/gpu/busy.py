"""Rules about a GPU that sets the pace: how well it works, in which precision, and with what room for more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

from tuimon.diagnosis.cells import of_step
from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.gpu_steps import Contradiction, GpuSteps
from tuimon.diagnosis.finding import Finding, Fix, likely_gain
from tuimon.diagnosis.interval import Interval
from tuimon.diagnosis.rule import GPU_COUNTERS, GPU_LOAD, GPU_TIMES, TENSOR_ACTIVITY, Rest, Rule
from tuimon.diagnosis.rules.gpu.launches import larger_batch
from tuimon.diagnosis.rules.gpu.waits import IDLE_BOUNDS
from tuimon.diagnosis.rules.model import needless_work
from tuimon.diagnosis.rules.rest import times_a_step
from tuimon.diagnosis.step_model.edits import HALF
from tuimon.diagnosis.step_model.measured import without_if_sure
from tuimon.diagnosis.threshold import LARGE, MOST, NEARLY_ALL, REPORTED, TRACE, Threshold
from tuimon.diagnosis.words import idle_part, percent
from tuimon.records import Gpu, TraceTaken
from tuimon.session.gpus import GpuMeans
from tuimon.text import ms_text

_HALF = {"float16", "bfloat16"}
LITTLE_POWER = Threshold(
    0.30,
    "part of its power limit below which a busy GPU at full clock most likely works with few of its SMs",
    "measured in bench/gpu on an H100: 0.19 with 1 % of the SMs active, 0.24 with 10 %, 0.33 with 28 %, 0.54 with 54 %",
)
OTHER_TRAFFIC = Threshold(
    0.3,
    "part of the memory's peak that kernels which fill the SMs and multiply no matrices use at least",
    "our choice: a third of what they can, 0.8"
    " (https://docs.nvidia.com/datacenter/dcgm/latest/user-guide/feature-overview.html#profiling-metrics)",
)


class _Use(NamedTuple):
    """How well a GPU that always has something to do is used."""

    how: str
    fixes: Sequence[Fix]
    cause: str | None = None  # why it could achieve more
    figures: Mapping[str, float | None] = {}


def keeps_busy(rest: Rest) -> Finding | None:
    """The GPU always has something to do, which is right if it works as well as it can.

    That is not so if it may be waiting itself: for other ranks, or for work that events on one stream do not show.
    """
    evidence, gpu = rest.evidence, rest.evidence.gpu.steps
    if gpu is None:
        return None
    if gpu.contradiction is not None:
        return _contradicted(gpu.contradiction, evidence.gpu.trace)
    if not gpu.is_bottleneck:
        return None
    heaviest = max(gpu.phases, key=lambda name: gpu.phases[name].ms)
    hot = evidence.hottest_in("forward") if heaviest == "forward" else None
    most = f"mostly {times_a_step(evidence, heaviest)} ({ms_text(gpu.phases[heaviest].ms)} a step)"
    use = _use_of(rest, gpu, most)
    busy = "all" if gpu.idle.high < 0.005 else f"at least {percent(1 - gpu.idle.high)} of"
    return Finding(
        severity="info" if use.cause is not None else "benign",
        cause=use.cause,
        headline=f"GPU busy {busy} the time, {use.how}",
        fixes=tuple(use.fixes),
        share_of_step=1.0 - gpu.idle.high,
        where=(hot.place,) if hot is not None else (),
        evidence={
            "gpu_ms_per_step": gpu.step_ms,
            "gpu_util": evidence.gpu.utilisation,
            **use.figures,
            "gpu_idle_at_most": gpu.idle.high,
        },
    )


@partial(
    Rule,
    "The GPU is the bottleneck",
    needs=(GPU_TIMES,),
    thresholds=(*IDLE_BOUNDS, LARGE, LITTLE_POWER, NEARLY_ALL),
    of_rest=keeps_busy,
    only_in_order=True,
    causes=(
        "few_sms",
        "memory_traffic",
        "low_power",
        "other_streams",
        "padding",
        "repeated_backward",
        "unused_gradients",
    ),
    ranked_as="info",
)
def compute_bound(evidence: Evidence) -> Finding | None:
    """Work that a GPU at the bottleneck need not do; not with several ranks, whose GPUs may wait for each other."""
    gpu = evidence.gpu.steps
    if gpu is None or not gpu.is_bottleneck or evidence.world_size > 1:
        return None
    return max(needless_work(evidence), key=likely_gain, default=None)


def _use_of(rest: Rest, gpu: GpuSteps, most: str) -> _Use:
    """How well a busy GPU is used; ``most``: what it does for most of the time, in words."""
    evidence = rest.evidence
    if evidence.world_size > 1:  # it may only be waiting for the others
        exchange = evidence.ranks.exchanges.get(evidence.pid)
        waits = idle_part(exchange.share) if exchange is not None else "an unknown part"
        action = "run tuimon trace: if NCCL kernels fill backward, communicate less; otherwise the loop is in order"
        figures = exchange.figures if exchange is not None else {}
        return _Use(f"{most}; {waits} of that is waiting for the other ranks", [Fix(action)], figures=figures)
    if evidence.gpu.counted and (use := _bad_use(evidence, *evidence.gpu.counted[0])) is not None:
        return use
    if gpu.untimed:
        how = f"at least {percent(gpu.untimed)} in work that its events do not time, on other streams or in CUDA graphs"
        return _Use(how, [Fix("run tuimon trace: it shows the kernels of all streams")], "other_streams")
    unused = next((each.best for each in rest.found if each.rule == low_precision_unused.name), None)
    had = {"lower precision": unused or _in_half(evidence), "torch.compile": evidence.gpu.launching.is_compiled}
    faster = ", ".join((*(each for each, is_so in had.items() if not is_so), "a smaller model", "a faster GPU"))
    how = "as it should be" if unused is None else "its tensor cores idle"
    first = Fix("leave the loop as it is") if unused is None else unused
    return _Use(f"{how}: {most}", [first, Fix(f"only these make it faster: {faster}")])


def _bad_use(evidence: Evidence, gpu: Gpu, means: GpuMeans) -> _Use | None:
    """Kernels too small to fill the GPU, or limited by its memory; None if its counters show neither."""
    compiled = "" if evidence.gpu.launching.is_compiled else "torch.compile(model), "
    larger = Fix(f"let fewer, larger kernels do the work: {compiled}whole tensors instead of loops over their parts")
    if means.sm_ratio is None:  # before Hopper, GPUs do not count it
        part = means.power_w / gpu.power_limit_w if means.power_w and gpu.power_limit_w else 1.0
        clock = means.sm_clock_mhz / gpu.sm_clock_max_mhz if means.sm_clock_mhz and gpu.sm_clock_max_mhz else 0.0
        if part >= LITTLE_POWER or clock < NEARLY_ALL:
            return None
        how = f"but draws {percent(part)} of its power limit at full clock: a weak sign of kernels too small to fill it"
        trace = Fix("run tuimon trace: it lists the kernels that take the time")
        return _Use(how, [trace, larger], "low_power", {"power_w": means.power_w, "power_limit_w": gpu.power_limit_w})
    figures = {"sm_ratio": means.sm_ratio, "dram_ratio": means.dram_ratio}
    if means.sm_ratio < LARGE:
        batch = larger_batch(evidence, Interval.around(1.0 - means.sm_ratio))
        how = f"but with {percent(means.sm_ratio)} of its SMs: its kernels are too small to fill it"
        fixes = [larger, *([batch.by_up_to(batch.gain and batch.gain.high)] if batch is not None else [])]
        return _Use(how, fixes, "few_sms", figures)
    if means.dram_ratio is None or means.dram_ratio < MOST:
        return None
    fused = Fix(f"let fewer kernels read and write each tensor: {compiled}fused=True for the optimizer")
    halved = Fix("halve the bytes: torch.autocast('cuda', torch.bfloat16)", changes_training=True)
    how = f"bound by its memory: {percent(means.dram_ratio)} of the traffic that is possible"
    return _Use(how, [fused] if _in_half(evidence) else [fused, halved], "memory_traffic", figures)


def _in_half(evidence: Evidence) -> bool:
    process = evidence.process
    return process is not None and not _HALF.isdisjoint(process.matmul_dtypes + process.parameter_dtypes)


@partial(
    Rule,
    "Tensor cores unused",
    needs=(GPU_COUNTERS, TENSOR_ACTIVITY),
    thresholds=(TRACE, REPORTED, MOST, HALF, OTHER_TRAFFIC),
    contradicts_order=True,
)
def low_precision_unused(evidence: Evidence) -> Finding | None:
    """The GPU multiplies matrices in full float32 while its tensor cores do nothing.

    At least half of the products' time is saved: TF32 takes a seventh of the time for large ones on an A100
    (https://docs.pytorch.org/docs/stable/notes/cuda.html). If the CPU sets the pace, its own work stays.
    """
    gpu, process = evidence.gpu.steps, evidence.process
    if gpu is None or not evidence.gpu.counted:
        return None
    (card, means), types = evidence.gpu.counted[0], (process.parameter_dtypes, process.matmul_dtypes) if process else ()
    tensor, products = means.tensor_ratio, _products(evidence, gpu, means)
    if tensor is None or tensor >= TRACE * products.high or (means.dram_ratio or 0.0) >= MOST:
        return None
    if any(used and "float32" not in used for used in types):
        return None
    gone = Interval(products.low * HALF - gpu.idle.high, products.high)
    if not gpu.is_bottleneck and evidence.gpu.waits is not None:
        gone = gone.up_to(of_step(evidence).where(doing={"sync", "copy"}).between.high)
    if gone.high < REPORTED or (evidence.gpu.awaits_idle_causes and not gpu.is_bottleneck):
        return None
    first = "" if process is not None and process.tf32 else "torch.set_float32_matmul_precision('high') (TF32), or "
    action = f"use {first}torch.autocast('cuda', torch.bfloat16), and sizes that are multiples of 8"
    fix = without_if_sure(evidence, action, gone, changes_training=True)
    return Finding(
        severity="warning" if fix.least else "info",
        headline=(
            f"GPU computes for {percent(products.high)} of each step, its tensor cores for {100 * tensor:.1f} %: lower"
            " precision is not used"
        ),
        fixes=(fix.without_upper_end if fix.least else fix,),  # everything else gets faster in half precision, too
        share_of_step=gone.high,
        evidence={
            "tensor_ratio": tensor,
            "sm_ratio": means.sm_ratio,
            "dram_ratio": means.dram_ratio,
            "compute_capability": card.compute_capability,
        },
    )


def _products(evidence: Evidence, gpu: GpuSteps, means: GpuMeans) -> Interval:
    """The share of each step in which SMs multiply matrices in float32 while tensor cores do nothing.

    Other kernels that fill the SMs also fill half of their warps, or use much of the memory's bandwidth. Worked
    example: SMs are active for 86 % of the step, with 14 % of all warps, and the memory is 10 % busy: other kernels
    take at most 0.1 / 0.3 of the step. With other ranks or programs, none of the activity is sure to be the training's
    products.
    """
    active = min(1.0 - gpu.idle.low, means.sm_ratio if means.sm_ratio is not None else 1.0)
    beside = evidence.world_size > 1 or any(row.is_shared for row in evidence.gpu.rows)
    if means.occupancy_ratio is None or means.dram_ratio is None or beside:
        return Interval(0.0, active)
    others = max(means.occupancy_ratio / MOST, means.dram_ratio / OTHER_TRAFFIC)
    return Interval(max(0.0, active - others), active)


@partial(
    Rule,
    "Room for a larger batch",
    needs=(GPU_COUNTERS, GPU_LOAD),
    thresholds=(MOST, LARGE, REPORTED),
    only_in_order=True,
)
def small_batch(evidence: Evidence) -> Finding | None:
    """The GPU has room in time and in memory: a larger batch would use both.

    Kept only where nothing else explains an idle GPU.
    """
    known = evidence.gpu.counted
    figures = [
        (means.util_ratio, gpu.memory_used_bytes / gpu.memory_total_bytes)
        for gpu, means in known
        if means.util_ratio is not None and gpu.memory_used_bytes and gpu.memory_total_bytes
    ]
    if evidence.steps.phases is None or evidence.gpu.awaits_idle_causes or not known:
        return None
    if len(figures) < len(evidence.gpu.rows) or any(max(each) >= MOST for each in figures):
        return None
    (gpu, means), (used, filled) = known[0], figures[0]
    larger = larger_batch(evidence, Interval.around(1.0 - used).up_to(evidence.gpu.launches_at_most))
    if larger is None:
        return None
    return Finding(
        severity="info",
        headline=(
            f"GPU {gpu.index} is used {percent(used)} of the time, and {percent(filled)} of its memory: room for a"
            " larger batch"
        ),
        fixes=(larger._replace(gain=larger.gain and Interval(1.0, larger.gain.high)),),  # why the GPU idles is unknown
        evidence={
            "gpu_util": used,
            "memory_ratio": filled,
            "sm_ratio": means.sm_ratio,
            "occupancy_ratio": means.occupancy_ratio,
        },
    )


def _contradicted(found: Contradiction, trace: TraceTaken | None) -> Finding:
    """Events and NVML exclude each other, so neither is believed; a trace is, though its profiler slows the CPU."""
    events, counters = found
    fix, traced = "run tuimon trace to see which is right: queued work may wait for a copy or another stream", None
    if trace is not None and trace.gpu_span_ns and trace.gpu_busy_ns is not None:
        traced = 1.0 - trace.gpu_busy_ns / trace.gpu_span_ns
        fix = f"go by the trace: the GPU idled {percent(traced)} of its steps, at most so much without the profiler"
    return Finding(
        severity="info",
        headline=(
            f"GPU idle time unknown: at most {percent(events.high)} by its events, at least {percent(counters.low)} by"
            " NVML's utilisation"
        ),
        fixes=(Fix(fix),),
        evidence={
            "gpu_idle_in_trace": traced,
            "gpu_idle_at_most_by_events": events.high,
            "gpu_idle_at_least_by_nvml": counters.low,
        },
    )
