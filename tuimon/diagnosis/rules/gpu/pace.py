"""Rules about a GPU that sets the pace, which is as it should be if it computes as fast as it can; or does not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from tuimon.diagnosis.cells import Cells, of_step
from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.gpu import SMALL_PINNED_BYTES
from tuimon.diagnosis.evidence.gpu_steps import DEVICE_COPIES, GAPS, MIN_STEPS, SLOW_PCIE, Contradiction, GpuSteps
from tuimon.diagnosis.finding import Finding, Fix, likely_gain
from tuimon.diagnosis.rule import GPU_COUNTERS, GPU_TIMES, GPU_WAITS, SAMPLES, TENSOR_ACTIVITY, Rest, Rule
from tuimon.diagnosis.rules.needless import needless_work
from tuimon.diagnosis.rules.rest import times_a_step
from tuimon.diagnosis.threshold import LARGE, MOST, NEARLY_ALL, REPORTED, SMALL, TRACE, Threshold
from tuimon.diagnosis.words import idle_part, percent
from tuimon.records import Place, TraceTaken
from tuimon.session.stacks.samples import HotLine
from tuimon.text import ms_text

#: Compute capability from which a GPU has tensor cores, and from which these take TF32 and bfloat16:
#: https://www.mintlify.com/NVIDIA/cutlass/architectures/ampere
_TENSOR_CAPABILITY, _TF32_CAPABILITY = 7.0, 8.0
_HALF = {"float16", "bfloat16"}
FULL_LEAD_US = Threshold(
    1000.0,
    "us that launches run ahead at every boundary, from which the driver's queue is full",
    "our choice, a quarter of what fits: a stream takes about 1,000 launches of 4-5 us each before one waits"
    " (https://forums.developer.nvidia.com/t/cuda-stream-are-blocked-when-luanch-lots-of-kernels-1000/68937)",
)


def harmless(
    evidence: Evidence, headline: str, action: str, place: Place | None, figures: Mapping[str, float | None]
) -> Finding | None:
    """CPU time that is a wait for the GPU, and costs nothing, as the GPU is the bottleneck; None where it is not."""
    gpu = evidence.gpu.steps
    if gpu is None or not gpu.is_bottleneck:
        return None
    return Finding(
        severity="benign",
        headline=headline,
        fixes=(Fix(action),),
        where=(place,) if place is not None else (),
        evidence={**figures, "gpu_idle_at_most": gpu.idle.high},
    )


class Wait(NamedTuple):
    """Where the training thread waits longest for the GPU: for a value, or for a copy."""

    hot: HotLine
    cells: Cells
    is_copy: bool


def longest_wait(evidence: Evidence) -> Wait | None:
    """None where too few samples show any."""
    reads, step = evidence.gpu.waits, of_step(evidence)
    if reads is None:
        return None
    read, copied = step.where(doing={"sync"}), step.where(doing={"copy"})
    is_copy = read.cpu < copied.cpu
    hot = evidence.samples.in_steps.hottest(doing="transfer") if is_copy else reads.hottest()
    return Wait(hot, copied if is_copy else read, is_copy) if hot is not None else None


def queue_full(evidence: Evidence) -> Finding | None:
    """Launches have run so far ahead that each waits for room in the driver's queue: harmless."""
    gpu, leads = evidence.gpu.steps, evidence.gpu.times.leads if evidence.gpu.times is not None else ()
    least_us = [(lead.min_us if lead.min_us is not None else lead.at_least_us) or 0.0 for lead in leads]
    waits = of_step(evidence).where(doing={"sync", "copy"}).cpu if gpu is not None else 0.0
    if not leads or evidence.gpu.waits is None or waits >= SMALL or min(least_us) < FULL_LEAD_US:
        return None
    ahead_ms, hot = max(least_us) / 1e3, evidence.hottest_in("forward")
    return harmless(
        evidence,
        f"launches run at least {ms_text(ahead_ms)} ahead and wait for room in the GPU's queue: harmless",
        "change nothing: the model's lines take CPU time only in this wait; GPU time shows which are slow",
        hot.place if hot is not None else None,
        {"lead_ms": ahead_ms},
    )


