"""Side work: time outside the phases, in what the loop does beside the training."""

from __future__ import annotations

from typing import NamedTuple

from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.lines import HotFunction
from tuimon.diagnosis.evidence.places.collections import sampled_collections, without_collections
from tuimon.diagnosis.evidence.places.side_work import model_share, side_function, update_share
from tuimon.diagnosis.evidence.samples import ThreadSamples
from tuimon.diagnosis.evidence.steps import mean_step_ms
from tuimon.diagnosis.finding import Finding, Fix
from tuimon.diagnosis.ledger.claims import Claim, claim_on, is_sure
from tuimon.diagnosis.speedup import speedup_without
from tuimon.diagnosis.step_model.edits import Part
from tuimon.diagnosis.step_model.measured import host_model, queue_model
from tuimon.diagnosis.threshold import LARGE, MOST, NEARLY_ALL, REPORTED
from tuimon.diagnosis.words import at_hot, idle_part, in_library, percent
from tuimon.session.rows import PhaseRow, PhaseTable

#: When else the training can do side work.
_ELSEWHERE = "asynchronously, or after the epoch"


class _SideWork(NamedTuple):
    """The side work of a step, and its share."""

    claim: Claim
    hot: HotFunction | None
    hot_part: float  # the part of it that this function takes
    runs_model: bool
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
        is_sampled=bool(samples.total),
    )


def _finding(evidence: Evidence, table: PhaseTable, other: PhaseRow, work: _SideWork) -> Finding:
    (share, _, on_gpu), hot = work.claim, work.hot
    best, *others = _less(evidence, work, is_output=not table.updates)
    most = speedup_without(evidence, share * work.hot_part) if on_gpu else None
    best = best._replace(
        low=best.low or 1.0,  # nothing where the data comes no sooner, or the GPU may not idle meanwhile
        high=max(most, best.estimated_speedup or 0.0) if most is not None else best.high,
    )
    return Finding(
        rule="side_work",
        severity="warning" if hot or not work.is_sampled else "info",  # samples show nothing to act on
        headline=(
            (
                f"{percent(share)} of each step is"
                if on_gpu is None
                else f"the GPU waits {idle_part(on_gpu)} of each step for"
            )
            + f" side work {'that runs a model, such as evaluation' if work.runs_model else 'outside the model'}"
            + _part_in(work)
        ),
        fixes=(best, *others),
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


def _part_in(work: _SideWork) -> str:
    """The end of the headline: the function's own share of the step, unless it is nearly all side work."""
    hot = work.hot
    if hot is None or work.hot_part >= NEARLY_ALL:
        return in_library(hot)
    return f", {percent(work.claim.share * work.hot_part)} in one function{in_library(hot)}"


def _less(evidence: Evidence, work: _SideWork, *, is_output: bool) -> tuple[Fix, ...]:
    """The fixes: the function's work less often, or what to look for.

    ``is_output``: nothing trains, so it is what the model is run for, and every step needs it.
    """
    hot, queued = work.hot, queue_model(evidence)
    model = queued or host_model(evidence)
    lost = model.own_part(*(value * work.hot_part for value in work.claim.lost))
    if is_output and hot:
        cheaper = f"make {at_hot(hot)} cheaper, or do it in another process while the model runs"
        return model.less(
            cheaper, f"make {at_hot(hot)} twice as fast", "side_work", Part(work.hot_part) if queued else lost
        )
    return model.less(
        (
            f"run {at_hot(hot)} less often, {'or on a part of the data' if work.runs_model else _ELSEWHERE}"
            if hot
            else "look for logging, metrics or checkpoints in the loop"
        ),
        f"run {at_hot(hot) if hot else 'it'} half as often",
        "side_work",
        Part(work.hot_part) if queued else lost,
    )


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
