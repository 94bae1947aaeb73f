"""What a loop has come to: the steps that have ended, and counts."""

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
    """What has been counted of a loop, for as long as it has been followed or since something else has come."""

    cuts: int
    updates: int
    backwards: int
    train_fetches: int
    bare: int
    backwards_since_update: int