def spin_wait(evidence: Evidence) -> Finding | None:
    """A thread is at 100 % CPU because CUDA polls while it waits for the GPU: harmless."""
    tid = evidence.threads.training_tid
    threads = [row for row in evidence.threads.rows if row.tid == tid or row.role == "autograd"]
    cpu = sum(row.cpu_ratio or 0.0 for row in threads)
    if cpu < NEARLY_ALL or evidence.gpu.steps is None:
        return None
    step, wait, at = of_step(evidence), longest_wait(evidence), ""
    share = step.where(doing={"sync", "copy"}).cpu
    place = wait.hot.place if wait is not None and share >= REPORTED else None
    if place is None:
        if step.where({"backward"}).cpu < LARGE:
            return None
        busiest = max(threads, key=lambda row: row.cpu_ratio or 0.0)
        at = f" in backward(){' (its own thread)' if busiest.role == 'autograd' else ''}"
    return harmless(
        evidence,
        f"{percent(min(1.0, cpu))} CPU{at} is CUDA polling for the GPU, not work: harmless",
        "change nothing: polling is faster than being woken, and the core would be idle otherwise",
        place,
        {"cpu_ratio": cpu, "waiting_share": share if evidence.gpu.waits is not None else None},
    )


def compute_bound(evidence: Evidence) -> Finding | None:
    """What a GPU that is the bottleneck need not compute; beside other ranks its queue may hold a wait for them."""
    gpu = evidence.gpu.steps
    if gpu is None or not gpu.is_bottleneck or evidence.world_size > 1:
        return None
    return max(needless_work(evidence), key=likely_gain, default=None)


def keeps_busy(rest: Rest) -> Finding | None:
    """The GPU always has something to do: it is what the training takes its time for, as it should be.

    Except where it may be waiting itself: for other ranks, or for what events on one stream do not show.
    """
    evidence, gpu = rest.evidence, rest.evidence.gpu.steps
    if gpu is None:
        return None
    if gpu.contradiction is not None and gpu.contradiction.by_events.high < REPORTED:
        return _contradicted(gpu.contradiction, evidence.gpu.trace)
    heaviest = max(gpu.phases, key=lambda name: gpu.phases[name].ms)
    hot = evidence.hottest_in("forward") if heaviest == "forward" else None
    figures = {"gpu_ms_per_step": gpu.step_ms, "gpu_util": evidence.gpu.utilisation}
    headline, *actions = _busy_words(evidence, gpu, heaviest)
    found = harmless(evidence, headline, actions[0], hot.place if hot is not None else None, figures)
    if found is None:
        return None
    return replace(found, share_of_step=1.0 - gpu.idle.high, fixes=tuple(map(Fix, actions)))


def _busy_words(evidence: Evidence, gpu: GpuSteps, heaviest: str) -> Sequence[str]:
    """Headline and actions. With several ranks the GPU may do nothing but wait for the others."""
    busy = "all" if gpu.idle.high < 0.005 else f"at least {percent(1 - gpu.idle.high)} of"
    most = f"mostly {times_a_step(evidence, heaviest)} ({ms_text(gpu.phases[heaviest].ms)} a step)"
    if evidence.world_size > 1:
        exchange = evidence.ranks.exchanges.get(evidence.pid)
        waits = idle_part(exchange.share) if exchange is not None else "an unknown part"
        return (
            f"GPU busy {busy} the time, {most}; {waits} of that is waiting for the other ranks",
            "run tuimon trace: if NCCL kernels fill backward, communicate less; otherwise the loop is in order",
        )
    process, compiled = evidence.process, () if evidence.gpu.launching.is_compiled else ("torch.compile",)
    faster, unused = ", ".join((*compiled, "a smaller model", "a faster GPU")), low_precision_unused(evidence)
    if unused is not None:
        return (
            f"GPU busy {busy} the time, its tensor cores idle: {most}",
            unused.action,
            f"only these make it faster besides: {faster}",
        )
    if process is None or not _HALF.intersection(process.matmul_dtypes + process.parameter_dtypes):
        faster = f"lower precision, {faster}"
    return (
        f"GPU busy {busy} the time, as it should be: {most}",
        "leave the loop as it is",
        f"only these make it faster: {faster}",
    )


