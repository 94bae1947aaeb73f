"""Rules about who sets the pace: the GPU, for which waits cost nothing, or something that lets the GPU idle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tuimon.diagnosis.cells import STEP, Cells, of_step
from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.gpu import SMALL_PINNED_BYTES
from tuimon.diagnosis.evidence.gpu_steps import DEVICE_COPIES, GAPS, MIN_STEPS, SLOW_PCIE
from tuimon.diagnosis.finding import Finding, Fix
from tuimon.diagnosis.rule import GPU_TIMES, GPU_WAITS, SAMPLES, Rule
from tuimon.diagnosis.threshold import LARGE, MOST, NEARLY_ALL, REPORTED, SMALL, TRACE, Threshold
from tuimon.diagnosis.words import idle_part, percent
from tuimon.records import Place
from tuimon.session.stacks.samples import HotLine
from tuimon.text import ms_text

FULL_LEAD_US = Threshold(
    1000.0,
    "us that launches run ahead at every boundary, from which the driver's queue is full",
    "our choice, a quarter of what fits: a stream takes about 1,000 launches of 4-5 us each before one waits"
    " (https://forums.developer.nvidia.com/t/cuda-stream-are-blocked-when-luanch-lots-of-kernels-1000/68937)",
)


def harmless(
    evidence: Evidence, headline: str, action: str, place: Place | None, figures: Mapping[str, float | None]
) -> Finding | None:
    """CPU time that is a wait for the GPU, and harmless, as the GPU is the bottleneck; None if the GPU is not."""
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
    """The place at which the training thread waits longest for the GPU: for a value, or for a copy."""

    hot: HotLine
    cells: Cells
    is_copy: bool


def longest_wait(evidence: Evidence) -> Wait | None:
    """The longest wait; None if too few samples show any."""
    reads, step = evidence.gpu.waits, of_step(evidence)
    if reads is None:
        return None
    read, copied = step.where(doing={"sync"}), step.where(doing={"copy"})
    is_copy = read.cpu < copied.cpu
    hot = evidence.samples.in_steps.hottest(doing="transfer") if is_copy else reads.hottest()
    return Wait(hot, copied if is_copy else read, is_copy) if hot is not None else None


def queue_full(evidence: Evidence) -> Finding | None:
    """Launches run so far ahead that each waits for room in the driver's queue: harmless."""
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
    threads = evidence.threads.computing
    cpu = sum(row.cpu_ratio or 0.0 for row in threads)
    if cpu < NEARLY_ALL or evidence.gpu.steps is None:
        return None
    step, wait, at = of_step(evidence), longest_wait(evidence), ""
    share = step.where(doing={"sync", "copy"}).cpu
    busiest = max(threads, key=lambda row: row.cpu_ratio or 0.0)
    native = evidence.native_in(*STEP)
    driver = native.share("driver") if native is not None else None
    place = wait.hot.place if wait is not None and share >= REPORTED else None
    if (step.where({"backward"}).cpu < LARGE and place is None) if driver is None else driver < MOST:
        return None
    if place is None:
        at = f" in backward(){' (its own thread)' if busiest.role == 'autograd' else ''}"
    at += f", {percent(driver)} of it in the driver," if driver is not None else ""
    return harmless(
        evidence,
        f"{percent(min(1.0, cpu))} CPU{at} is CUDA polling for the GPU, not work: harmless",
        "change nothing: polling is faster than being woken, and the core would be idle otherwise",
        place,
        {"cpu_ratio": cpu, "driver_share": driver, "waiting_share": share if evidence.gpu.waits is not None else None},
    )


def unexplained_idle(evidence: Evidence) -> Finding | None:
    """The GPU idles for much of each step; kept only if no other finding explains it."""
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


#: The thresholds that decide the bounds of the GPU's idle time.
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

UNEXPLAINED_IDLE = Rule(
    title="GPU idle, cause unknown",
    judge=unexplained_idle,
    needs=(GPU_TIMES,),
    thresholds=(LARGE, *IDLE_BOUNDS),
    only_in_order=True,
)
