"""The rule about side work: what the loop does beside the training, evaluation included. A remedy is a row."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from msgspec import Struct

from tuimon.diagnosis.claims import CONFIDENCE, Claim, claim_on, is_sure, without
from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.gpu_steps import GPU_CLOCK_WAIT_S
from tuimon.diagnosis.evidence.lines import is_collecting
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
from tuimon.session.phase_table import PhaseRow
from tuimon.session.stacks.samples import HotLine
from tuimon.session.standing import outer_calls
from tuimon.text import size_text

EVALUATION_SHARE = Threshold(
    0.35,
    "share of the loop's time in evaluation, from which it is a warning",
    "our choice: a third and more costs as much as half of the training; less is a usual price",
)


def side_work(evidence: Evidence) -> Finding | None:
    """Checkpoints, logging, metrics, evaluation: time outside the phases, with the line that takes most of it."""
    table, other, evaluation = evidence.steps.phases, evidence.steps.phase("other"), evidence.steps.phase("eval")
    if table is None or other is None or evidence.gpu.awaits_times:
        return None
    if evaluation is not None:
        found = _evaluation(evidence, evaluation, beside=other.share * evidence.steps.part_of_time)
        if found is not None:
            return found
    return _in_steps(evidence, other) if table.trains else None


# -- evaluation


def _evaluation(evidence: Evidence, evaluation: PhaseRow, beside: float) -> Finding | None:
    """Evaluation, or its work outside the model, where it takes more of the time than side work (``beside``)."""
    model, share = host_model(evidence), evaluation.share
    if share >= max(EVALUATION_SHARE, beside):
        hot = evaluation_function(evidence.samples)
        larger = _larger_batches(evidence, evaluation)
        fixes = (
            model.fix("evaluate less often, or on a part of the data", Change("evaluation", 0.0)),
            *([model.fix(larger[0], Change("evaluation", 0.0), Interval.around(larger[1]))] if larger else []),
        )
        return Finding(
            cause="evaluation",
            headline=f"{percent(share)} of the time goes to evaluation, not training{in_library(hot)}",
            fixes=fixes,
            share_of_step=share,
            where=(hot.place,) if hot else (),
            evidence={
                "eval_share": share,
                "eval_ms_per_batch": evaluation.ms_per_step,
                "hot_share": hot.share if hot else None,
            },
        )
    hot = evaluation_beside_model(evidence.samples)
    share = min(share, hot.share - beside) if hot is not None else 0.0  # samples outside the phases are of both
    if hot is None or share < beside or not is_sure(evidence, share):
        return None
    less = f"run {at_hot(hot)} in fewer evaluations, or on a part of the data"
    return Finding(
        cause="evaluation",
        headline=f"{percent(share)} of the time goes to evaluation's work outside the model{in_library(hot)}",
        fixes=(model.fix(less, Change("evaluation", 0.0), Interval.around(share / evaluation.share)),),
        share_of_step=share,
        where=(hot.place,),
        evidence={"eval_share": evaluation.share, "beside_model_share": share},
    )


def _larger_batches(evidence: Evidence, evaluation: PhaseRow) -> tuple[str, float] | None:
    """Batches as large as those of training, if most of what a small one takes is the same for a large one; its part.

    A step shows what the model takes for a batch of training, of which it may accumulate several, in its forward pass,
    which does more than one that evaluates: on the CPU, or on the GPU where it takes longer there. For batches of 4
    that take 6 ms, 1 ms of these in the fetch, and batches of 64 in training whose forward pass takes 16 ms, evaluation
    is (5 - 16 / 16) / 6 cheaper in batches of 64.
    """
    training, evaluated = evidence.data.loader, evidence.data.evaluation_loader
    steps, forward, batch_ms = evidence.steps, evidence.steps.phase("forward"), evaluation.ms_per_step
    if training is None or evaluated is None or forward is None or not steps.total or not batch_ms:
        return None
    large, small = training.facts.batch_size, evaluated.facts.batch_size
    forward_ms, gpu_ms = forward.ms_per_step, 0.0 if evidence.gpu.is_used is False else forward.gpu_ms_per_step
    if not large or not small or large < 2 * small or evaluated.wait_ms is None or forward_ms is None or gpu_ms is None:
        return None
    forward_ms = max(forward_ms, gpu_ms) / max(1.0, training.fetches / steps.total)
    part = (batch_ms - evaluated.wait_ms - forward_ms * small / large) / batch_ms
    return (f"evaluate in larger batches: {large} as in training, not {small}", part) if part > 0.0 else None


# -- work in steps


class _Work(Struct, frozen=True):
    """The side work of a step, and its share."""

    evidence: Evidence
    claim: Claim
    hot: HotLine | None
    hot_part: float  # the part of it that this function takes
    runs_model: bool
    kind: SideWorkKind | None

    @property
    def is_output(self) -> bool:
        """True if nothing trains, so that the work is what the model is run for, and every step needs it."""
        return self.evidence.steps.phases is not None and not self.evidence.steps.phases.updates

    @property
    def at(self) -> str:
        """The work that a user can leave out."""
        main = self.evidence.samples
        path = update_path(main) or main.training_path  # which nothing may train
        return work_at(self.hot, path) if self.hot is not None else ""

    @property
    def sleeps_at(self) -> str:
        """The line, if all that it does is to sleep."""
        is_sleep = self.hot is not None and "sleep" in outer_calls(self.hot.place.source)
        return at_hot(self.hot) if self.hot is not None and is_sleep else ""

    @property
    def by_option(self) -> str:
        """The option of the library that owns the loop, and does the work by itself."""
        library = self.hot.library if self.hot is not None and not self.runs_model else None
        return less_by_option(self.evidence.gpu.launching.owner, library) if library is not None else ""

    def without(self, action: str, part: float) -> Fix:
        """The fix by which this part of the function's work goes."""
        queued = queue_model(self.evidence)
        model = queued or host_model(self.evidence)._replace(claimed=self.claim.lost.times(part))
        part *= self.hot_part
        lost = model.own_part(self.claim.lost.times(part))
        return model.fix(action, Change("side_work", 0.0), Interval.around(part) if queued else lost)


