"""How much of a loop is held back while it is not known what a step of it is."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from tuimon.sources.loop.step import Step


class Holding(Struct, frozen=True, gc=False):
    """Pieces of steps are held back up to this many, or this long."""

    most: int
    longest_ns: int

    def has_enough(self, pieces: Sequence[Step]) -> bool:
        """True if these pieces are no longer held back.

        The first is held from its end on: it may have begun with minutes of set-up.
        """
        return len(pieces) >= self.most or pieces[-1].end_ns - pieces[0].end_ns >= self.longest_ns


#: Of a loop with an optimizer: whether fetches bound its steps shows in the first few.
UPDATES = Holding(8, 3_000_000_000)
#: ... unless the first has trained on a batch: two models in turn may share that, and the next is one step away.
BATCH_UPDATES = Holding(8, 20_000_000_000)
#: ... and unless a fetch has just begun: only its batch's backward is still to come, however slow the steps are.
FETCHED_UPDATES = Holding(8, 1_000_000_000_000)
#: Backwards before the first optimizer step may be accumulated gradients, of which none is a step: 32 and more in one
#: are rare, and a loop whose optimizer is not torch's is known so much later.
BACKWARDS = Holding(32, 20_000_000_000)
#: ... less rare where the program has an optimizer of torch's. Only where that never steps, or steps unseen in compiled
#: code, is the loop known so much later.
EXPECTED_UPDATE = Holding(1024, 120_000_000_000)
