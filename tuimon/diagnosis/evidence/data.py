"""The data of a training: the DataLoader whose batches train, the makers of the batches, and batches that are ready."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import dropwhile, pairwise
from typing import NamedTuple

from msgspec import Struct, field

from tuimon.code_origin import is_library_file, is_user_file
from tuimon.diagnosis.evidence.lines import library_place
from tuimon.diagnosis.evidence.process import SLOW_RATIO, ProcessEvidence, works
from tuimon.native_code import NativeUse
from tuimon.records import TRAINING_PHASES, Place, Process, Threads
from tuimon.session.loaders import LoaderRow
from tuimon.session.series import mean_of_known
from tuimon.session.session import ProcessView
from tuimon.session.stacks.activity import WAITS
from tuimon.session.stacks.samples import NO_SAMPLES, HotLine, Samples, heaviest_place
from tuimon.session.stacks.trie import StackNode, is_environment_step
from tuimon.threshold import LARGE, LARGER, MIN_SAMPLES, MOST, SMALL, Threshold

#: The DataLoader's function that draws the indices of a batch.
_DRAWS = "_next_index"
HAND_OVER_MS = Threshold(
    2.0,
    "ms that a worker's batch is assumed to cost the training thread if there are no workers yet",
    "measured in tests/scenarios where batches lie ready, two tensors each: 2.1 ms (healthy_trainer); 2.2 to 2.4 ms in"
    " other loops",
)
#: The advice if native threads of workers crowd the cores.
ONE_THREAD = (
    "have each worker compute in one thread: OMP_NUM_THREADS=1 in the environment of the program, or in worker_init_fn"
    " threadpoolctl.threadpool_limits(1) for NumPy, cv2.setNumThreads(0) for OpenCV, which heeds neither of the others;"
    " torch does so there by itself"
)
#: The number of generations of workers from which they count as restarted for each epoch, and the seconds within which
#: the next generation must follow.
_GENERATIONS = 2
_NEXT_S = 2.5
#: The most that a worker copies into new shared memory in a ms; 1.9e6 bytes were measured.
_COPIED_PER_MS = 1e7


class Workers(Struct, frozen=True, gc=False):
    """Measurements of the DataLoader workers of a trainer."""

    number: int  # of workers that make batches
    cpu_ratio: float | None  # mean of one worker
    ran_ratio: float | None  # with the time in which a worker waited for a core
    busy_ratio: float | None  # making batches: by markers, else the larger of what counters and samples show
    disk_ratio: float
    hot: HotLine | None
    hot_in_collate: HotLine | None
    batch_ms: float | None  # in which one worker makes a batch
    gone: bool  # there were workers, and none is left
    renewed: bool  # the workers were restarted lately
    idle: int = 0  # of further workers, which have no part of the data
    threads: float = 1.0  # of a worker that compute: its main thread and native ones, such as those of NumPy's BLAS
    crowd_cores: bool = False  # True if native threads compute as much as the main one, and wait for cores
    samples: Samples = NO_SAMPLES  # of all workers
    native: NativeUse = field(default_factory=NativeUse)  # the code they run, in Python and below it

    @property
    def waiting(self) -> bool:
        """True if the workers are busy without computing: they wait for a disk, the network or a lock."""
        return self.ran_ratio is not None and self.busy_ratio is not None and self.ran_ratio < MOST * self.busy_ratio

    @property
    def are_saturated(self) -> bool:
        """True if the workers hardly ever idle: 0.94 to 0.98 was measured for workers that are too slow."""
        return (self.busy_ratio or 0.0) >= 1.0 - LARGE

    @property
    def started(self) -> int:
        """The number of workers that make batches or idle."""
        return self.number + self.idle


class DataProcesses(Struct, frozen=True, gc=False):
    """The processes that may send a training its data by messages."""

    number: int
    cpu_ratio: float | None  # mean of one process, without messages that samples show
    making: Samples  # samples in which they wait for no message and no lock, and send none
    part: float  # share of its time for which the busiest one makes data
    waiting: HotLine | None  # the line at which they mostly are when they make none
    sampled: bool  # True if any of them has been sampled yet

    @property
    def hardly_computes(self) -> bool:
        """True if they mostly wait, by their samples, or by their CPU time before there are any."""
        return self.waiting is not None if self.sampled else (self.cpu_ratio or 0.0) < MOST


class Views(NamedTuple):
    """Batches of views, which torch hands over with the whole storages that they are parts of."""

    batch_bytes: float
    storage_bytes: float  # of a batch
    sending_ms: float  # of a batch, in a worker
    item: Place | None  # the function that makes the items, if it is the user's


class Pool(NamedTuple):
    """Threads of the training process that make the items for which the training thread waits in a fetch."""

    hot: HotLine | None  # the line at which they work; its share is of the data phase
    cpu_ratio: float  # cores that they use, on average
    cores: float  # that they use while they are waited for


def _pickles(node: StackNode) -> bool:
    return works(node) and node.has("messages")


class DataEvidence(Struct, frozen=True, dict=True):
    """The data of a training process."""

    _own: ProcessEvidence

    @cached_property
    def loader(self) -> LoaderRow | None:
        """The DataLoader whose batches train; None if there is no DataLoader, or no markers.

        One that was read only during set-up, as for statistics, has no fetches in the span.
        """
        training = (row for row in self._own.loaders if row.latest.role != "eval")
        return max(training, key=lambda row: row.fetches_per_s or 0.0, default=None)

    @property
    def fetches(self) -> int:
        """Training batches of the run, from all loaders together: some programs make a new loader each epoch."""
        return sum(row.fetches for row in self._own.loaders if row.latest.role != "eval")

    @cached_property
    def samples(self) -> Samples:
        """The training thread's stack samples in the data phase."""
        return self._own.samples.where(phase="data")

    @cached_property
    def draws(self) -> Callable[[StackNode], bool]:
        """A test of stacks: does the training thread draw indices?"""
        return draws_indices(self.samples)

    @cached_property
    def working_share(self) -> float | None:
        """Share of the data phase's samples in which the training thread works itself; None with too few samples.

        Receiving a batch from a worker is such work, too, which faster data does not shorten. The rest is waiting.
        """
        return self.samples.share(lambda node: node.activity not in WAITS and node.frame.kind != "fetch")

    # -- the makers of the data

    @cached_property
    def workers(self) -> Workers:
        """The DataLoader workers: the live ones, and measurements of those that ended lately."""
        view, pid, loader = self._own.view, self._own.pid, self.loader
        rows, facts = (loader.worker_rows, loader.facts) if loader is not None else ((), None)
        recent, idle = self._own.recent_workers, _idle_pids(loader)
        by_descent = self._own.workers or _between_epochs(recent, view.now_s)
        named = [row.pid for row in rows if row.pid not in (None, pid) and not row.ended]
        live = [each for each in dict.fromkeys([*(worker.pid for worker in by_descent), *named]) if each not in idle]
        recent = [worker for worker in recent if worker.pid not in idle]
        makers = [view.of(each) for each in dict.fromkeys([*live, *(worker.pid for worker in recent)])]
        threads = [maker.thread_figures for maker in makers if maker.thread_figures is not None]
        disk = [ratio for maker in makers if (ratio := maker.training.disk_ratio) is not None]
        own = [maker.samples for maker in makers]
        together = Samples.joined(own)
        asked_for = facts.workers if facts is not None else 0
        by_markers = mean_of_known([row.busy_ratio for row in rows if asked_for and row.pid not in idle])
        number, renewed = asked_for - len(idle) if asked_for else len(live), are_renewed(live, recent)
        brief = _brief_share(self._own, number) if renewed else None
        idle_share = together.share(doing="idle")
        busiest = mean_of_known(
            [  # one thread of a worker makes batches; another one hands them over
                max(row.wanted_ratio for row in each.threads)
                for each in threads
                if each.cpu_ratio is not None and each.threads
            ]
        )
        by_samples = 1.0 - idle_share if idle_share is not None else None
        known = [share for share in (busiest, by_samples, brief) if share is not None]
        cpu_ratio, ran_ratio = _core_use(threads)
        rows_of = [(row, (each.pid, *view.of(each.pid).sampled_tids())) for each in threads for row in each.threads]
        native = [row for row, python in rows_of if row.tid not in python and row.wanted_ratio >= SMALL]
        wanted = sum(row.count * row.wanted_ratio for row in native)
        item, collate = (
            (self.users_place(facts.item), self.users_place(facts.collate)) if facts is not None else (None, None)
        )
        collated = collate_share(loader, own) or 0.0
        hot = together.with_callees(together.without_imports.hottest())
        if hot is None and item is not None and by_markers is not None:
            hot = HotLine(item, by_markers * (1.0 - collated), 0)
        collating = collating_function(together, collated)
        if collating is None and collate is not None:
            collating = HotLine(collate, collated, 0)
        made = [w.items_ms + w.collate_ms for w in rows if w.items_ms is not None and w.collate_ms is not None]
        return Workers(
            number=number,
            cpu_ratio=cpu_ratio,
            ran_ratio=ran_ratio,
            busy_ratio=by_markers if by_markers is not None else max(known, default=None),
            disk_ratio=sum(disk) / len(disk) if disk else 0.0,
            hot=hot,
            hot_in_collate=collating,
            batch_ms=mean_of_known(made),
            gone=not live and view.session.run_processes.had_workers(pid),
            renewed=renewed,
            idle=len(idle),
            samples=together,
            native=NativeUse.joined(use for maker in makers for use in maker.native.values()),
            threads=1.0 + sum(row.count for row in native) / max(1, len(threads)),
            crowd_cores=bool(wanted)
            and wanted >= sum(row.wanted_ratio for each in threads for row in each.threads if row.tid == each.pid)
            and sum(row.count * (row.delay_ratio or 0.0) for row in native) >= LARGE * wanted,
        )

    @cached_property
    def data_processes(self) -> DataProcesses:
        """The children that load for no DataLoader, such as environments; if there are none, its DataLoader workers."""
        view = self._own.view
        processes = view.session.run_processes.children(self._own.pid) or self._own.workers
        found = [view.of(each.pid) for each in processes]
        threads = [each.thread_figures for each in found if each.thread_figures is not None]
        own = [each.samples for each in found]

        def makes(node: StackNode) -> bool:
            return works(node) and node.activity != "connection" and not node.has("messages")

        making = [each.where(makes) for each in own]
        part = max((made.total / each.total for made, each in zip(making, own, strict=True) if each.total), default=0.0)
        cpu_ratio, _ = _core_use(threads)
        mean = sum(made.total for made in making) / (sum(each.total for each in own) or 1)
        cpu_ratio = min(cpu_ratio, mean) if mean and cpu_ratio is not None else cpu_ratio
        waiting = Samples.joined(own).hottest(lambda node: not makes(node))
        return DataProcesses(
            len(found), cpu_ratio, Samples.joined(making), part, waiting, any(each.total for each in own)
        )

    @cached_property
    def pickling_share(self) -> float:
        """Share of its time for which the busiest other thread pickles what it sends to other processes."""
        return max((each.part(_pickles) for each in self._own.others.values()), default=0.0)

    @cached_property
    def pool(self) -> Pool | None:
        """The threads that make the items; None if the training thread makes most itself, or waits for another process.

        A thread whose CPU time is unknown counts as a whole core.
        """
        waiting = 0.0 if self.workers.number else self.samples.share(doing="thread", below="fetch") or 0.0
        if waiting < MOST:
            return None
        others = self._own.others
        busy = {tid: working for tid, each in others.items() if (working := each.where(works)).total >= MIN_SAMPLES}
        if not busy:
            return None
        hot = Samples.joined(busy.values()).hottest()
        part = self.samples.total / self._own.samples.total
        known = {row.tid: row.cpu_ratio for row in self._own.threads if row.cpu_ratio is not None}
        cpu_ratio = sum(known.get(tid, part) for tid in busy)
        return Pool(hot._replace(share=waiting * hot.share) if hot is not None else None, cpu_ratio, cpu_ratio / part)

    @cached_property
    def rollout(self) -> Rollout | None:
        """The rollout that makes the data, if an environment or the training's own model does; else None."""
        return rollout_shares(self._own.samples)

    def users_place(self, place: Place | None) -> Place | None:
        """The place of a function that a DataLoader calls, if it is the user's; else None."""
        programs = self._own.view.session.trie.programs
        return place if place is not None and is_user_file(place.file, programs) else None

    def item_maker(self, hot: HotLine | None) -> HotLine | None:
        """The hot line of the data phase; if that only shows the fetch, the dataset's function that makes the items.

        A sample that waits for the GIL shows where the training thread releases it, which may be after each item.
        """
        loader, draws = self.loader, self.draws
        if hot is None or loader is None or loader.facts.workers or not (own := self.users_place(loader.facts.item)):
            return hot
        at_line = self.samples.where(lambda node: node.place == hot.place)
        is_fetch = at_line.part(lambda node: is_loaders_own(node) and not draws(node)) >= MOST
        collated = collate_share(loader, ())
        return HotLine(own, 1.0 - collated, 0) if is_fetch and collated is not None and collated < MOST else hot

    # -- does it come in time?

    @cached_property
    def epoch_starts(self) -> float | None:
        """The share of the wait for data that goes to starting workers for each epoch, and to ending them.

        By markers, or without them by the samples of the data phase; None if workers stay for whole epochs.
        """
        loader = self.loader
        if loader is None:
            starts = self.samples.share(lambda node: node.calls("_get_iterator") or node.calls("_shutdown_workers"))
            return starts or None if self.workers.renewed else None
        is_started = loader.facts.workers and loader.starts > 1  # the first epoch starts them in any case
        is_started = is_started and (not loader.facts.persistent or self.batches_per_iterator is not None)
        return min(1.0, loader.start_share) if is_started and loader.start_share else None

    @cached_property
    def batches_per_iterator(self) -> int | None:
        """The batches taken from each iterator, if these are less than an epoch and no more than are ready at once."""
        loader = self.loader
        if loader is None or not loader.epoch.done or loader.epoch.length is None:
            return None
        each = round(loader.fetches / (loader.epoch.done + 1))
        return each if each <= min(loader.ready_most or 1, loader.epoch.length - 1) else None

    @cached_property
    def has_ready_batches(self) -> bool:
        """True if batches are ready at most fetches."""
        return not self.is_held_back and has_ready_batches(self.loader, self.workers, self.samples)

    @cached_property
    def views(self) -> Views | None:
        """The batches of views that workers take longer to send than to make, for much of their time; else None.

        A storage is copied when it is first sent. Later views of it are sent faster than they could be copied.
        """
        rows = self.loader.worker_rows if self.loader is not None else ()
        batches, made_ms = self.loader and self.loader.batches, self.workers.batch_ms
        sending = [(r.hand_over_ms, r.batches_per_s) for r in rows]
        known = [(ms, ms * hz / 1e3) for ms, hz in sending if ms is not None and hz is not None]
        if batches is None or batches.storage_bytes is None or made_ms is None or not known:
            return None
        sending_ms, share = (sum(each) / len(known) for each in zip(*known, strict=True))
        batch, whole = (each / batches.count for each in (batches.total_bytes, batches.storage_bytes))
        is_copied = LARGER * batch <= whole <= _COPIED_PER_MS * sending_ms
        if not is_copied or sending_ms < made_ms or share < LARGE:
            return None
        return Views(batch, whole, sending_ms, self.loader and self.users_place(self.loader.facts.item))

    @cached_property
    def is_held_back(self) -> bool:
        """True if fetches mostly wait for the next batch in order, while workers that have made later ones idle."""
        loader, workers = self.loader, self.workers
        if loader is None or loader.facts.in_order is False or not loader.held_ms or workers.number < 2:
            return False
        is_late = (loader.late_ms or 0.0) >= SLOW_RATIO * (workers.batch_ms or 0.0)
        is_idle = workers.busy_ratio is not None and not workers.are_saturated
        return is_late and is_idle and loader.held_ms >= MOST * (loader.wait_ms or 0.0)


