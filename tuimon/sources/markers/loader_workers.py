"""One DataLoader worker, from the running totals that it keeps in its trainer's ring."""

from __future__ import annotations

from msgspec import Struct

from tuimon.agent.ring.loading_slots import COLLATE, ITEMS, UNMEASURED, Loading
from tuimon.records import LoaderWorker

#: Batches, and ns of items, collate, waiting and handing over.
_Totals = tuple[int, int, int, int, int]


class Worker(Struct):
    """One worker of a loader, and how much of it records have covered."""

    pid: int
    number: int
    slot: Loading | None = None  # the latest that was read
    listed: _Totals = (0, 0, 0, 0, 0)  # what records have covered
    listed_window: int = 0  # in which it was listed last
    ended: bool = False

    def totals(self, now_ns: int) -> _Totals | None:
        """Totals, with what is under way; None where not measured."""
        slot = self.slot
        if slot is None:
            return None
        open_ns = 0 if self.ended else max(now_ns - slot.since_ns, 0)
        items_ns = slot.items_ns + open_ns * (slot.state == ITEMS)
        collate_ns = slot.collate_ns + open_ns * (slot.state == COLLATE)
        wait_ns = slot.wait_ns + open_ns * (slot.state not in (ITEMS, COLLATE))
        hand_over_ns = 0 if slot.hand_over_ns == UNMEASURED else slot.hand_over_ns
        return slot.batches, items_ns, collate_ns, wait_ns, hand_over_ns

    def take_record(self, now_ns: int) -> LoaderWorker:
        """What it did since it was listed last."""
        totals = self.totals(now_ns)
        if totals is None or self.slot is None:
            return LoaderWorker(self.pid, self.number)
        # what was listed as waiting may turn out to have been handing over: then it is not listed again
        batches, *times = (max(now - before, 0) for now, before in zip(totals, self.listed, strict=True))
        self.listed = _larger(totals, self.listed)
        items, collate, wait, hand_over = map(_ms, times)
        measured = self.slot.hand_over_ns != UNMEASURED
        return LoaderWorker(self.pid, self.number, batches, items, collate, wait, hand_over if measured else None)


def _larger(one: _Totals, other: _Totals) -> _Totals:
    batches, items, collate, wait, hand_over = map(max, one, other)
    return batches, items, collate, wait, hand_over


def _ms(value_ns: int) -> float:
    return round(max(value_ns, 0) / 1e6, 1)
