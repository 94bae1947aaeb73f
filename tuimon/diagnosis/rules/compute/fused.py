"""An update on a GPU by torch's own optimizer that goes through many tensors: what updating them at once would gain."""

from __future__ import annotations

from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.finding import Change, Fix
from tuimon.diagnosis.speedup import speedup_without
from tuimon.diagnosis.threshold import Threshold
from tuimon.records import OptimizerFacts

FUSED_OF_SINGLE = Threshold(
    0.10,
    "part of the time of an update that goes through tensors one by one that a fused one takes",
    "measured in bench/launches.py: 0.14 to 0.17 of Adam's on a CPU; less than 0.05 on an H100, of 800 tensors",
)
FUSED_OF_FOREACH = Threshold(
    0.30,
    "part of the time of a foreach update of many tensors that a fused one takes",
    "measured in bench/launches.py: 0.25 to 0.30 of Adam's on a CPU",
)
FOREACH_OF_SINGLE = Threshold(
    0.50,
    "part of the time of an update one by one that a foreach one takes",
    "measured in bench/launches.py: 0.47 to 0.56 of Adam's",
)
TAKES_ERROR = Threshold(
    0.15,
    "how far off a part of the time may be that a change was measured to take of other trainings",
    "measured in bench/fused_update.py: 0.10 to 0.47 with one thread, for 0.30",
)
#: Twice what the fused update takes, and nothing of it, are the ends of what may be gained: our choice.
_FEWEST, _MOST = 2.0, 0.0
#: torch's optimizers that have a fused form on a GPU: https://pytorch.org/docs/stable/optim.html
_HAS_FUSED = frozenset({"Adam", "AdamW", "SGD", "Adagrad"})


def fused_fix(evidence: Evidence, idle_at_most: float = 1.0) -> Fix | None:
    """All tensors in a few launches; None where they are updated so, or on a CPU, or by another library.

    ``idle_at_most``: the share of the step that the GPU idles, which bounds the gain where launches set the pace.
    """
    optimizer, found = evidence.phase("optimizer"), evidence.launching
    single, together = found.tensor_by_tensor, found.all_tensors_together
    facts = largest_optimizer(evidence)
    if optimizer is None or not evidence.uses_gpu or not single + together or (facts is not None and facts.fused):
        return None
    has_fused = facts is None or facts.name in _HAS_FUSED
    if single >= together:
        takes = FUSED_OF_SINGLE if has_fused else FOREACH_OF_SINGLE
    elif has_fused:
        takes = FUSED_OF_FOREACH
    else:
        return None
    share = optimizer.share * min(1.0, (single + together) / (found.update or 1.0))
    low, gained, high = (
        speedup_without(evidence, min(idle_at_most, share * (1.0 - min(1.0, takes * factor))))
        for factor in (_FEWEST, 1.0, _MOST)
    )
    return Fix(
        _words(evidence, facts, single >= together, has_fused), gained, low, high, Change("optimizer", float(takes))
    )


def largest_optimizer(evidence: Evidence) -> OptimizerFacts | None:
    """The facts of the optimizer with most tensors."""
    known = evidence.process.optimizers if evidence.process is not None else []
    return max(known, key=lambda facts: facts.tensors or 0, default=None)


def _words(evidence: Evidence, facts: OptimizerFacts | None, one_by_one: bool, has_fused: bool) -> str:
    name = facts.name if facts is not None else "the optimizer"
    number = f"{facts.tensors} tensors" if facts is not None and facts.tensors else "tensors"
    if not has_fused:
        return f"use {name} without foreach=False: its {number} are then updated together, not one by one"
    option = 'optim="adamw_torch_fused"' if evidence.launching.owner == "transformers" else "fused=True"
    instead = " instead of foreach=False" if one_by_one and evidence.launching.owner != "transformers" else ""
    how = "one by one" if one_by_one else "by one operation per part of the update"
    return f"set {option} for {name}{instead}: a few launches then update its {number}, now updated {how}"