def is_loaders_own(node: StackNode) -> bool:
    """True if the DataLoader is at its own work, such as indexing or default collate, with no other code below it."""
    below = node.frames[len(node.before("fetch")) :]
    return bool(below) and not any(frame.user or is_library_file(frame.file) for frame in below)


def draws_indices(data: Samples) -> Callable[[StackNode], bool]:
    """A test of stacks: do they draw indices, in the DataLoader's own function or in code that it was seen to call?

    A stack that was read while it changed may lack the DataLoader's own frames.
    """
    called = {
        frame.code for row in data.rows for caller, frame in pairwise(row.node.frames) if caller.function == _DRAWS
    }
    return lambda node: any(frame.function == _DRAWS or frame.code in called for frame in node.frames)


def has_ready_batches(loader: LoaderRow | None, workers: Workers, data: Samples) -> bool:
    """True if batches are ready at most fetches, which then take only as long as handing a batch over.

    Batches of several workers are ready only if the workers idle. Without markers ``data``, the samples of fetches,
    show it: apart from drawing indices, the training thread mostly works there, unless it has to wait for a core.
    """
    if workers.busy_ratio is None:
        return False
    is_busy = workers.busy_ratio >= MOST
    if loader is None:
        if is_busy and workers.number > 1 and (workers.ran_ratio or 0.0) > 2.0 * (workers.cpu_ratio or math.inf):
            return False  # they wait for a core longer than they have one, and so may a thread at work in a fetch
        draws = draws_indices(data)
        fetching = data.where(lambda node: not draws(node))
        taking = fetching.share(lambda node: _takes(node, is_busy))
        return taking is not None and taking > 1.0 - MOST
    return not is_busy and loader.ready_none_ratio is not None and loader.ready_none_ratio < MOST


