"""The DataLoaders of a process: fetches come from stretches of its loop, workers from the slots in its ring."""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Iterable, Iterator
from statistics import median
from typing import Literal

import msgspec
from msgspec import Struct, field, structs

from tuimon.agent.ring import layout
from tuimon.agent.ring.files import PID_LIMIT
from tuimon.agent.ring.layout import Passed
from tuimon.agent.ring.loading_slots import COLLATE, IN_PROCESS, ITEMS, UNMEASURED, Loading
from tuimon.agent.ring.reader import RingReader
from tuimon.bounds import has_room
from tuimon.proc import procfs
from tuimon.records import Count, Loader, LoaderFacts, LoaderWorker, MeasuredBatches, Place
from tuimon.sources.loop.step import MarkedStretch
from tuimon.sources.loop.steps import StepFinder
from tuimon.sources.source_facts import ProcessCode

#: More batches in a row without a backward than this count as evaluated, unless a backward follows after all.
_MAX_AHEAD = 16


def parsed_facts(text: str) -> tuple[LoaderFacts, int] | None:
    """A loader's facts and its number; None if they are damaged."""
    try:
        noted = msgspec.json.decode(text, type=dict[str, object])
        noted.update(batch_size=noted["batch"], pin_memory=noted["pin"])
        return msgspec.convert(noted, LoaderFacts), msgspec.convert(noted["n"], Count)
    except (msgspec.MsgspecError, KeyError, RecursionError):  # a process may write anything
        return None


class Worker(Struct):
    """A worker of a loader, and how much of its work is in records."""

    pid: int
    number: int
    slot: Loading | None = None  # as read last
    listed: list[int] = field(default_factory=lambda: [0] * 5)  # totals that are in records
    listed_window: int = 0  # number of the window whose record lists it, the latest
    ended: bool = False

    def totals(self, slot: Loading, now_ns: int) -> list[int]:
        """Batches, and ns of items, collate, waiting and hand-over, the current state included."""
        open_ns = 0 if self.ended else max(now_ns - slot.since_ns, 0)
        items_ns = slot.items_ns + open_ns * (slot.state == ITEMS)
        collate_ns = slot.collate_ns + open_ns * (slot.state == COLLATE)
        wait_ns = slot.wait_ns + open_ns * (slot.state not in (ITEMS, COLLATE))
        hand_over_ns = 0 if slot.hand_over_ns == UNMEASURED else slot.hand_over_ns
        return [slot.batches, items_ns, collate_ns, wait_ns, hand_over_ns]

    def take_record(self, now_ns: int) -> LoaderWorker:
        """The row with its work since the last one."""
        if self.slot is None:  # it is not measured
            return LoaderWorker(self.pid, self.number)
        totals = self.totals(self.slot, now_ns)
        # time listed as waiting may turn out to have been a hand-over: then it is not listed again
        batches, *times_ns = (max(now - before, 0) for now, before in zip(totals, self.listed, strict=True))
        self.listed = list(map(max, totals, self.listed))
        items, collate, wait, hand_over = (round(time_ns / 1e6, 1) for time_ns in times_ns)
        measured = self.slot.hand_over_ns != UNMEASURED
        return LoaderWorker(self.pid, self.number, batches, items, collate, wait, hand_over if measured else None)


#: Workers listed in one record, so that the log stays small; the others follow in the next windows.
WORKERS_LISTED = 4
#: Totals of a worker found late cover its whole life: above this they are left out, as mostly of earlier windows.
LATE_NS = 10_000_000_000
#: Windows after which the facts are repeated.
_FACTS_EVERY = 60


