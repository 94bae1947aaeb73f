"""Work that a training need not do: with it a loop whose device always computes is not in order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.threshold import LARGE
from tuimon.diagnosis.words import percent

#: Backward passes over one batch, from which they are several.
_SEVERAL = 2.0


class Needless(NamedTuple):
    """Work that could be saved: a fact for a headline, and how."""

    what: str
    action: str


def needless_work(evidence: Evidence) -> Iterator[Needless]:
    """By what the batches hold, and by how often the passes run; nobody knows yet what it would gain."""
    loader, steps = evidence.loader, evidence.steps
    batches = loader.batches if loader is not None else None
    padding = batches.padding / batches.tokens if batches is not None and batches.tokens and batches.padding else 0.0
    if padding >= LARGE:
        yield Needless(
            f"{percent(padding)} of the positions in its batches are padding",
            "pad each batch to its own longest text, and put texts of like length into one batch",
        )
    if loader is None or steps is None or not loader.fetches or not steps.total:
        return
    passes = steps.backwards / loader.fetches
    calls_closure = evidence.samples.part(lambda node: node.is_in_closure) > 0  # it is evaluated as often as need be
    if passes >= _SEVERAL and not calls_closure:
        yield Needless(
            f"backward runs {passes:.0f} times for each batch",
            "add the losses of a batch, and call backward() once",
        )
