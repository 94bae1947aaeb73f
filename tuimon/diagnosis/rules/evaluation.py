"""Evaluation: all of it where it is a large part of the time, else what it does beside the model."""

from __future__ import annotations

from typing import NamedTuple

from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.lines import HotFunction
from tuimon.diagnosis.evidence.places.side_work import evaluation_beside_model, evaluation_function
from tuimon.diagnosis.finding import Finding
from tuimon.diagnosis.ledger.claims import is_sure
from tuimon.diagnosis.step_model.edits import Part
from tuimon.diagnosis.step_model.measured import host_model
from tuimon.diagnosis.threshold import Threshold
from tuimon.diagnosis.words import at_hot, in_library, percent
from tuimon.session.rows import LoaderRow, PhaseRow

EVALUATION_SHARE = Threshold(
    0.35,
    "share of wall time in evaluation, from which it is a warning",
    "our choice: a third and more costs as much as half of the training; less is a usual price",
)


def evaluation_work(evidence: Evidence, side_share: float) -> Finding | None:
    """A finding about evaluation where it takes more of the time than the steps' side work, ``side_share``."""
    evaluation = evidence.phase("eval")
    if evaluation is None:
        return None
    if evaluation.share >= max(EVALUATION_SHARE, side_share):
        return _evaluation(evidence, evaluation)
    hot = evaluation_beside_model(evidence.stacks.main)
    if hot is None:
        return None
    share = min(evaluation.share, hot.share - side_share)  # samples outside the phases are of both
    if share < side_share or not is_sure(evidence, share):
        return None
    return _beside_model(evidence, evaluation, hot, share)


def _evaluation(evidence: Evidence, evaluation: PhaseRow) -> Finding:
    hot = evaluation_function(evidence.stacks.main)
    return _finding(
        evidence,
        f"{percent(evaluation.share)} of the time goes to evaluation, not training{in_library(hot)}",
        "evaluate less often, or on a part of the data",
        evaluation.share,
        1.0,
        hot,
        {
            "eval_share": evaluation.share,
            "eval_ms_per_batch": evaluation.ms_per_step,
            "hot_share": hot.share if hot else None,
        },
        _larger_batches(evidence, evaluation),
    )


class _LargerBatches(NamedTuple):
    action: str
    part: float  # of the evaluation that they save


def _larger_batches(evidence: Evidence, evaluation: PhaseRow) -> _LargerBatches | None:
    """Batches as large as those of training, where most of what a small one takes is the same for a large one.

    A step shows what the model takes for a batch of training, in its forward pass, which does more than one that
    evaluates: on the CPU, or on the GPU where it takes longer there. For batches of 4 that take 6 ms, 1 ms of these in
    the fetch, and batches of 64 in training whose forward pass takes 16 ms, evaluation is (5 - 16 / 16) / 6 cheaper in
    batches of 64.
    """
    training, evaluated, forward = evidence.loader, evidence.evaluation_loader, evidence.phase("forward")
    if training is None or evaluated is None or forward is None:
        return None
    large, small = training.facts.batch_size, evaluated.facts.batch_size
    batch_ms, wait_ms, forward_ms = evaluation.ms_per_step, evaluated.wait_ms, _forward_ms(evidence, training, forward)
    if not large or not small or large < 2 * small or not batch_ms or wait_ms is None or forward_ms is None:
        return None
    part = (batch_ms - wait_ms - forward_ms * small / large) / batch_ms
    if part <= 0.0:
        return None
    return _LargerBatches(f"evaluate in larger batches: {large} as in training, not {small}", part)


def _forward_ms(evidence: Evidence, training: LoaderRow, forward: PhaseRow) -> float | None:
    """The forward pass of one batch, of which a step may accumulate several."""
    gpu_ms, steps = 0.0 if evidence.uses_gpu is False else forward.gpu_ms_per_step, evidence.steps
    if forward.ms_per_step is None or gpu_ms is None or steps is None or not steps.total:
        return None
    return max(forward.ms_per_step, gpu_ms) / max(1.0, training.fetches / steps.total)


def _beside_model(evidence: Evidence, evaluation: PhaseRow, hot: HotFunction, share: float) -> Finding:
    return _finding(
        evidence,
        f"{percent(share)} of the time goes to evaluation's work outside the model{in_library(hot)}",
        f"run {at_hot(hot)} in fewer evaluations, or on a part of the data",
        share,
        share / evaluation.share,
        hot,
        {"eval_share": evaluation.share, "beside_model_share": share},
    )


def _finding(
    evidence: Evidence,
    headline: str,
    action: str,
    share: float,
    part: float,
    hot: HotFunction | None,
    facts: dict[str, float | None],
    batches: _LargerBatches | None = None,
) -> Finding:
    """The action takes away all of the share, which is this ``part`` of the evaluation."""
    model = host_model(evidence)
    fixes = [model.without("evaluation", action, Part(part))]
    if batches is not None:
        fixes.append(model.without("evaluation", batches.action, Part(batches.part)))
    return Finding(
        rule="side_work",
        severity="warning",
        cause="evaluation",
        headline=headline,
        fixes=tuple(fixes),
        share_of_step=share,
        where=(hot.place,) if hot else (),
        evidence=dict(facts),
    )
