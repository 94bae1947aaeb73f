"""Work that a training need not do, and its cost: padding, repeated passes over one graph, unused gradients."""

from __future__ import annotations

from collections.abc import Iterator

from tuimon.diagnosis.cells import Phase, of_step
from tuimon.diagnosis.claims import is_sure
from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.finding import Finding, Fix
from tuimon.diagnosis.interval import Interval
from tuimon.diagnosis.step_model.edits import HALF
from tuimon.diagnosis.step_model.measured import without, without_cost
from tuimon.diagnosis.threshold import LARGE, MIN_SAMPLES, MOST, TRACE
from tuimon.diagnosis.words import percent
from tuimon.session.stacks.samples import Samples

#: The phases in which the model computes.
MODEL: tuple[Phase, ...] = ("forward", "backward")
#: Most bytes per position in each tensor of a batch, if the batch holds nothing but texts: those of an int64.
_POSITION_BYTES = 8


def needless_work(evidence: Evidence) -> Iterator[Finding]:
    """Needless work, as shown by what batches hold, how often backward runs, and which gradients it computes."""
    gpu, step = evidence.gpu.steps, of_step(evidence)
    if gpu is not None:
        computes = {name: gpu.share(name) for name in MODEL}
    else:  # work that is left out waits for no core
        computes = {name: step.computing.where({name}).cpu + step.where({name}, via="core").cpu for name in MODEL}
    backward = computes["backward"]
    found = (_padding(evidence, sum(computes.values())), _repeated(evidence, backward), _unused(evidence, backward))
    yield from (each for each in found if each is not None)


def _padding(evidence: Evidence, computes: float) -> Finding | None:
    """Padding: the model's work is at least proportional to the positions, if a batch holds nothing but texts."""
    loader = evidence.data.loader
    batches = loader.batches if loader is not None else None
    padding = batches.padding / batches.tokens if batches is not None and batches.tokens and batches.padding else 0.0
    share = computes * padding
    if batches is None or padding < LARGE or not is_sure(evidence, share, early=False):
        return None
    most = (batches.tensors or 0) / batches.count * _POSITION_BYTES * (batches.tokens or 0)
    by_positions = (
        batches.total_bytes <= most and not evidence.samples.where(phase=MODEL).part(below="recurrent") >= MOST
    )
    action = "pad each batch to its own longest text, and put texts of like length into one batch"
    return _finding(
        evidence,
        "padding",
        f"{percent(padding)} of the positions in its batches are padding, which the model computes as well",
        _without(evidence, action, share) if by_positions else Fix(action),
        share,
        padding_share=padding,
    )


def _repeated(evidence: Evidence, computes: float) -> Finding | None:
    """Several passes over one kept graph, if a single pass would do.

    Each batch and each update needs a pass of its own; a closure runs as often as it must, and gradients that are
    returned serve no update. Without samples it is unknown to which graphs the passes belong.
    """
    steps, fetches = evidence.steps, evidence.data.fetches
    passes, samples = steps.backwards / max(1, fetches, steps.updates), evidence.samples.where(phase="backward")
    needed = evidence.samples.part(lambda node: node.is_in_closure) or samples.part(lambda node: node.returns_gradients)
    share = computes * (1.0 - 1.0 / max(1.0, passes))
    if not fetches or passes < 2.0 or needed or not is_sure(evidence, share, early=False):
        return None
    keeps = samples.part(lambda node: any("retain_graph" in frame.source for frame in node.frames))
    if samples.total >= MIN_SAMPLES and keeps < TRACE:
        return None
    action = "add the losses of a batch, and call backward() once, unless the gradient of each is needed by itself"
    return _finding(
        evidence,
        "repeated_backward",
        f"backward runs {passes:.0f} times for each batch",
        _without(evidence, action, share) if keeps else Fix(action),
        share,
        backwards_per_batch=passes,
    )


def _unused(evidence: Evidence, computes: float) -> Finding | None:
    """Gradients that no optimizer holds; every input of a product is assumed to cost backward the same."""
    unused = evidence.process.unused_gradients if evidence.process is not None else None
    share = computes * unused.inputs / (unused.of_inputs or 1) if unused is not None else 0.0
    if unused is None or not is_sure(evidence, share, early=False):
        return None
    action = (
        "freeze what no optimizer trains: run it under torch.no_grad(), or set requires_grad_(False) on its parameters"
    )
    return _finding(
        evidence,
        "unused_gradients",
        f"gradients of {unused.tensors} of {unused.of_tensors} parameters are computed, and no optimizer holds these",
        _without(evidence, action, share),
        share,
        unused_share=unused.inputs / unused.of_inputs,
    )


def _without(evidence: Evidence, action: str, share: float) -> Fix:
    if evidence.gpu.steps is not None:
        return without_cost(evidence, action, Interval(HALF * share, share))
    return without(evidence, "model", action, Interval.around(share))


def _finding(evidence: Evidence, cause: str, headline: str, fix: Fix, share: float, **figures: float | None) -> Finding:
    makers = Samples.joined((evidence.samples, evidence.data.workers.samples))
    pads = makers.hottest(below="collates") if cause == "padding" else None
    hot = pads or evidence.hottest_in("backward" if cause == "repeated_backward" else "forward")
    return Finding(
        cause=cause,
        severity="warning" if fix.gain is not None else "info",
        headline=headline,
        fixes=(fix,),
        share_of_step=share,
        where=(hot.place,) if hot is not None else (),
        evidence={**figures, "step_ms": evidence.steps.mean_ms},
    )
