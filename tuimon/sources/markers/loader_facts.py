"""One DataLoader: its facts and its workers, from the ring, and what its batches are used for."""

from __future__ import annotations

import json
from typing import Literal

from msgspec import Struct

from tuimon.agent.ring.loading_slots import COLLATE, ITEMS, UNMEASURED, Loading
from tuimon.records import LoaderFacts, LoaderWorker

#: More batches in a row without a backward than this are evaluated, unless a backward follows all the same.
_MOST_AHEAD = 16
#: Batches, and ns of items, collate, waiting and handing over.
_Totals = tuple[int, int, int, int, int]


def parsed_facts(text: str) -> tuple[LoaderFacts, int] | None:
    """A loader's facts and its number; None when they are not whole."""
    try:
        fields = json.loads(text)
        facts = LoaderFacts(
            dataset=str(fields["dataset"]),
            kind="iterable" if fields["kind"] == "iterable" else "map",
            workers=_count(fields["workers"]),
            prefetch=_whole(fields["prefetch"]),
            batch_size=_whole(fields["batch"]),
            pin_memory=bool(fields["pin"]),
            persistent=bool(fields["persistent"]),
            context=None if fields["context"] is None else str(fields["context"]),
            in_order=in_order if isinstance(in_order := fields.get("in_order"), bool) else None,
        )
        return facts, _count(fields["n"])
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):  # a process may write anything
        return None


def _count(value: int) -> int:
    if not 0 <= value < 1 << 31:
        raise ValueError(f"{value} of a loader")
    return int(value)


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and 0 <= value < 1 << 62 else None


class _Uses(Struct):
    """The uses of one loader's batches."""

    trained: int = 0
    evaluated: int = 0
    unused: int = 0  # fetched since the last backward
    has_ended: bool = False  # the iterator of these

    def settle(self, *, trains: bool) -> None:
        """It is known whether a backward has used them."""
        if trains:
            self.trained += self.unused
        else:
            self.evaluated += self.unused
        self.unused, self.has_ended = 0, False


class LoaderRoles:
    """Follows batches from fetch to backward, of whatever threads.

    A thread's own loop cannot decide that: batches may be fetched ahead in one thread and trained on in another.
    Several in a row may be fetched before the first trains: those of the loader that was fetched from last.
    """

    def __init__(self) -> None:
        self._uses: dict[int, _Uses] = {}  # by loader
        self._open: dict[int, _Uses] = {}  # of those with unused batches
        self._latest = 0
        self._has_ended = False  # an iterator of these
        self._trains = False  # a backward was seen

    def add_fetches(self, loader: int, count: int = 1) -> None:
        """So many batches of a loader, without a backward between them."""
        if self._has_ended:
            self._settle_ended()
        uses = self._open.get(loader)
        if uses is None:
            uses = self._open[loader] = self._uses.setdefault(loader, _Uses())
        uses.unused += count
        self._latest = loader

    def end_iterator(self, loader: int) -> None:
        """A fetch that found no batch."""
        if loader in self._open:
            self._open[loader].has_ended = self._has_ended = True

    def add_backward(self) -> None:
        """It trains on what was fetched last; of another loader on one batch at most."""
        self._trains = True
        if not self._open:
            return
        for loader, uses in self._open.items():
            uses.settle(trains=loader == self._latest or (uses.unused == 1 and not uses.has_ended))
        self._open.clear()
        self._has_ended = False

    def role(self, loader: int) -> Literal["train", "eval"] | None:
        """The main use of its batches; None where it is not known yet. If nothing trains, they make the steps."""
        uses = self._uses.get(loader)
        if uses is None:
            return None
        evaluated = uses.evaluated + (uses.unused if uses.has_ended or uses.unused > _MOST_AHEAD else 0)
        if not uses.trained and not evaluated:
            return None
        return "train" if uses.trained >= evaluated or not self._trains else "eval"

    def _settle_ended(self) -> None:
        """Another fetch, and no backward before it: what an iterator has given until its end was evaluated."""
        self._has_ended = False
        for loader, uses in [*self._open.items()]:
            if uses.has_ended:
                uses.settle(trains=False)
                del self._open[loader]


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
        """Its work since it was listed last."""
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