class _Loader(Struct):
    """One loader: the uses of its batches, its fetches in this window, and its workers."""

    facts: LoaderFacts
    number: int
    trained: int = 0
    evaluated: int = 0
    unused: int = 0  # batches since the last backward
    has_ended: bool = False  # True if the iterator of these batches is exhausted
    waits_ns: list[int] = field(default_factory=list)
    counted: int = 0  # fetches that were only counted
    ready: list[int] = field(default_factory=list)
    latest_ns: deque[int] = field(default_factory=lambda: deque(maxlen=64))  # waits
    before: tuple[int, int] | None = None  # the fetch before: batches ready when it began, its wait
    held_ns: list[int] = field(default_factory=list)  # time that fetches which were held back waited beyond the usual
    starts_ns: list[tuple[int, int]] = field(default_factory=list)  # for each new epoch: time in iter(), in first fetch
    end_ns: int = 0  # time at the ends of epochs
    epochs: int = 0  # epochs that ended, with a batch that was trained on
    other_epochs: int = 0  # epochs that gave all of their batches, none of which was trained on
    trained_before: int = 0  # value of ``trained`` when the current epoch began
    awaits_training: bool = False  # True if the latest exhausted epoch has had no batch that was trained on
    batches: MeasuredBatches | None = None
    tokens: tuple[int | None, int | None] = (None, None)  # tokens of the batch that is measured next, and padding in it
    tensors: tuple[int | None, int | None] = (None, None)  # tensors of that batch, and KiB of their storages
    iterator: int = 0  # id of the latest iterator
    iter_ns: int | None = None  # how long its iter(loader) took; None once the first batch came
    given: int | None = None  # batches that it has given in this epoch
    length: int | None = None  # batches in an epoch
    workers: dict[int, Worker] = field(default_factory=dict)  # by pid
    facts_window: int = -_FACTS_EVERY  # number of the window whose record has the facts, the latest

    def count_unused(self, *, trains: bool) -> None:
        """Count the batches since the last backward as trained on (``trains``) or evaluated."""
        if trains:
            self.trained += self.unused
            self.epochs += self.awaits_training
        else:
            self.evaluated += self.unused
            self.other_epochs += self.awaits_training
        self.unused, self.has_ended, self.awaits_training = 0, False, False

    def role(self, *, any_trains: bool) -> Literal["train", "eval"] | None:
        """The main use of its batches; None if it is not known yet. If nothing trains, they make the steps."""
        evaluated = self.evaluated + (self.unused if self.has_ended or self.unused > _MAX_AHEAD else 0)
        if not self.trained and not evaluated:
            return None
        return "train" if self.trained >= evaluated or not any_trains else "eval"

    def clear_window(self) -> None:
        """Clear the figures of the window that is over."""
        self.waits_ns.clear()
        self.ready.clear()
        self.starts_ns.clear()
        self.held_ns.clear()
        self.counted = self.end_ns = self.epochs = self.other_epochs = 0
        self.batches = None

    def begin_epoch(self, iterator: int, iter_ns: int | None = None) -> None:
        """Begin a new epoch, and end the one before, even if the loop left it in the middle."""
        self.end_epoch()
        self.iter_ns = iter_ns
        self.iterator, self.given, self.before, self.trained_before = iterator, 0, None, self.trained

    @property
    def has_trained(self) -> bool:
        """True if a batch of the current epoch was trained on, not merely inspected or evaluated."""
        return self.trained > self.trained_before

    def end_epoch(self, *, is_exhausted: bool = False) -> None:
        """Count the current epoch, once; if it is exhausted, a batch that was fetched ahead may still train."""
        if self.given and self.has_trained:
            self.epochs += 1
        elif self.given:
            self.awaits_training = is_exhausted
        self.given = 0

    def add_given(self, iterator: int, count: int = 1) -> None:
        """Add batches that the current epoch has given; a later iterator begins another epoch."""
        if iterator > self.iterator > 0:
            self.begin_epoch(iterator)
        elif iterator != self.iterator:
            self.iterator, self.given, self.iter_ns = iterator, None, None
        if self.given is not None:
            self.given += count

    def add_wait(self, ready: int, wait_ns: int) -> None:
        """Add a fetch that found ``ready`` batches: if the fetch before found fewer, that one was held back.

        While a fetch waits for its batch, later batches become ready; a fetch whose batch comes in order leaves none.
        """
        if self.before is not None and ready > self.before[0]:
            self.held_ns.append(max(0, self.before[1] - int(median(self.latest_ns))))
        self.before = (ready, wait_ns)
        self.latest_ns.append(wait_ns)


