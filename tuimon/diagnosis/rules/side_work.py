"""The rule about side work: what the loop does beside the training, evaluation included."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tuimon.diagnosis.claims import CONFIDENCE, Claim, claim_on, is_sure, without
from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.gpu.steps import GPU_CLOCK_WAIT_S
from tuimon.diagnosis.evidence.lines import without_collections
from tuimon.diagnosis.evidence.side_work import (
    SideWorkKind,
    evaluation_beside_model,
    evaluation_function,
    kind_of_work,
    model_share,
    side_function,
    update_path,
    update_share,
)
from tuimon.diagnosis.finding import WIDEST_RANGE, Change, Finding, Fix
from tuimon.diagnosis.interval import Interval
from tuimon.diagnosis.rule import SAMPLES, STEPS, Rule
from tuimon.diagnosis.rules.owner_options import less_by_option
from tuimon.diagnosis.step_model.measured import host_model, queue_model, without_cost
from tuimon.diagnosis.threshold import LARGE, MOST, NEARLY_ALL, REPORTED, Threshold
from tuimon.diagnosis.words import at_hot, idle_part, in_library, percent, work_at
from tuimon.session.beside_steps import Checkpoints
from tuimon.session.rows import HotLine, LoaderRow, PhaseRow, PhaseTable
from tuimon.session.standing import outer_calls
from tuimon.text import size_text

EVALUATION_SHARE = Threshold(
    0.35,
    "share of the loop's time in evaluation, from which it is a warning",
    "our choice: a third and more costs as much as half of the training; less is a usual price",
)
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
        "collect what {} sends, and send it seldom or from a thread",
    ),
}


def evaluation_work(evidence: Evidence, side_share: float) -> Finding | None:
    """A finding about evaluation where it takes more of the time than the steps' side work, ``side_share``."""
    evaluation = evidence.phase("eval")
    if evaluation is None:
        return None
    if evaluation.share >= max(EVALUATION_SHARE, side_share):
        return _evaluation(evidence, evaluation)
    hot = evaluation_beside_model(evidence.samples)
    if hot is None:
        return None
    share = min(evaluation.share, hot.share - side_share)  # samples outside the phases are of both
    if share < side_share or not is_sure(evidence, share):
        return None
    return _beside_model(evidence, evaluation, hot, share)


