"""What differs between the runs of two sides besides their times, and what follows from that."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from tuimon.diagnosis.comparison.side.facts import RunFacts

#: ``void``: a step is not the same work, or not on the same machine; ``per sample``: steps differ in a known size.
Effect = Literal["said", "per sample", "void"]


class Unlike(msgspec.Struct, frozen=True):
    """A fact that differs: its name, both values as text, and what follows for the comparison."""

    name: str
    before: str
    after: str
    effect: Effect = "said"


#: Facts by name, with what a difference means.
_FACTS: tuple[tuple[str, Callable[[RunFacts], object], Effect], ...] = (
    ("GPUs", lambda facts: _counted(facts.gpus), "void"),
    ("cores", lambda facts: facts.cpu_count, "void"),
    ("nodes", lambda facts: facts.nodes, "void"),
    ("ranks", lambda facts: facts.ranks, "per sample"),
    ("batch size", lambda facts: facts.batch_size, "per sample"),
    ("host", lambda facts: facts.host, "said"),
    ("torch", lambda facts: facts.torch, "said"),
    ("Python", lambda facts: facts.python, "said"),
    ("tuimon", lambda facts: facts.tuimon, "said"),
    ("parameters", lambda facts: ", ".join(facts.dtypes) or None, "said"),
    ("TF32", lambda facts: facts.tf32, "said"),
    ("DataLoader workers", lambda facts: facts.workers, "said"),
    ("command", lambda facts: " ".join(facts.command), "said"),
)


def unlike(before: Sequence[RunFacts], after: Sequence[RunFacts]) -> list[Unlike]:
    """The facts that are not the same in all runs of both sides; what is unknown of a run differs from nothing."""
    found = []
    for name, of, effect in _FACTS:
        values = [[value for facts in side if (value := of(facts)) is not None] for side in (before, after)]
        texts = [sorted({str(value) for value in side}) for side in values]
        if not all(texts) or (texts[0] == texts[1] and len(texts[0]) == 1):
            continue
        mixed = max(map(len, texts)) > 1
        sized = effect == "per sample" and not mixed and _sizes_known(before, after)
        found.append(Unlike(name, " / ".join(texts[0]), " / ".join(texts[1]), _effect(effect, mixed, sized)))
    return found


def _effect(effect: Effect, mixed: bool, sized: bool) -> Effect:
    """Runs of one side that differ in size have no step in common; a size that is unknown cannot be taken out."""
    if effect == "per sample" and not sized:
        return "void"
    return effect


def samples_a_step(facts: RunFacts) -> int | None:
    """Samples of a step over all ranks, each with its own batches; None where the batch size is unknown."""
    return facts.batch_size * facts.ranks if facts.batch_size is not None else None


def _sizes_known(*sides: Sequence[RunFacts]) -> bool:
    return all(samples_a_step(facts) is not None for side in sides for facts in side)


def _counted(names: Sequence[str]) -> str | None:
    """``2 × H100``: names with how many of each; None without any."""
    counts = {name: names.count(name) for name in names}
    return ", ".join(f"{number} × {name}" if number > 1 else name for name, number in counts.items()) or None
