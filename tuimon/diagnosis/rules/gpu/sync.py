"""The rule about a synchronisation with the GPU that lets the GPU run out of work, or that does no harm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tuimon.diagnosis.cells import STEP, Cell, gpu_idle_in
from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.finding import Finding
from tuimon.diagnosis.interval import Interval
from tuimon.diagnosis.rule import GPU_TIMES, GPU_WAITS, Rule
from tuimon.diagnosis.rules.gpu.pace import harmless, longest_wait
from tuimon.diagnosis.step_model.measured import without_cost
from tuimon.diagnosis.threshold import REPORTED, SMALL, TRACE
from tuimon.diagnosis.words import at, idle_part, percent
from tuimon.records import Place
from tuimon.text import plain

if TYPE_CHECKING:
    from tuimon.gpu_calls import SyncCall

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
    place, share, idle = wait.hot.place, wait.cells.cpu, gpu_idle_in(evidence, _awaits_no_batch)
    calls = None if wait.is_copy else calls_at(place)
    what = "a copy to or from the GPU" if calls is None else plain(calls[0].what) if calls else "one line"
    figures = {"waiting_share": share, **evidence.gpu.waits_in_trace(place)}
    cost = Interval(min(idle.low, share), min(idle.high, wait.cells.between.high))
    if min(share, cost.high) < SMALL:
        headline = f"{what} waits for the GPU at no cost: the GPU is the bottleneck anyway"
        action = "change nothing: this wait costs time only when the GPU has less to do"
        return harmless(evidence, headline, action, place, figures) if share >= REPORTED else None
    certain = cost if cost.low >= TRACE else Interval(0.0, cost.high)
    best = without_cost(evidence, advice_for(place, calls), certain)
    if calls and calls[0].kind in _COMPUTE and cost.low >= TRACE:
        best = best.without_upper_end
    after = f"blocks the CPU {percent(share)} of the time; the GPU then idles, {idle_part(gpu.idle)} of each step"
    if gpu.idle.low < SMALL and gpu.contradiction is None:
        after = f"waits for a busy GPU {percent(share)} of the time: 100 % CPU there is that wait"
    return Finding(
        headline=f"{what} {after}",
        fixes=(best,),
        share_of_step=cost.high,
        where=(place,),
        evidence={
            **figures,
            **gpu.idle.as_evidence("gpu_idle"),
            "speedup_at_most": best.as_json()["high"],
            **gpu.width_evidence,
        },
    )


def _awaits_no_batch(cell: Cell) -> bool:
    """True if launches that run ahead would hide the cell's time: it is no wait for a batch that others make."""
    return "batch" not in cell.via and cell.doing != "batch"


def calls_at(place: Place) -> Sequence[SyncCall]:
    """The calls on a line that wait for the GPU, the likeliest first."""
    from tuimon.gpu_calls import sync_calls  # noqa: PLC0415  (loads a parser)

    return sync_calls(place.source)


def advice_for(place: Place, calls: Sequence[SyncCall] | None) -> str:
    """What to write in place of the calls; None stands for a copy."""
    if calls is None:
        return f"use pinned memory and non_blocking=True at {at(place)}: the copy then does not wait"
    if not calls:
        return f"keep the value on the GPU at {at(place)}, and read it every 50 or 100 steps, or one step late"
    what, instead = f"{plain(calls[0].what)} at {at(place)}", plain(calls[0].instead)
    if instead.startswith(_LEAVE_OUT):
        return f"leave out {what}{instead.removeprefix(_LEAVE_OUT)}"
    return f"replace {what}: {instead}"


SYNC_POINT = Rule(
    title="Synchronisation with the GPU",
    judge=sync_point,
    needs=(GPU_TIMES, GPU_WAITS),
    thresholds=(SMALL, REPORTED),
    contradicts_order=True,
    takes=lambda cell, _: cell.phase in STEP and _awaits_no_batch(cell),
)