class LoaderTracker:
    """Makes the Loader records of a process from the stretches of all its threads, given in order.

    Batches may be fetched in one thread and trained on in another, so a thread's own loop does not show their use.
    Several in a row may be fetched before the first trains: those of the loader that was fetched from last.
    """

    def __init__(self, reader: RingReader, code: ProcessCode) -> None:
        self._reader = reader
        self._code = code
        self._loaders: dict[int, _Loader] = {}  # by the name id of their facts
        self._latest = 0  # key of the loader that was fetched from last
        self._trains = False  # a backward was seen
        self._enrolled: dict[int, int] = {}  # workers reported so far of the newest iterator, by loader
        self._window = 0
        self._late = True
        self._gone: set[tuple[int, int]] = set()  # pid and start of slots whose worker is gone

    def add_stretch(self, stretch: MarkedStretch, steps: StepFinder) -> None:
        """Attach fetches to their loaders, and backwards of any thread to the batches they use.

        ``steps``: those of its thread. The waits of fetches that our profiler slows down are in no figure.
        """
        opened = stretch.opened
        if stretch.kind == layout.BACKWARD_BEGIN:
            if not steps.batches.returned:  # else it may be part of an evaluation
                self._use_batches()
        elif stretch.kind == layout.FETCH_END:
            if opened is not None and opened.value == stretch.value:
                is_unknown = steps.is_slowed or opened.flag == layout.FETCHED_IN_GAP
                wait_ns = None if is_unknown else stretch.end_ns - opened.end_ns
                self._add_fetch(stretch.value, opened.flag, wait_ns, has_batch=stretch.flag not in layout.NO_BATCH)
        elif opened is not None:
            duration_ns = max(stretch.end_ns - opened.end_ns, 0)
            if opened.value:
                self._add_end(opened.value, None if steps.is_slowed else duration_ns)
            elif (loader := self._loader(stretch.value >> layout.LOADER_SHIFT)) is not None:
                loader.begin_epoch(stretch.value, duration_ns)

    def add_counted(self, passed: Passed) -> None:
        """Add boundaries that were only counted: backwards, and fetches of the loader that was fetched from last."""
        loader = self._loaders.get(self._latest)
        if loader is not None and passed.fetches:
            loader.counted += passed.fetches
            loader.before = None
            loader.add_given(loader.iterator, passed.fetches)
            self._add_unused(loader, passed.fetches)
        if passed.backwards:
            self._use_batches()

    def add_marker(self, kind: int, key: int, value: int) -> None:
        """Add a marker of ``LOADER_KINDS``; ``key``: id of its loader's facts."""
        loader = self._loader(key)
        if loader is None:
            return
        if kind == layout.WORKER:  # an iterator reports them one after the other, from number 0
            if loader.facts.workers and 0 < value <= PID_LIMIT:
                number = self._enrolled.get(key, 0)
                self._enrolled[key] = (number + 1) % loader.facts.workers
                loader.workers[value] = Worker(value, number)
        elif kind == layout.TENSORS:
            loader.tensors = layout.unpack_pair(value)
        elif kind == layout.TOKENS:
            loader.tokens = layout.unpack_pair(value)
        elif kind != layout.BATCH:
            loader.given, loader.length = layout.unpack_pair(value)
        elif (batch := layout.unpack_batch(value)) is not None:
            pinned = None if batch.is_pinned is None else int(batch.is_pinned)
            kept = batch.size_bytes, batch.samples, int(batch.is_on_cpu), pinned, *loader.tokens
            tensors, kib = loader.tensors
            loader.tokens = loader.tensors = None, None
            measured = MeasuredBatches(1, *kept, tensors, kib << 10 if kib is not None else None)
            loader.batches = measured if loader.batches is None else loader.batches.plus(measured)

    def skip_past(self) -> None:
        """Drop what was added until now: it belongs to no window."""
        for loader in self._loaders.values():
            loader.clear_window()

    def records(
        self, end_ns: int, window_s: float, now_ns: int, open_fetches: Iterable[MarkedStretch] = ()
    ) -> Iterator[Loader]:
        """The records of the loaders used in the window; ``open_fetches``: stretches that ended when these began."""
        self._window += 1
        waits_ns: dict[int, int] = {}  # of fetches under way, by loader
        for begin in sorted(open_fetches, key=lambda begin: begin.end_ns):
            waits_ns[begin.value >> layout.LOADER_SHIFT] = end_ns - begin.end_ns
            self._loader(begin.value >> layout.LOADER_SHIFT)
        if not self._loaders:
            return
        self._read_slots(now_ns)
        for key, loader in self._loaders.items():
            due = sorted(loader.workers.values(), key=lambda worker: (worker.listed_window, worker.number))
            workers = []
            for worker in due[:WORKERS_LISTED]:  # those not listed for longest
                worker.listed_window = self._window
                workers.append(worker.take_record(now_ns))
            workers.sort(key=lambda worker: worker.number)
            is_used = loader.waits_ns or loader.counted or loader.epochs or key in waits_ns
            if is_used or any(worker.batches for worker in workers):
                yield self._record(loader, end_ns, window_s, waits_ns.get(key, 0), workers)
            loader.clear_window()
            loader.workers = {pid: worker for pid, worker in loader.workers.items() if not worker.ended}

    def _record(
        self, loader: _Loader, end_ns: int, window_s: float, waits_ns: int, workers: list[LoaderWorker]
    ) -> Loader:
        facts = None
        if self._window - loader.facts_window >= _FACTS_EVERY:
            loader.facts_window = self._window
            facts = loader.facts
        waits = sorted(loader.waits_ns)
        given = loader.given or None if loader.has_trained or not self._trains else None
        return Loader(
            t=end_ns / 1e9,
            pid=self._reader.pid,
            number=loader.number,
            window_s=window_s,
            role=loader.role(any_trains=self._trains),
            fetches=len(waits),
            counted=loader.counted,
            wait_ns=sum(waits),
            p95_ns=waits[min(len(waits) - 1, int(0.95 * len(waits)))] if waits else None,
            held_ns=sum(loader.held_ns),
            held_ms2=round(sum((each_ns / 1e6) ** 2 for each_ns in loader.held_ns), 3),
            ready_fetches=len(loader.ready),
            ready_total=sum(loader.ready),
            ready_none=loader.ready.count(0),
            ready_last=loader.ready[-1] if loader.ready else None,
            waits_for_s=round(waits_ns / 1e9, 3) if waits_ns >= 500_000_000 else None,
            starts=len(loader.starts_ns),
            start_ns=sum(map(sum, loader.starts_ns)),
            iter_ns=sum(iter_ns for iter_ns, _ in loader.starts_ns),
            epochs=loader.epochs + (0 if self._trains else loader.other_epochs),
            end_ns=loader.end_ns,
            facts=facts,
            workers=workers,
            batches=loader.batches,
            given=given,
            length=loader.length if given else None,
        )

    def _loader(self, key: int) -> _Loader | None:
        if key and key not in self._loaders and has_room(self._loaders, key):
            found = parsed_facts(self._reader.name(key))
            if found is not None:
                facts, number = found
                item, collate = (at and Place(*self._code.named(at)) for at in (facts.item, facts.collate))
                self._loaders[key] = _Loader(structs.replace(facts, item=item, collate=collate), number)
        return self._loaders.get(key)

    # -- what uses its batches

    def _add_unused(self, loader: _Loader, count: int) -> None:
        """Add a number of batches that came without a backward between them."""
        for each in self._loaders.values():
            if each.has_ended:  # and no backward since: what an iterator has given until its end was evaluated
                each.count_unused(trains=False)
        loader.unused += count

    def _use_batches(self) -> None:
        """Count the batches fetched last as used by a backward; of another loader one batch at most."""
        self._trains = True
        for key, loader in self._loaders.items():
            if loader.unused:
                loader.count_unused(trains=key == self._latest or (loader.unused == 1 and not loader.has_ended))

    # -- its epochs and fetches

    def _add_fetch(self, iterator: int, ready: int, wait_ns: int | None, *, has_batch: bool = True) -> None:
        """Add a fetch; ``ready``: the flag of its begin marker; ``wait_ns``: None if unknown."""
        key = iterator >> layout.LOADER_SHIFT
        loader = self._loader(key)
        if loader is None:
            return
        if not has_batch:
            loader.has_ended = loader.unused > 0
            loader.end_epoch(is_exhausted=True)
            self._add_end(iterator, wait_ns)
            return
        self._latest = key
        self._add_unused(loader, 1)
        loader.add_given(iterator)
        iter_ns, loader.iter_ns = loader.iter_ns, None
        if wait_ns is None:
            loader.before = None
            return
        wait_ns = max(wait_ns, 0)
        loader.waits_ns.append(wait_ns)
        if iter_ns is not None:
            loader.starts_ns.append((iter_ns, wait_ns))
        if ready:
            loader.ready.append(ready - 1)
            if iter_ns is None:  # a first one waits for its worker to start
                loader.add_wait(ready - 1, wait_ns)

    def _add_end(self, iterator: int, duration_ns: int | None) -> None:
        """Note that an iterator's workers have ended: in the fetch that found no batch, or when it was deleted."""
        loader = self._loaders.get(iterator >> layout.LOADER_SHIFT)
        if loader is not None and duration_ns is not None:
            loader.end_ns += max(duration_ns, 0)

    # -- workers

    def _read_slots(self, now_ns: int) -> None:
        """Read all slots; workers that are gone are listed once more."""
        slots = list(self._reader.loading())
        self._gone &= {(slot.pid, slot.start_ticks) for slot in slots}
        for slot in slots:
            worker = self._worker_of(slot)
            if worker is None:
                continue
            if worker.slot is None and self._late:
                totals = worker.totals(slot, now_ns)
                if sum(totals[1:]) > LATE_NS:
                    worker.listed = totals
            worker.slot = slot
        self._late = False
        for loader in self._loaders.values():
            for pid, worker in loader.workers.items():
                ticks = procfs.start_ticks(pid)
                worker.ended = ticks is None or (worker.slot is not None and worker.slot.start_ticks != ticks)
                if worker.ended and worker.slot is not None:
                    self._gone.add((pid, worker.slot.start_ticks))

    def _worker_of(self, slot: Loading) -> Worker | None:
        """The worker of a slot: the trainer itself, a worker that it reported, or one that fits a loader."""
        if (slot.pid, slot.start_ticks) in self._gone:
            return None
        if slot.worker == IN_PROCESS:
            loader = self._loader(slot.loader)
            if loader is None or slot.pid != self._reader.pid:
                return None
            return loader.workers.setdefault(slot.pid, Worker(slot.pid, 0))
        for loader in self._loaders.values():
            if slot.pid in loader.workers:
                return loader.workers[slot.pid]
        if procfs.start_ticks(slot.pid) != slot.start_ticks:
            self._gone.add((slot.pid, slot.start_ticks))
            return None
        for loader in self._loaders.values():  # its marker is overwritten, or not written yet
            fits = loader.facts.workers == slot.workers and zlib.crc32(loader.facts.dataset.encode()) == slot.dataset
            if fits and len(loader.workers) < slot.workers:
                return loader.workers.setdefault(slot.pid, Worker(slot.pid, slot.worker))
        return None