def _takes(node: StackNode, is_busy: bool) -> bool:
    """True if the training thread takes a batch over, or requests the next from a worker.

    It waits for the worker, which answers immediately unless it keeps the GIL busy.
    """
    takes = node.calls("rebuild_")  # rebuild_storage_fd() and others take a tensor out of shared memory
    return takes and not is_busy if node.activity in WAITS else takes or node.calls("__next__")


# -- its workers


def collate_share(loader: LoaderRow | None, makers: Sequence[Samples]) -> float | None:
    """The part of making batches that goes to collate; ``makers``: samples of the processes that make them."""
    rows = loader.worker_rows if loader is not None else ()
    items, collate = mean_of_known([w.items_ms for w in rows]), mean_of_known([w.collate_ms for w in rows])
    if items is not None and collate is not None and items + collate > 0:
        return collate / (items + collate)
    return mean_of_known([samples.part(below="collates") for samples in makers if samples.total])


def collating_function(makers: Samples, part: float) -> HotLine | None:
    """The function that collates, the user's or a library's below the user's line, with this ``part`` of all samples;
    None if it is torch's default.
    """
    inside = makers.inside(lambda frame: "collates" in frame.roles)
    hot = inside.hottest()
    if hot is None:
        places = ((place, row.count) for row in inside.rows if (place := library_place(row.node)) is not None)
        library, count = heaviest_place(places)
        line = makers.hottest(below="collates") if count >= MOST * inside.total else None
        hot = line._replace(library=library, share=count / inside.total) if line is not None else None
    return hot._replace(share=part * hot.share) if hot is not None else None


