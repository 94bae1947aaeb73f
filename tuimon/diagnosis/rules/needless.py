"""Work and waits that a training need not have: with them a loop whose device computes is not in order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tuimon.diagnosis.cells import PASSES, cells
from tuimon.diagnosis.claims import is_sure
from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.finding import Finding, Fix
from tuimon.diagnosis.threshold import LARGE
from tuimon.diagnosis.words import WAITS, at, percent

#: Backward passes over one batch, from which they are several.
_SEVERAL = 2.0


class Needless(NamedTuple):
    """Work that could be saved: a fact for a headline, and how."""

    what: str
    action: str


def needless_work(evidence: Evidence) -> Iterator[Needless]:
    """By what the batches hold, and by how often the passes run; nobody knows yet what it would gain."""
    loader, steps = evidence.data.loader, evidence.steps
    batches = loader.batches if loader is not None else None
    padding = batches.padding / batches.tokens if batches is not None and batches.tokens and batches.padding else 0.0
    if padding >= LARGE:
        yield Needless(
            f"{percent(padding)} of the positions in its batches are padding",
            "pad each batch to its own longest text, and put texts of like length into one batch",
        )
    if loader is None or not loader.fetches or not steps.total:
        return
    passes = steps.backwards / loader.fetches
    calls_closure = evidence.samples.part(lambda node: node.is_in_closure) > 0  # it is evaluated as often as need be
    if passes >= _SEVERAL and not calls_closure:
        yield Needless(
            f"backward runs {passes:.0f} times for each batch",
            "add the losses of a batch, and call backward() once",
        )


def wait_in_pass(evidence: Evidence) -> Finding | None:
    """The longest wait inside a pass or an update, which is no work of the model's; what it would gain nobody knows."""
    steps = cells(evidence).where(phase=("data", "other", *PASSES))
    waits = [cell for cell in steps.where(phase=PASSES) if cell.doing in WAITS and not cell.via]
    longest = max(waits, key=lambda cell: cell.cost.low, default=None)
    place = longest.node.place if longest is not None and longest.node is not None else None
    if longest is None or place is None or not is_sure(evidence, share := longest.cost.low / steps.cpu, early=False):
        return None
    wait = WAITS[longest.doing]
    return Finding(
        rule="side_work",
        severity="info",
        headline=f"the training thread {wait.what} in {longest.phase} for at least {percent(share)} of each step",
        fixes=(Fix(wait.less.format(at(place))),),
        share_of_step=share,
        where=(place,),
        evidence={"step_ms": evidence.steps.mean_ms},
    )
