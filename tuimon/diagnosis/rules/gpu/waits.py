"""Rules about waits for the GPU (harmless if the GPU sets the pace, harmful if it idles) and copies to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tuimon.diagnosis.cells import Cell, Cells, gpu_idle_in, step_cells
from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.gpu import GpuSteps, calls_at
from tuimon.diagnosis.evidence.ranks import BACKWARD_PER_FORWARD
from tuimon.diagnosis.finding import Finding, Fix, bounds, calls_per_step, new_finding
from tuimon.diagnosis.line_text import idle_part
from tuimon.diagnosis.needs import SAMPLES
from tuimon.diagnosis.rules.advice import options
from tuimon.diagnosis.step_model import HALF, without_cost
from tuimon.interval import Interval
from tuimon.records import STEP_PHASES, LineCalls, Place
from tuimon.session.stacks.samples import HotLine
from tuimon.text import at, ms_text, percent, plain
from tuimon.threshold import LARGE, MOST, NEARLY_ALL, REPORTED, SMALL, TINY, Threshold

if TYPE_CHECKING:
    from tuimon.gpu_calls import SyncCall


FULL_LEAD_US = Threshold(
    1000.0,
    "us by which launches must run ahead at every boundary for the driver's queue to count as full",
    "our choice, a quarter of what fits: a stream takes about 1,000 launches of 4-5 us each before one waits"
    " (https://forums.developer.nvidia.com/t/cuda-stream-are-blocked-when-luanch-lots-of-kernels-1000/68937)",
)


def harmless(
    evidence: Evidence, headline: str, action: str, place: Place | None, figures: Mapping[str, float | None]
) -> Finding | None:
    """The finding on CPU time that is a harmless wait for the GPU; None unless the GPU is the bottleneck."""
    gpu = evidence.gpu.steps
    if gpu is None or not gpu.is_bottleneck:
        return None
    return new_finding(
        headline, action, severity="benign", at=place, evidence={**figures, "gpu_idle_at_most": gpu.idle.high}
    )


class LongestWait(NamedTuple):
    """The place at which the training thread waits longest for the GPU: for a value, or for a copy."""

    hot: HotLine
    cells: Cells
    is_copy: bool


def longest_wait(evidence: Evidence) -> LongestWait | None:
    """The longest wait; None if too few samples show any."""
    reads, step = evidence.gpu.waits, step_cells(evidence)
    if reads is None:
        return None
    read, copied = step.where(doing={"sync"}), step.where(doing={"copy"})
    is_copy = read.share < copied.share
    hot = evidence.samples.in_steps.hottest(doing="transfer") if is_copy else reads.hottest()
    return LongestWait(hot, copied if is_copy else read, is_copy) if hot is not None else None


def queue_full(evidence: Evidence) -> Finding | None:
    """Launches run so far ahead that each waits for room in the driver's queue: harmless."""
    gpu, leads = evidence.gpu.steps, evidence.gpu_time.leads if evidence.gpu_time is not None else ()
    least_us = [(lead.min_us if lead.min_us is not None else lead.at_least_us) or 0.0 for lead in leads]
    waits = step_cells(evidence).where(doing={"sync", "copy"}).share if gpu is not None else 0.0
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
    threads = evidence.computing
    cpu = sum(row.cpu_ratio or 0.0 for row in threads)
    if cpu < NEARLY_ALL or evidence.gpu.steps is None:
        return None
    step, wait, where = step_cells(evidence), longest_wait(evidence), ""
    share = step.where(doing={"sync", "copy"}).share
    busiest = max(threads, key=lambda row: row.cpu_ratio or 0.0)
    driver = evidence.native_in(*STEP_PHASES).share("driver")
    place = wait.hot.place if wait is not None and share >= REPORTED else None
    if (step.where({"backward"}).share < LARGE and place is None) if driver is None else driver < MOST:
        return None
    if place is None:
        where = f" in backward(){' (its own thread)' if busiest.role == 'autograd' else ''}"
    where += f", {percent(driver)} of it in the driver," if driver is not None else ""
    return harmless(
        evidence,
        f"{percent(min(1.0, cpu))} CPU{where} is CUDA polling for the GPU, not work: harmless",
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
    cells = [cell for cell in step_cells(evidence) if cell.phase == longest]
    most = max(cells, key=lambda cell: cell.cost.high, default=None)
    place = most.node.place if most is not None and most.node is not None else None
    action = "run tuimon trace: it shows what the CPU does while the GPU idles, and at which line"
    if missing is not None:
        now = missing.removeprefix("no stack samples: ")
        action = f"let tuimon sample stacks, which show the line that the GPU waits for; now: {now}"
    return new_finding(
        f"GPU idle {idle_part(idle)} of each step, mostly in {longest}: cause unknown",
        action,
        severity="info",
        share=idle.low,
        at=place,
        evidence={**bounds("gpu_idle", idle), "gpu_util": evidence.gpu.utilisation, **gpu.width_evidence},
    )


#: How the advice begins for a call that serves no purpose.
_LEAVE_OUT = "leave it out"
#: Kinds of calls with kernels of their own, which are saved together with the wait.
_COMPUTE = ("mask", "shape", "check", "clip")


def sync_point(evidence: Evidence) -> Finding | None:
    """A line reads a value from the GPU and lets its queue run dry; or it only waits while the GPU works (benign).

    The gain is at most the smaller of two times: the wait, and the GPU's idle time during or after it. For a process
    that was traced, the runtime's calls at the line show how often it waits, and for how long.
    """
    gpu, wait = evidence.gpu.steps, longest_wait(evidence)
    if gpu is None or wait is None:
        return None
    place, share, idle = wait.hot.place, wait.cells.share, gpu_idle_in(evidence, awaits_no_batch)
    calls = None if wait.is_copy else calls_at(place)
    what = "a copy to or from the GPU" if calls is None else plain(calls[0].what) if calls else "one line"
    repeats = evidence.repeats(place)
    what += f", {repeats.calls} times a step," if repeats is not None else ""
    figures = {"waiting_share": share, **calls_per_step(repeats), **evidence.gpu.waits_in_trace(place)}
    cost = Interval(min(idle.low, share), min(idle.high, wait.cells.interval.high))
    if min(share, cost.high) < SMALL:
        headline = f"{what} waits for the GPU at no cost: the GPU is the bottleneck anyway"
        action = "change nothing: this wait costs time only when the GPU has less to do"
        return harmless(evidence, headline, action, place, figures) if share >= REPORTED else None
    certain = cost if cost.low >= TINY else Interval(0.0, cost.high)
    best = without_cost(evidence, advice_for(place, calls), certain)
    if calls and calls[0].kind in _COMPUTE and cost.low >= TINY:
        best = best.with_open_gain
    after = f"blocks the CPU {percent(share)} of the time; the GPU then idles, {idle_part(gpu.idle)} of each step"
    if gpu.idle.low < SMALL and gpu.idle.high < MOST * share and gpu.contradiction is None:
        after = f"waits for a busy GPU {percent(share)} of the time: its 100 % CPU is only this wait"
    return new_finding(
        f"{what} {after}",
        best,
        once_a_step(repeats),
        share=cost.high,
        at=place,
        evidence={**figures, **bounds("gpu_idle", gpu.idle), "speedup_at_most": best.high, **gpu.width_evidence},
    )


def awaits_no_batch(cell: Cell) -> bool:
    """True if launches that run ahead hide the cell's time, as they do except for waits for others' batches."""
    return "batch" not in cell.via and cell.doing != "batch"


def advice_for(place: Place, calls: Sequence[SyncCall] | None) -> str:
    """The replacement for the calls; None stands for a copy."""
    if calls is None:
        return f"use pinned memory and non_blocking=True at {at(place)}: the copy then does not wait"
    if not calls:
        return f"keep the value on the GPU at {at(place)}, and read it every 50 or 100 steps, or one step late"
    what, instead = f"{plain(calls[0].what)} at {at(place)}", plain(calls[0].instead)
    if instead.startswith(_LEAVE_OUT):
        return f"leave out {what}{instead.removeprefix(_LEAVE_OUT)}"
    return f"replace {what}: {instead}"


def once_a_step(repeats: LineCalls | None) -> str | None:
    """A further fix for a call that each step repeats, of unknown gain."""
    if repeats is None or repeats.name in ("nonzero", "synchronize"):
        return None
    reads = repeats.name in ("item", "tolist", "cpu", "numpy")
    return f"{'collect the values and convert' if reads else 'join the tensors and copy'} them once a step"


PINNED_TAKES_LEAST = Threshold(
    0.14,
    "least part of a copy's time that remains with pinned memory",
    "measured in bench/gpu on an H100 with PCIe 5: 7 GB/s from pageable memory, 50 from pinned memory",
)


def transfer_bound(evidence: Evidence) -> Finding | None:
    """Batches are copied to the GPU while both the training thread and the GPU wait: their memory is not pinned."""
    gpu, copies = evidence.gpu.steps, step_cells(evidence).where(doing={"copy"})
    hot = evidence.samples.in_steps.hottest(doing="transfer")
    if gpu is None or evidence.gpu.waits is None or hot is None or copies.share < REPORTED:
        return None
    lost = _copy_cost(evidence, gpu, copies)
    if lost.low < REPORTED:
        return None
    loader = evidence.data.loader
    batches = loader.batches if loader is not None else None
    pinned = loader.facts.pin_memory if loader is not None else None
    if batches is not None and batches.on_cpu and batches.pinned is not None:
        pinned = 2 * batches.pinned >= batches.on_cpu
    cards = ((row.latest.pcie_generation, row.latest.pcie_width) for row in evidence.gpu.rows)
    repeats = evidence.repeats(hot.place)
    links = (f"{generation}.0 x{width}" if generation and width else None for generation, width in cards)
    return new_finding(
        f"{idle_part(lost)} of each step is the batch's copy to the GPU, while CPU and GPU wait",
        *_fixes(evidence, lost, at(hot.place), is_pinned=bool(pinned)),
        once_a_step(repeats),
        share=lost.high,
        at=hot,
        waiting_share=copies.share,
        lead_ms=_ahead_ms(gpu),
        copy_ms_per_step=lost.low * gpu.step_ms,
        pinned=None if pinned is None else int(pinned),
        pcie_link=next(links, None),
        evidence=calls_per_step(repeats),
    )


def _copy_cost(evidence: Evidence, gpu: GpuSteps, copies: Cells) -> Interval:
    """The share of the step that the copy costs.

    Samples at the copy include the time until the GPU reaches it, so the launch lead at the end of the fetch is
    subtracted. If the lead is unknown, forward without the copy is assumed to take between a third of backward and all
    of it: the excess of forward on the GPU is the copy, and the time until launches have caught up with the waiting
    GPU. A copy queued behind an exchange of gradients on another stream also waits for that.
    """
    ahead_ms, forward, backward = _ahead_ms(gpu), gpu.phases["forward"].span, gpu.phases["backward"].span
    if ahead_ms is not None:
        ahead = ahead_ms / gpu.step_ms
        least, most = (min(share - ahead, forward) for share in (copies.share, copies.interval.high))
    else:
        least, most = (min(copies.share, forward - part) for part in (backward, backward / BACKWARD_PER_FORWARD))
    exchange = evidence.exchange
    others = exchange.share.high if exchange is not None else 0.0
    return Interval(least - others, max(least, most) - others)


def _ahead_ms(gpu: GpuSteps) -> float | None:
    """How much work the GPU still has, in ms, when the batch is there; None if unknown."""
    lead = gpu.time.lead("fetch end") or gpu.time.lead("optimizer end")
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
    if evidence.data.loader is None and not options(evidence).loop:
        how = "tensor.pin_memory() once, on the tensor that batches are cut from,"
    alone = Interval(lost.low * (1.0 - HALF), lost.high * (1.0 - PINNED_TAKES_LEAST))
    return (
        without_cost(evidence, f"use {how} and {ahead}", _hidden(lost, HALF)),
        without_cost(evidence, f"use {how} and non_blocking=True", alone),
        Fix("send small types (uint8) and convert them on the GPU: a quarter of float32's bytes"),
    )


def _hidden(share: Interval, part: float) -> Interval:
    """The part of a copy's share of the step that is saved if this part of it runs while the GPU computes."""
    return Interval(share.low - max(0.0, part * share.low - (1.0 - share.low)), share.high)