def _core_use(processes: Sequence[Threads]) -> tuple[float | None, float | None]:
    """The mean CPU use of a process, without and with the time in which its main thread waited for a core."""
    cpu = [process.cpu_ratio for process in processes if process.cpu_ratio is not None]
    mains = [row for process in processes for row in process.threads if row.tid == process.pid]
    delays = [row.delay_ratio or 0.0 for row in mains]
    return mean_of_known(cpu), (sum(cpu) + sum(delays)) / len(cpu) if cpu else None


def _idle_pids(loader: LoaderRow | None) -> set[int]:
    """The workers of an iterable dataset that hardly make a batch, as each iterates over its own part of the data.

    Workers of an indexed dataset are given their indices in turn.
    """
    if loader is None or loader.facts.kind != "iterable":
        return set()
    rows = [row for row in loader.worker_rows if row.batches_per_s is not None and row.busy_ratio is not None]
    most = max((row.batches_per_s or 0.0 for row in rows), default=0.0)
    return {row.pid for row in rows if (row.batches_per_s or 0.0) < SMALL * most and (row.busy_ratio or 0.0) < SMALL}


def are_renewed(live: Sequence[object], recent: Sequence[object]) -> bool:
    """True if workers are restarted for every epoch: enough of them have ended lately."""
    return 0 < _GENERATIONS * len(live) <= len(recent)


