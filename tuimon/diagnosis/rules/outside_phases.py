"""Side work: time outside the phases, in what the loop does beside the training."""

from __future__ import annotations

from typing import NamedTuple

from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.lines import HotFunction
from tuimon.diagnosis.evidence.places.collections import sampled_collections, without_collections
from tuimon.diagnosis.evidence.places.side_work import (
    SideWorkKind,
    kind_of_work,
    model_share,
    side_function,
    update_share,
)
from tuimon.diagnosis.evidence.samples import ThreadSamples
from tuimon.diagnosis.evidence.steps import mean_step_ms
from tuimon.diagnosis.finding import Finding, Fix
from tuimon.diagnosis.ledger.claims import Claim, claim_on, is_sure
from tuimon.diagnosis.rules.owner_options import less_by_option
from tuimon.diagnosis.speedup import speedup_without
from tuimon.diagnosis.step_model.edits import Part
from tuimon.diagnosis.step_model.measured import host_model, queue_model
from tuimon.diagnosis.threshold import LARGE, MOST, NEARLY_ALL, REPORTED
from tuimon.diagnosis.words import at_hot, idle_part, in_library, percent
from tuimon.session.rows import PhaseRow, PhaseTable

#: When else the training can do side work.
_ELSEWHERE = "asynchronously, or after the epoch"


class _Kind(NamedTuple):
    """A kind of side work in words: all of it, a part of it, and the fix for a place."""

    whole: str
    part: str
    fix: str


_KINDS: dict[SideWorkKind, _Kind] = {
    "checkpoint": _Kind(
        "the saving of checkpoints",
        "saving checkpoints",
        "save less often at {}, or beside the training: a thread writes a copy of the weights"
        " (torch.distributed.checkpoint.async_save)",
    ),
    "network": _Kind(
        "calls over the network",
        "calls over the network",
        "collect what {} sends and send it less often, or from a thread: the training need not wait for the answer",
    ),
}


class _SideWork(NamedTuple):
    """The side work of a step, and its share."""

    claim: Claim
    hot: HotFunction | None
    hot_part: float  # the part of it that this function takes
    runs_model: bool
    kind: SideWorkKind | None
    is_sampled: bool


def work_outside_phases(evidence: Evidence, table: PhaseTable, other: PhaseRow) -> Finding | None:
    """A finding about side work where it takes much of the step."""
    work = _work_in(evidence, table, other) if table.trains else None
    return _finding(evidence, table, other, work) if work is not None else None


def _work_in(evidence: Evidence, table: PhaseTable, other: PhaseRow) -> _SideWork | None:
    """The side work, where it takes much of the step and is surely no evaluation of a loop without fetches."""
    waits = evidence.waits_for_ranks("other")  # in collectives that the loop calls: comm_bound, straggler_rank
    samples, beside_collections = _without_collections(evidence)
    claim = claim_on(evidence, other._replace(share=max(0.0, other.share - waits)), beside_collections)
    beside_update = 1.0 - update_share(samples)
    early = not table.inferred  # attached, one checkpoint may be half of what was seen
    if claim.share * beside_update < REPORTED or not is_sure(evidence, claim.share, error=other.error, early=early):
        return None
    runs_model = model_share(samples) >= MOST
    if other.estimated and claim.share < LARGE and runs_model:
        return None
    hot = side_function(samples)
    return _SideWork(
        claim=claim,
        hot=hot,
        hot_part=beside_update * (hot.share if hot else 1.0),
        runs_model=runs_model,
        kind=kind_of_work(samples, hot) if hot is not None else None,
        is_sampled=bool(samples.total),
    )


def _finding(evidence: Evidence, table: PhaseTable, other: PhaseRow, work: _SideWork) -> Finding:
    (share, _, on_gpu), hot = work.claim, work.hot
    fix = _less(evidence, work, is_output=not table.updates)
    most = speedup_without(evidence, share * work.hot_part) if on_gpu else None
    fix = fix._replace(
        low=fix.low or 1.0,  # nothing where the data comes no sooner, or the GPU may not idle meanwhile
        high=max(most, fix.estimated_speedup or 0.0) if most is not None else fix.high,
    )
    return Finding(
        rule="side_work",
        cause=work.kind,
        severity="warning" if hot or not work.is_sampled else "info",  # samples show nothing to act on
        headline=(
            (
                f"{percent(share)} of each step is "
                if on_gpu is None
                else f"the GPU waits {idle_part(on_gpu)} of each step for "
            )
            + _kind(work)
            + _part_in(work)
        ),
        fixes=(fix,),
        share_of_step=share,
        where=(hot.place,) if hot else (),
        evidence={
            "other_ms_per_step": other.ms_per_step,
            "step_ms": mean_step_ms(table),
            "hot_share": hot.share if hot else None,
            **(on_gpu.as_evidence() if on_gpu else {}),
            **({"speedup_at_most": most} if on_gpu else {}),
        },
    )


def _kind(work: _SideWork) -> str:
    if work.kind is not None and work.hot_part >= NEARLY_ALL:
        return _KINDS[work.kind].whole
    return f"side work {'that runs a model, such as evaluation' if work.runs_model else 'outside the model'}"


def _part_in(work: _SideWork) -> str:
    """The end of the headline: the function's own share of the step, unless it is nearly all side work."""
    hot = work.hot
    if hot is None or work.hot_part >= NEARLY_ALL:
        return in_library(hot)
    what = _KINDS[work.kind].part if work.kind is not None else "one function"
    return f", {percent(work.claim.share * work.hot_part)} in {what}{in_library(hot)}"


def _less(evidence: Evidence, work: _SideWork, *, is_output: bool) -> Fix:
    """The fix: the function's work less often, or what to look for."""
    queued = queue_model(evidence)
    model = queued or host_model(evidence)
    lost = model.own_part(*(value * work.hot_part for value in work.claim.lost))
    action = _action(evidence, work, is_output=is_output)
    return model.without("side_work", action, Part(work.hot_part) if queued else lost)


def _action(evidence: Evidence, work: _SideWork, *, is_output: bool) -> str:
    """What the user can change: code of their own, or the options of the library that owns the loop.

    ``is_output``: nothing trains, so the work is what the model is run for, and every step needs it.
    """
    hot = work.hot
    if hot is None:
        return "look for logging, metrics or checkpoints in the loop"
    if is_output:
        return f"make {at_hot(hot)} cheaper, or do it in another process while the model runs"
    if hot.library is not None and not work.runs_model:
        return less_by_option(evidence.launching.owner, hot.library)
    if work.kind is not None:
        return _KINDS[work.kind].fix.format(at_hot(hot))
    return f"run {at_hot(hot)} less often, {'or on a part of the data' if work.runs_model else _ELSEWHERE}"


def _without_collections(evidence: Evidence) -> tuple[ThreadSamples, float]:
    """The samples that are not of calls to the garbage collector, and which part (0..1) of the side work that leaves.

    If the process reports its collections, or samples show many, ``gc_pauses`` finds them.
    """
    samples = evidence.stacks.main
    are_reported = evidence.steps is not None and evidence.steps.collections is not None
    if not are_reported and sampled_collections(samples) is None:
        return samples, 1.0
    left = without_collections(samples)
    side = samples.in_phase("other").total
    return left, left.in_phase("other").total / side if side else 1.0