class _Kind(NamedTuple):
    """A kind of side work in words: all of it, and a part of it."""

    whole: str
    part: str


_KINDS: dict[SideWorkKind, _Kind] = {
    "checkpoint": _Kind("the saving of checkpoints", "saving checkpoints"),
    "network": _Kind("calls over the network", "calls over the network"),
}
#: What to do about it, as templates; the first that holds.
_REMEDIES: tuple[tuple[Callable[[_Work], object], str], ...] = (
    (lambda f: f.hot is None, "look for logging, metrics or checkpoints in the loop"),
    (lambda f: f.is_output, "make {f.at} cheaper, or do it in another process while the model runs"),
    (lambda f: f.by_option, "{f.by_option}"),
    (
        lambda f: f.kind == "checkpoint",
        "save less often at {f.at}, or beside the training: a thread writes a copy of the weights"
        " (torch.distributed.checkpoint.async_save)",
    ),
    (lambda f: f.kind == "network", "collect what {f.at} sends, and send it seldom or from a thread"),
    (lambda f: f.sleeps_at, "leave out the sleep at {f.sleeps_at}, or shorten it: the training waits for it"),
    (lambda f: f.runs_model, "run {f.at} less often, or on a part of the data"),
    (lambda f: True, "run {f.at} less often, asynchronously, or after the epoch"),
)


def _in_steps(evidence: Evidence, other: PhaseRow) -> Finding | None:
    """The side work of steps, where it takes much of them."""
    waits = evidence.ranks.waits_in("other")  # in collectives that the loop calls: comm_bound, straggler_rank
    samples = evidence.samples.where(lambda node: not is_collecting(node))
    other = without(evidence, other, "gc")
    claim = claim_on(evidence, other._replace(share=max(0.0, other.share - waits)))
    beside_update, runs_model = 1.0 - update_share(samples), model_share(samples) >= MOST
    table = evidence.steps.phases
    early = table is not None and not table.inferred  # attached, one checkpoint may be half of it
    if claim.share * beside_update < REPORTED or not is_sure(evidence, claim.share, error=other.error, early=early):
        return None
    if other.estimated and claim.share < LARGE and runs_model:
        return None
    hot = side_function(samples)
    work = _Work(
        evidence=evidence,
        claim=claim,
        hot=hot,
        hot_part=beside_update * (hot.share if hot else 1.0),
        runs_model=runs_model,
        kind=kind_of_work(samples, hot) if hot is not None else None,
    )
    fix = work.without(next(text for when, text in _REMEDIES if when(work)).format(f=work), 1.0)
    low, high = fix.gain or (1.0, 1.0)
    if hot is None and samples.total:
        low = 1.0  # samples may show nothing to act on
    if claim.on_gpu is not None:  # it may idle for all of the time
        gone = without_cost(evidence, "", Interval.around(claim.share * work.hot_part)).gain or Interval(1.0, 1.0)
        high = max(gone.high, fix.estimated_speedup or 0.0)
        high = min(high, WIDEST_RANGE * low) if low > 1.0 else high
    fixes = [fix._replace(gain=Interval(low, high))]
    if work.kind == "checkpoint" and hot is not None and hot.library is None:  # nobody does without checkpoints
        fixes.append(work.without(f"save half as often at {work.at}", 0.5))
    saved = evidence.checkpoints if work.kind == "checkpoint" else None
    return Finding(
        cause=work.kind,
        headline=_headline(work) + (_saved_text(saved) if saved is not None else ""),
        fixes=tuple(fixes),
        share_of_step=claim.share,
        where=(hot.place,) if hot else (),
        evidence={
            "other_ms_per_step": other.ms_per_step,
            "step_ms": evidence.steps.mean_ms,
            "hot_share": hot.share if hot else None,
            **({**claim.on_gpu.as_evidence("gpu_waits"), "speedup_at_most": high} if claim.on_gpu else {}),
            **(_saved_facts(saved) if saved is not None else {}),
        },
    )


def _headline(work: _Work) -> str:
    """The function's own share of the step is told unless it is nearly all side work."""
    share, on_gpu = work.claim.share, work.claim.on_gpu
    waits = f"{percent(share)} of each step is "
    if on_gpu is not None:
        waits = f"the GPU waits {idle_part(on_gpu)} of each step for "
    is_all, kind = work.hot_part >= NEARLY_ALL, _KINDS[work.kind] if work.kind is not None else None
    what = f"side work {'that runs a model, such as evaluation' if work.runs_model else 'outside the model'}"
    if kind is not None and is_all:
        what = kind.whole
    elif work.hot is not None and not is_all:
        what += f", {percent(share * work.hot_part)} in {kind.part if kind is not None else 'one function'}"
    return f"{waits}{what}{in_library(work.hot)}"


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
    takes=lambda cell, finding: (
        cell.phase == ("eval" if finding.cause == "evaluation" else "other") and cell.doing not in ("gc", "sync")
    ),
)
