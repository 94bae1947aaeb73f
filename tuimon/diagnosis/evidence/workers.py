"""The DataLoader workers of a trainer, and other processes that may make its data, as far as they were measured."""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct, field

from tuimon.code_origin import is_user_file
from tuimon.diagnosis.evidence.threads import works
from tuimon.diagnosis.threshold import LARGE, MOST, SMALL
from tuimon.records import Place, Process, Threads
from tuimon.session.loaders import LoaderRow
from tuimon.session.native import NativeUse
from tuimon.session.series import mean_of_known
from tuimon.session.session import SessionView
from tuimon.session.stacks.samples import NO_SAMPLES, HotLine, Samples

#: The advice if native threads of workers crowd the cores.
ONE_THREAD = (
    "have each worker compute in one thread: OMP_NUM_THREADS=1 in the environment of the program, or"
    " threadpoolctl.threadpool_limits(1) in worker_init_fn; torch does so there by itself, NumPy and OpenCV do not"
)
#: Generations of workers that show a restart for each epoch, and seconds in which the next ones must follow.
_GENERATIONS = 2
_NEXT_S = 2.5


class Workers(Struct, frozen=True, gc=False):
    """The DataLoader workers of a trainer, as far as they were measured."""

    number: int  # of workers that make batches
    cpu_ratio: float | None  # mean of one worker
    ran_ratio: float | None  # with the time in which a worker waited for a core
    busy_ratio: float | None  # making batches: by markers, else the larger of what counters and samples show
    disk_ratio: float
    hot: HotLine | None
    hot_in_collate: HotLine | None
    batch_ms: float | None  # in which one worker makes a batch
    gone: bool  # there were workers, and none is left
    renewed: bool  # the workers were started anew lately
    idle: int = 0  # of further workers, which have no part of the data
    threads: float = 1.0  # of a worker that compute: its main thread and native ones, such as those of NumPy's BLAS
    crowd_cores: bool = False  # whether native threads compute as much as the main one, and wait for cores
    samples: Samples = NO_SAMPLES  # of all workers
    native: NativeUse = field(default_factory=NativeUse)  # what they run, in Python and below it

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
        """How many workers make batches or idle."""
        return self.number + self.idle


def worker_evidence(view: SessionView, pid: int, loader: LoaderRow | None) -> Workers:
    """The workers of a process: those alive, and what was measured of those that ended lately."""
    rows, facts = (loader.worker_rows, loader.facts) if loader is not None else ((), None)
    recent, idle = view.recent_workers(pid), _idle_pids(loader)
    by_descent = view.workers(pid) or _between_epochs(recent, view.now_s)
    named = [row.pid for row in rows if row.pid not in (None, pid) and not row.ended]
    live = [each for each in dict.fromkeys([*(worker.pid for worker in by_descent), *named]) if each not in idle]
    recent = [worker for worker in recent if worker.pid not in idle]
    pids = list(dict.fromkeys([*live, *(worker.pid for worker in recent)]))
    threads = [t for p in pids if (t := view.process_threads(p)) is not None]
    disk = [ratio for p in pids if (ratio := view.disk_ratio(p)) is not None]
    own = [view.samples(p) for p in pids]
    together = Samples.joined(own)
    asked_for = facts.workers if facts is not None else 0
    by_markers = mean_of_known([row.busy_ratio for row in rows if asked_for and row.pid not in idle])
    number, renewed = asked_for - len(idle) if asked_for else len(live), are_renewed(live, recent)
    brief = _brief_share(view, pid, number) if renewed else None
    idle_share = together.share(doing="idle")
    busiest = mean_of_known(
        [  # one thread of a worker makes batches; the one beside it hands them over
            max(row.wanted_ratio for row in each.threads)
            for each in threads
            if each.cpu_ratio is not None and each.threads
        ]
    )
    by_samples = 1.0 - idle_share if idle_share is not None else None
    known = [share for share in (busiest, by_samples, brief) if share is not None]
    cpu_ratio, ran_ratio = _core_use(threads)
    rows_of = [(row, (each.pid, *view.sampled_tids(each.pid))) for each in threads for row in each.threads]
    native = [row for row, python in rows_of if row.tid not in python and row.wanted_ratio >= SMALL]
    wanted = sum(row.count * row.wanted_ratio for row in native)
    item, collate = (user_place(facts.item), user_place(facts.collate)) if facts is not None else (None, None)
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
        native=NativeUse.joined(use for p in pids for use in view.native(p).values()),
        threads=1.0 + sum(row.count for row in native) / max(1, len(threads)),
        crowd_cores=bool(wanted)
        and wanted >= sum(row.wanted_ratio for each in threads for row in each.threads if row.tid == each.pid)
        and sum(row.count * (row.delay_ratio or 0.0) for row in native) >= LARGE * wanted,
    )


