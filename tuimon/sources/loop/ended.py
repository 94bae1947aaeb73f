"""What has ended in a loop: its steps, and the counters beside them."""

from __future__ import annotations

from msgspec import Struct

from tuimon.sources.loop.step import CountedSteps, Step


class EndedSteps(Struct, frozen=True, gc=False):
    """What has ended since the last call: steps, and the evaluation between them."""

    parts: list[Step | CountedSteps]
    eval_ns: int
    eval_count: int  # batches

    @property
    def total(self) -> int:
        """How many steps."""
        return sum(1 if isinstance(part, Step) else part.count for part in self.parts)

    @property
    def steps(self) -> list[Step]:
        """Each of those that were not only counted."""
        return [part for part in self.parts if isinstance(part, Step)]
