"""Rules about waiting for the GPU: a synchronisation that lets it run dry, and waiting that does no harm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tuimon.diagnosis.evidence.batches import lie_ready
from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.gpu.samples import LongestWait, traced_waits
from tuimon.diagnosis.evidence.gpu.steps import GpuSteps
from tuimon.diagnosis.finding import Change, Finding, Fix
from tuimon.diagnosis.interval import Interval
from tuimon.diagnosis.rule import GPU_TIMES, GPU_WAITS, Rule
from tuimon.diagnosis.step_model.measured import queue_model, without_cost
from tuimon.diagnosis.threshold import LARGE, MOST, NEARLY_ALL, REPORTED, SMALL, TRACE
from tuimon.diagnosis.words import at, idle_part, percent
from tuimon.session.rows import HotLine, ThreadRow
from tuimon.text import plain

if TYPE_CHECKING:
    from tuimon.gpu_calls import SyncCall

#: The beginning of what would not wait, of a call that has no purpose.
_LEAVE_OUT = "leave it out"


def sync_point(evidence: Evidence) -> Finding | None:
    """A line reads a value from the GPU and lets its queue run dry; or it only waits while the GPU works (benign).

    How often it waits, and for how long, is known of a process that was traced: from the runtime's calls at the line.
    """
    gpu, waits = evidence.gpu_steps, evidence.gpu_waits
    wait = waits.longest if waits is not None else None
    if gpu is None or wait is None:
        return None
    idle = _idle_beside_data(evidence, gpu)
    if min(wait.share, idle.high) >= SMALL:
        return _costly(evidence, gpu, wait, idle)
    return _harmless(evidence, gpu, wait) if gpu.is_bottleneck and wait.share >= REPORTED else None


def _idle_beside_data(evidence: Evidence, gpu: GpuSteps) -> Interval:
    """The GPU's idle time that a wait may cause.

    Idle time in a fetch is not certain: the GPU may wait for the batch. With launches that run ahead a
    fetch costs nothing, unless workers are too slow for the loop: then none of it is the wait's.
    """
    at_most = gpu.idle.high if gpu.contradiction is None else gpu.contradiction.by_events.high
    if "data" not in gpu.phases or not gpu.phases["data"].ms:
        return Interval(gpu.idle.low, at_most)
    rest = gpu.idle_in(*(name for name in gpu.phases if name != "data"))
    workers = evidence.workers
    starved = bool(workers.number) and not lie_ready(evidence.loader, workers, evidence.data_samples)
    return Interval(rest.low, rest.high if starved else at_most)


def _costly(evidence: Evidence, gpu: GpuSteps, wait: LongestWait, idle: Interval) -> Finding:
    """No more than the smaller of both can be gained: the time that it waits, and that the GPU idles."""
    cost = idle.up_to(wait.share)
    is_busy = gpu.idle.low < SMALL and gpu.contradiction is None
    calls = calls_at(wait.hot)
    best = _without(evidence, advice_for(wait, calls), cost)
    return Finding(
        headline=_headline(wait, calls, gpu, is_busy=is_busy),
        fixes=(best,),
        share_of_step=cost.high,
        where=(wait.hot.place,),
        evidence={
            "waiting_share": wait.share,
            **_traced(evidence, wait),
            **gpu.idle.as_evidence("gpu_idle"),
            "speedup_at_most": best.gain.high if best.gain is not None else None,
            **gpu.width_evidence,
        },
    )


def _traced(evidence: Evidence, wait: LongestWait) -> dict[str, float]:
    """The waits at the line in the latest trace; empty where there is none."""
    traced = traced_waits(evidence.trace, wait.hot.place)
    return {"waits_per_step": traced.per_step, "waited_ms_per_step": traced.ms_per_step} if traced is not None else {}


def _headline(wait: LongestWait, calls: Sequence[SyncCall], gpu: GpuSteps, *, is_busy: bool) -> str:
    what, share = _what(wait, calls), percent(wait.share)
    if is_busy:
        return f"{what} waits for a busy GPU {share} of the time: 100 % CPU there is that wait"
    idle = idle_part(gpu.idle)
    return f"{what} blocks the CPU {share} of the time; the GPU then idles, {idle} of each step"


def _what(wait: LongestWait, calls: Sequence[SyncCall]) -> str:
    """``loss.item()``: the call that waits; if it is not known, the kind of call."""
    if wait.by_transfer:
        return "a copy to or from the GPU"
    return plain(calls[0].what) if calls else "one line"


def _without(evidence: Evidence, action: str, share: Interval) -> Fix:
    """The gain of a training without such a wait, which costs this share of the step: as simulated, where it may be."""
    change, model = Change("sync", 0.0), queue_model(evidence)
    fix = without_cost(evidence, action, share if share.low >= TRACE else Interval(0.0, share.high))
    simulated = model._replace(claimed=share).fix(action, change) if model is not None else None
    if simulated is not None:
        bounds, gained = (each.gain or Interval(1.0, 1.0) for each in (fix, simulated))
        if bounds.meets(gained):
            gained = Interval(max(bounds.low, gained.low), bounds.high)
            return Fix.gaining(action, gained, change, likely=simulated.estimated_speedup)
    return fix._replace(change=change)


def _harmless(evidence: Evidence, gpu: GpuSteps, wait: LongestWait) -> Finding:
    return Finding(
        severity="benign",
        headline=f"{_what(wait, calls_at(wait.hot))} waits for the GPU at no cost: the GPU is the bottleneck anyway",
        fixes=(Fix("change nothing: this wait costs time only when the GPU has less to do"),),
        where=(wait.hot.place,),
        evidence={
            "waiting_share": wait.share,
            **_traced(evidence, wait),
            "gpu_idle_at_most": gpu.idle.high,
        },
    )


def calls_at(hot: HotLine) -> Sequence[SyncCall]:
    """The calls on the line that wait, the likeliest first."""
    from tuimon.gpu_calls import sync_calls  # noqa: PLC0415  (loads a parser)

    return sync_calls(hot.place.source)


def advice_for(wait: LongestWait, calls: Sequence[SyncCall]) -> str:
    """The replacement of the very call."""
    place = at(wait.hot.place)
    if wait.by_transfer:
        return f"use pinned memory and non_blocking=True at {place}: the copy then does not wait"
    if not calls:
        return f"keep the value on the GPU at {place}, and read it every 50 or 100 steps, or one step late"
    call = calls[0]
    what, instead = f"{plain(call.what)} at {place}", plain(call.instead)
    if instead.startswith(_LEAVE_OUT):
        return f"leave out {what}{instead.removeprefix(_LEAVE_OUT)}"
    return f"replace {what}: {instead}"


def spin_wait(evidence: Evidence) -> Finding | None:
    """A thread is at 100 % CPU because CUDA polls while it waits for the GPU: harmless."""
    gpu, waits = evidence.gpu_steps, evidence.gpu_waits
    if gpu is None or not gpu.is_bottleneck:
        return None
    threads = [t for t in evidence.thread_rows if t.tid == evidence.training_tid or t.role == "autograd"]
    cpu = [t.cpu_ratio for t in threads if t.cpu_ratio is not None]
    if not cpu or sum(cpu) < NEARLY_ALL:
        return None
    where = _what_spins(evidence, threads)
    if where is None:
        return None
    text, hot = where
    return Finding(
        severity="benign",
        headline=f"{percent(min(1.0, sum(cpu)))} CPU{text} is CUDA polling for the GPU, not work: harmless",
        fixes=(Fix("change nothing: polling is faster than being woken, and the core would be idle otherwise"),),
        where=(hot.place,) if hot else (),
        evidence={
            "cpu_ratio": sum(cpu),
            "waiting_share": waits.share if waits else None,
            "gpu_idle_at_most": gpu.idle.high,
        },
    )


def _what_spins(evidence: Evidence, threads: list[ThreadRow]) -> tuple[str, HotLine | None] | None:
    """The place of the CPU time, in words beside its line; None if no wait for the GPU explains it."""
    waits = evidence.gpu_waits
    if waits is not None and waits.longest is not None and waits.share >= REPORTED:
        return "", waits.longest.hot
    if evidence.share_of("backward") >= LARGE:
        busy = max(threads, key=lambda thread: thread.cpu_ratio or 0.0)
        return f" in backward(){' (its own thread)' if busy.role == 'autograd' else ''}", None
    return None


SYNC_POINT = Rule(
    title="Synchronisation with the GPU",
    judge=sync_point,
    explanation=(
        "A line reads a value from the GPU, waits for it and lets the GPU's queue run dry; or it only waits while the"
        " GPU works, which is benign. It rests on samples at .item(), .cpu(), print of a tensor and their like, or at a"
        " line that a trace shows to wait, and on the idle time of the GPU in the step; no more than the smaller of"
        " both can be gained."
    ),
    needs=(GPU_TIMES, GPU_WAITS),
    thresholds=(SMALL, REPORTED, MOST, TRACE, LARGE),
    contradicts_order=True,
)

SPIN_WAIT = Rule(
    title="Busy waiting for the GPU",
    judge=spin_wait,
    explanation=(
        "A thread is at full CPU because CUDA polls while it waits for the GPU, which is harmless: blocking instead"
        " saved one user 30 % CPU for 0.5 % of time (https://github.com/pytorch/pytorch/issues/28224). It rests on the"
        " CPU of the training thread and autograd's, with samples at a line that waits, or in backward, while the GPU"
        " is the bottleneck."
    ),
    needs=(GPU_TIMES,),
    thresholds=(NEARLY_ALL, REPORTED, LARGE),
)