def _between_epochs(recent: Sequence[Process], now_s: float) -> list[Process]:
    """The workers that have just ended while none lives, if such workers have been restarted before."""
    last_s = max((worker.t for worker in recent), default=-math.inf)
    last = [worker for worker in recent if worker.t == last_s]
    return last if len(recent) >= _GENERATIONS * len(last) and now_s - last_s <= _NEXT_S else []


def _brief_share(own: ProcessView, number: int) -> float | None:
    """The part of their cores that workers use, if they live too briefly for records of their own.

    Samples show little of such workers: sampling begins in the middle of a life of one second, and sees only its end.
    """
    trainer, cores = own.thread_figures, own.view.session.nodes.of(own.node).cores
    if trainer is None or not trainer.childrens_cores or cores is None or not number:
        return None
    return min(1.0, trainer.childrens_cores / max(1.0, min(number, cores - (trainer.cpu_ratio or 0.0))))


# -- data that the training makes itself: by stepping an environment, or by generating with the model

#: Functions, or the user's source, that bring data from one kind of memory or array to another.
_COPIES = re.compile(
    r"\b(?:from_numpy|as_tensor|obs_as_tensor|to_torch)\b|\.(?:to|cpu|cuda|numpy)\(|torch\.(?:tensor|stack)\("
)


