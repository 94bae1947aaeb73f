"""A sample of a training thread, with its phase."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from tuimon.records import BETWEEN
from tuimon.session.loop_tree.range_join import RANGE


class Sample(Struct, frozen=True):
    """A stack of a training thread (frame ids, root first), how often it was seen, and its phase."""

    stack: list[int]
    count: int
    phase: str
    excluded: bool = False  # from dividing what markers leave open: they measure its phase
    unsure: bool = False  # "forward" may be "data", or "other" either of them: nothing shows yet which
    moved_from: str | None = None  # the phase that markers count it in, where they cannot separate that from its own
    maybe_from: str | None = None  # as moved_from, where nothing shows on which side of a marker it lies
    ranges: tuple[str, ...] = ()  # paths of the user's ranges that it lies in, outer ones first
    is_lost: bool = False  # it has lost all code of the user's, and no whole stack shows which: no share counts it

    def lies_in(self, part: str | None) -> bool:
        """Whether it is in a phase, or in a user range (RANGE and its path); None: always."""
        if part is None:
            return True
        return part.removeprefix(RANGE) in self.ranges if part.startswith(RANGE) else self.phase == part

    def between_backwards(self) -> Sample:
        """The same where a step has several backward passes: what lies between two of them markers leave open.

        So it is with a metric after each of the batches that an update accumulates over, which are fetched in a row.
        """
        if self.phase != "other" or not self.excluded or self.moved_from is not None or self.maybe_from is not None:
            return self
        return replace(self, maybe_from=BETWEEN)