def collate_share(loader: LoaderRow | None, makers: Sequence[Samples]) -> float | None:
    """The part of making batches that goes to collate; ``makers``: samples of the processes that make them."""
    rows = loader.worker_rows if loader is not None else ()
    items, collate = mean_of_known([w.items_ms for w in rows]), mean_of_known([w.collate_ms for w in rows])
    if items is not None and collate is not None and items + collate > 0:
        return collate / (items + collate)
    return mean_of_known([samples.part(below="collates") for samples in makers if samples.total])


def collating_function(makers: Samples, part: float) -> HotLine | None:
    """The user's function that collates, in this part of all samples; None if it is torch's default."""
    hot = makers.inside(lambda frame: "collates" in frame.roles).hottest()
    return hot._replace(share=part * hot.share) if hot is not None else None


def user_place(place: Place | None) -> Place | None:
    """The place of a function that a DataLoader calls, if it is the user's; else None."""
    return place if place is not None and is_user_file(place.file) else None


def _core_use(processes: Sequence[Threads]) -> tuple[float | None, float | None]:
    """The mean CPU use of a process, without and with the time in which its main thread waited for a core."""
    cpu = [process.cpu_ratio for process in processes if process.cpu_ratio is not None]
    mains = [row for process in processes for row in process.threads if row.tid == process.pid]
    delays = [row.delay_ratio or 0.0 for row in mains]
    return mean_of_known(cpu), (sum(cpu) + sum(delays)) / len(cpu) if cpu else None


class Senders(Struct, frozen=True, gc=False):
    """The processes that may send a training its data by messages."""

    number: int
    cpu_ratio: float | None  # mean of one process
    making: Samples  # samples in which they wait for no message and no lock
    part: float  # share of its time for which the busiest one makes data


def sender_evidence(view: SessionView, pid: int) -> Senders:
    """The children of a process that load for no DataLoader; if there are none, its DataLoader workers."""
    pids = [each.pid for each in view.session.run_processes.children(pid) or view.workers(pid)]
    threads = [t for p in pids if (t := view.process_threads(p)) is not None]
    own = [view.samples(p) for p in pids]
    making = [each.where(lambda node: works(node) and not node.awaits_message) for each in own]
    part = max((made.total / each.total for made, each in zip(making, own, strict=True) if each.total), default=0.0)
    return Senders(len(pids), _core_use(threads)[0], Samples.joined(making), part)


def _idle_pids(loader: LoaderRow | None) -> set[int]:
    """The workers of an iterable data set that hardly make a batch, as each iterates over its own part of the data.

    Workers of an indexed data set are given their indices in turn.
    """
    if loader is None or loader.facts.kind != "iterable":
        return set()
    rows = [row for row in loader.worker_rows if row.batches_per_s is not None and row.busy_ratio is not None]
    most = max((row.batches_per_s or 0.0 for row in rows), default=0.0)
    return {row.pid for row in rows if (row.batches_per_s or 0.0) < SMALL * most and (row.busy_ratio or 0.0) < SMALL}


def are_renewed(live: Sequence[object], recent: Sequence[object]) -> bool:
    """True if workers are started anew for every epoch: that many have lived lately beside the live ones."""
    return 0 < _GENERATIONS * len(live) <= len(recent)


def _between_epochs(recent: Sequence[Process], now_s: float) -> list[Process]:
    """The workers that have just ended while none lives, if such workers have been started anew before."""
    last_s = max((worker.t for worker in recent), default=-math.inf)
    last = [worker for worker in recent if worker.t == last_s]
    return last if len(recent) >= _GENERATIONS * len(last) and now_s - last_s <= _NEXT_S else []


def _brief_share(view: SessionView, pid: int, number: int) -> float | None:
    """The part of their cores that workers use, if they live too briefly for records of their own.

    Samples show little of them: sampling starts in the middle of a life of one second, and sees only its end.
    """
    trainer, cores = view.process_threads(pid), view.session.cpu_count
    if trainer is None or not trainer.childrens_cores or cores is None or not number:
        return None
    return min(1.0, trainer.childrens_cores / max(1.0, min(number, cores - (trainer.cpu_ratio or 0.0))))