class Rollout(NamedTuple):
    """Shares (0..1) of the training thread's samples in the data phase, by the maker of the data."""

    environment: float
    policy: float  # the model, and library code around it, outside the environment
    copy: float  # to and from tensors, in functions that call the environment or the policy

    @property
    def is_by_policy(self) -> bool:
        """True if the model takes longer than the environment: that is the training's own work."""
        return self.policy > self.environment


def rollout_shares(main: Samples) -> Rollout | None:
    """The shares of a rollout in the training thread's data phase; None if there is no rollout, or too few samples.

    A function that leads to the environment, and not to the update, is part of the rollout with all that it calls; its
    own time is the policy's. So is all time of a function that calls the model, as it draws an action from the output.
    """
    data = main.where(phase="data")
    making = data.where(lambda node: node.makes_data)
    if data.total < MIN_SAMPLES or not making.total:
        return None
    stepping, loop = frozenset(making.through), frozenset(main.where(phase=TRAINING_PHASES).through)
    calling = (row.node.before("module") for row in data.rows if row.node.has("module"))
    callers = (next((frame.code for frame in reversed(frames) if frame.user), None) for frames in calling)
    acting = frozenset(filter(None, callers)) - stepping - loop
    own = stepping - main.training_path
    counts: Counter[str] = Counter()
    made = 0
    for row in data.rows:
        kind = _kind(row.node)
        is_own = row.node.frame.code in own and not row.node.makes_data
        kind = kind or ("policy" if is_own or acting & row.node.functions else "")
        counts[kind] += row.count
        if kind in ("environment", "policy") or own & row.node.functions:
            made += row.count
    shares = Rollout(*(counts[kind] / data.total for kind in Rollout._fields))
    return shares if made >= MOST * data.total else None


def rollout_parts(main: Samples) -> tuple[float, float] | None:
    """The shares of a step, 0..1, that the environment and the policy of a rollout take; None if there is none."""
    rollout = rollout_shares(main)
    if rollout is None:
        return None
    share = main.phases["data"] / main.in_steps.total
    return rollout.environment * share, rollout.policy * share


def _kind(node: StackNode) -> str:
    if node.has("environment") or any(is_environment_step(*pair) for pair in pairwise(node.frames)):
        return "environment"
    if node.has("module") or node.has("generates"):
        return "policy"
    if _COPIES.search(node.frame.text or node.frame.function):
        return "copy"
    # a library's collector at work around its policy, which calls no user function
    called = [frame.user for frame in dropwhile(lambda frame: "collector" not in frame.roles, node.frames)]
    return "policy" if called and not any(called) else ""