def low_precision_unused(evidence: Evidence) -> Finding | None:
    """The GPU is the bottleneck, and its tensor cores do nothing."""
    steps = evidence.gpu.steps
    gpu = next((g for g in evidence.gpu.rows if g.latest.tensor_ratio is not None), None)
    if steps is None or not steps.is_bottleneck or gpu is None or gpu.latest.tensor_ratio is None:
        return None
    tensor_ratio, capability, process = gpu.latest.tensor_ratio, gpu.latest.compute_capability, evidence.process
    if tensor_ratio >= TRACE or capability is None or capability < _TENSOR_CAPABILITY:
        return None
    types = (process.parameter_dtypes, process.matmul_dtypes) if process is not None else ()
    if any(used and "float32" not in used for used in types):
        return None
    first = "" if process is not None and process.tf32 else "torch.set_float32_matmul_precision('high') (TF32), or "
    action = f"use {first}torch.autocast('cuda', torch.bfloat16), and sizes that are multiples of 8"
    if capability < _TF32_CAPABILITY:
        action = "use torch.autocast('cuda', torch.float16) with a GradScaler"
    return Finding(
        severity="info",
        headline=(
            f"tensor cores busy {100 * tensor_ratio:.1f} % of the time on a GPU that is the bottleneck:"
            " lower precision is not used"
        ),
        fixes=(Fix(action, changes_training=True),),
        evidence={"tensor_ratio": tensor_ratio, "compute_capability": capability},
    )


def _contradicted(found: Contradiction, trace: TraceTaken | None) -> Finding:
    """Events and NVML exclude each other: neither is believed, but a trace is, whose profiler holds the CPU up."""
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
            "gpu_idle_at_least": events.low,
            "gpu_idle_at_most": counters.high,
        },
    )


def unexplained_idle(evidence: Evidence) -> Finding | None:
    """The GPU idles for much of each step; kept only where no other finding says why."""
    gpu = evidence.gpu.steps
    if gpu is None or gpu.contradiction is not None or gpu.idle.low < LARGE or evidence.gpu.awaits_idle_causes:
        return None
    missing, idle = SAMPLES.missing(evidence), gpu.idle
    longest = max(gpu.phases, key=lambda name: gpu.phases[name].idle.middle)
    most = max((cell for cell in of_step(evidence) if cell.phase == longest), key=lambda cell: cell.cost.high)
    place = most.node.place if most.node is not None else None
    action = "run tuimon trace: it shows what the CPU does while the GPU idles, and at which line"
    if missing is not None:
        now = missing.removeprefix("no stack samples: ")
        action = f"let tuimon sample stacks, which show the line that the GPU waits for; now: {now}"
    return Finding(
        severity="info",
        headline=f"GPU idle {idle_part(idle)} of each step, mostly in {longest}: cause unknown",
        fixes=(Fix(action),),
        share_of_step=idle.low,
        where=(place,) if place is not None else (),
        evidence={**idle.as_evidence("gpu_idle"), "gpu_util": evidence.gpu.utilisation, **gpu.width_evidence},
    )


#: The thresholds of bounds of the GPU's idle time.
IDLE_BOUNDS = (REPORTED, MIN_STEPS, MOST, TRACE, GAPS, DEVICE_COPIES, SLOW_PCIE, SMALL_PINNED_BYTES)
QUEUE_FULL = Rule(
    title="The GPU's queue is full",
    judge=queue_full,
    needs=(GPU_TIMES, GPU_WAITS),
    thresholds=(FULL_LEAD_US, SMALL, *IDLE_BOUNDS),
)

SPIN_WAIT = Rule(
    title="Busy waiting for the GPU",
    judge=spin_wait,
    needs=(GPU_TIMES,),
    thresholds=(NEARLY_ALL, REPORTED, LARGE),
    takes=lambda cell, _: cell.doing == "sync",
)

COMPUTE_BOUND = Rule(
    title="The GPU is the bottleneck",
    judge=compute_bound,
    needs=(GPU_TIMES,),
    thresholds=(*IDLE_BOUNDS, LARGE),
    of_rest=keeps_busy,
    only_in_order=True,
    causes=("padding", "repeated_backward", "unused_gradients"),
    ranked_as="info",
)

LOW_PRECISION_UNUSED = Rule(
    title="Tensor cores unused",
    judge=low_precision_unused,
    needs=(GPU_COUNTERS, TENSOR_ACTIVITY),
    thresholds=(TRACE, REPORTED),
)

UNEXPLAINED_IDLE = Rule(
    title="GPU idle, cause unknown",
    judge=unexplained_idle,
    needs=(GPU_TIMES,),
    thresholds=(LARGE, *IDLE_BOUNDS),
    only_in_order=True,
)