def _evaluation(evidence: Evidence, evaluation: PhaseRow) -> Finding:
    hot = evaluation_function(evidence.samples)
    return _of_evaluation(
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


def _beside_model(evidence: Evidence, evaluation: PhaseRow, hot: HotLine, share: float) -> Finding:
    return _of_evaluation(
        evidence,
        f"{percent(share)} of the time goes to evaluation's work outside the model{in_library(hot)}",
        f"run {at_hot(hot)} in fewer evaluations, or on a part of the data",
        share,
        share / evaluation.share,
        hot,
        {"eval_share": evaluation.share, "beside_model_share": share},
    )


def _of_evaluation(
    evidence: Evidence,
    headline: str,
    action: str,
    share: float,
    part: float,
    hot: HotLine | None,
    facts: dict[str, float | None],
    batches: _LargerBatches | None = None,
) -> Finding:
    """The action takes away all of the share, which is this ``part`` of the evaluation."""
    model = host_model(evidence)
    fixes = [model.fix(action, Change("evaluation", 0.0), Interval.around(part))]
    if batches is not None:
        fixes.append(model.fix(batches.action, Change("evaluation", 0.0), Interval.around(batches.part)))
    return Finding(
        cause="evaluation",
        headline=headline,
        fixes=tuple(fixes),
        share_of_step=share,
        where=(hot.place,) if hot else (),
        evidence=dict(facts),
    )


def _saved_text(saved: Checkpoints) -> str:
    """``: 1.2 GiB in 410 ms to nfs4``, `` at 728 MiB/s``."""
    each = f" at {size_text(saved.bytes_per_s)}/s"
    if saved.each_bytes is not None and saved.each_ms is not None:
        each = f": {size_text(saved.each_bytes)} in {saved.each_ms:.0f} ms"
    return f"{each}{f' to {saved.file_system}' if saved.file_system else ''}"


def _saved_facts(saved: Checkpoints) -> dict[str, float | int | str | None]:
    return {
        "checkpoints": saved.number,
        "checkpoint_ms": saved.each_ms,
        "checkpoint_bytes": saved.each_bytes,
        "written_bytes_per_s": saved.bytes_per_s,
        "file_system": saved.file_system or None,
    }


class _SideWork(NamedTuple):
    """The side work of a step, and its share."""

    claim: Claim
    hot: HotLine | None
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
    samples = without_collections(evidence.samples)
    other = without(evidence, other, "gc")
    claim = claim_on(evidence, other._replace(share=max(0.0, other.share - waits)))
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
    saved = evidence.checkpoints if work.kind == "checkpoint" else None
    low, high = fix.gain or (1.0, 1.0)
    if hot is None and work.is_sampled:
        low = 1.0  # samples may show nothing to act on
    if on_gpu is not None:  # it may idle for all of the time
        gone = without_cost(evidence, "", Interval.around(share * work.hot_part)).gain or Interval(1.0, 1.0)
        high = max(gone.high, fix.estimated_speedup or 0.0)
        high = min(high, WIDEST_RANGE * low) if low > 1.0 else high
    fix = fix._replace(gain=Interval(low, high))
    return Finding(
        cause=work.kind,
        headline=(
            (
                f"{percent(share)} of each step is "
                if on_gpu is None
                else f"the GPU waits {idle_part(on_gpu)} of each step for "
            )
            + _kind(work)
            + _part_in(work)
            + (_saved_text(saved) if saved is not None else "")
        ),
        fixes=(fix, *_half(evidence, work)),
        share_of_step=share,
        where=(hot.place,) if hot else (),
        evidence={
            "other_ms_per_step": other.ms_per_step,
            "step_ms": evidence.step_ms,
            "hot_share": hot.share if hot else None,
            **(on_gpu.as_evidence("gpu_waits") if on_gpu else {}),
            **({"speedup_at_most": high} if on_gpu else {}),
            **(_saved_facts(saved) if saved is not None else {}),
        },
    )


def _half(evidence: Evidence, work: _SideWork) -> Iterator[Fix]:
    """The gain of saving half as often: nobody does without checkpoints."""
    if work.kind == "checkpoint" and work.hot is not None and work.hot.library is None:
        yield _without(evidence, work, f"save half as often at {_at_work(evidence, work.hot)}", 0.5)


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
    return _without(evidence, work, _action(evidence, work, is_output=is_output), 1.0)


def _without(evidence: Evidence, work: _SideWork, action: str, part: float) -> Fix:
    """The fix by which this part of the function's work goes."""
    queued = queue_model(evidence)
    model = queued or host_model(evidence)._replace(claimed=work.claim.lost.times(part))
    part *= work.hot_part
    lost = model.own_part(work.claim.lost.times(part))
    return model.fix(action, Change("side_work", 0.0), Interval.around(part) if queued else lost)


def _action(evidence: Evidence, work: _SideWork, *, is_output: bool) -> str:
    """Advice on what the user can change: code of their own, or the options of the library that owns the loop.

    ``is_output``: nothing trains, so the work is what the model is run for, and every step needs it.
    """
    hot = work.hot
    if hot is None:
        return "look for logging, metrics or checkpoints in the loop"
    if is_output:
        return f"make {_at_work(evidence, hot)} cheaper, or do it in another process while the model runs"
    if hot.library is not None and not work.runs_model:
        return less_by_option(evidence.launching.owner, hot.library)
    if work.kind is not None:
        return _KINDS[work.kind].fix.format(_at_work(evidence, hot))
    if "sleep" in outer_calls(hot.place.source):
        return f"leave out the sleep at {at_hot(hot)}, or shorten it: the training waits for it"
    less = "or on a part of the data" if work.runs_model else _ELSEWHERE
    return f"run {_at_work(evidence, hot)} less often, {less}"


def _at_work(evidence: Evidence, hot: HotLine) -> str:
    main = evidence.samples
    return work_at(hot, update_path(main) or main.training_path)  # which nothing may train


def side_work(evidence: Evidence) -> Finding | None:
    """Checkpoints, logging, metrics, evaluation: time outside the phases, with the line that takes most of it."""
    table, other = evidence.phases, evidence.phase("other")
    if table is None or other is None or evidence.awaits_gpu_times:
        return None
    if (found := evaluation_work(evidence, other.share * evidence.in_steps)) is not None:
        return found
    return work_outside_phases(evidence, table, other)


SIDE_WORK = Rule(
    title="Side work in the loop",
    judge=side_work,
    explanation=(
        "Checkpoints, logging, metrics or evaluation take time beside the training. It rests on the phase outside data,"
        " forward, backward and optimizer, or on the time in evaluation, whichever takes more, and names the line from"
        " the training thread's samples there. With GPU times, side work counts as far as the GPU idles. Where there is"
        " nothing else to mend, a long wait inside a pass or an update is told."
    ),
    needs=(STEPS, SAMPLES),
    thresholds=(REPORTED, EVALUATION_SHARE, LARGE, NEARLY_ALL, *CONFIDENCE, GPU_CLOCK_WAIT_S),
    causes=("checkpoint", "network", "evaluation"),
    contradicts_order=True,
)
