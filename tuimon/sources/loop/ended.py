"""What has ended in a loop: its steps, and the counters beside them."""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct

from tuimon.sources.loop.step import Step, StepRun


class EndedSteps(Struct, frozen=True, gc=False):
    """What has ended since the last call: steps, and the evaluation between them."""

    parts: list[Step | StepRun]
    eval_ns: int
    eval_count: int  # batches

    @property
    def total(self) -> int:
        """How many steps."""
        return sum(1 if isinstance(part, Step) else len(part) for part in self.parts)

    @property
    def steps(self) -> list[Step]:
        """Each of them."""
        return [step for part in self.parts for step in ((part,) if isinstance(part, Step) else part.steps())]


class StepCounts(NamedTuple):
    """Counters of a loop: the first three since it has been followed, the others since they were last reset."""

    cuts: int
    updates: int
    backwards: int
    train_fetches: int
    bare: int
    backwards_since_update: int
