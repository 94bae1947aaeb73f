"""A trainer's DataLoader and its workers, and where its data comes from."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Sequence

from msgspec import Struct

from tuimon.code_origin import is_others_package
from tuimon.diagnosis.evidence.drawing import draws_indices
from tuimon.diagnosis.evidence.lines import HotFunction, hottest_function, hottest_place, merged_lines
from tuimon.diagnosis.evidence.places.callees import with_callees
from tuimon.diagnosis.evidence.samples import MIN_SAMPLES, StackSample, ThreadSamples, thread_samples
from tuimon.diagnosis.threshold import Threshold
from tuimon.records import Process, Threads
from tuimon.session.rows import HotLine, LoaderRow
from tuimon.session.samples.process_samples import ProcessSamples
from tuimon.session.session import Session
from tuimon.session.windows import mean_of_known

QUEUE_SHARE = Threshold(
    0.5,
    "share of the data phase spent waiting for a lock, a queue or the GIL, from which another thread prepares the data",
    "measured in tests/scenarios: 1.0 in prefetch_thread, 0.0 in loops with a DataLoader",
)
RAN_RATIO = Threshold(
    0.5,
    "share of their busy time that workers run or wait for a core, below which they wait for something else",
    "measured in tests/scenarios: 0.02 in remote_images, 1.0 and more in slow_augmentation and padding_in_worker",
)
NONE_READY = Threshold(
    0.5,
    "share of fetches that find no batch ready, below which making batches is not what they wait for",
    "our choice: most fetches decide",
)
IDLE_WORKERS = Threshold(
    0.5,
    "share of time in which the workers make batches, below which these are not what fetches wait for",
    "our choice: workers that idle most of the time have made each batch long before; a batch that is ready out of turn"
    " helps nobody while they are busy",
)
FEW_NONE = Threshold(
    0.1,
    "share of fetches that find no batch of a single busy worker ready, below which these do not wait for it",
    "our choice: batches of one worker come in turn, so one that lies ready is the next; a tenth leaves room for the"
    " first ones of an epoch",
)
AHEAD = Threshold(
    0.05,
    "share of time that a single busy worker waits for a request, from which it is ahead of the training thread",
    "our choice: one that is ahead has nothing to do until its next batch is asked for; without a pause it is what"
    " fetches wait for, also where a batch is in its queue already and the thread that sends it waits for the GIL",
)
OWN_SHARE = Threshold(
    0.5,
    "share of the data phase's samples in the DataLoader's own code, from which whole batches at once are the fix",
    "our choice: most of it; else the user's hottest line is",
)
#: What a training thread does in the data phase while it only waits for its data.
_WAITS = ("data", "idle", "io", "lock")
#: Where Python's threads wait for each other, and for what they put into queues.
_QUEUE_FILE = re.compile(r"(?:^|/)(?:threading|queue)\.py$")
#: Workers of so many epochs show that they are started anew for each; the next are seen within so many seconds.
_GENERATIONS = 2
_NEXT_S = 2.5
#: Part of the names of torch's functions that take a tensor out of shared memory: ``rebuild_storage_fd`` and others.
_TAKES_BATCH = "rebuild_"


class Workers(Struct, frozen=True, gc=False):
    """The DataLoader workers of a trainer, as far as they were measured."""

    number: int
    cpu_ratio: float | None  # mean of one worker
    ran_ratio: float | None  # with the time in which it waited for a core
    busy_ratio: float | None  # making batches: measured by markers, else the larger of what counters and samples show
    disk_ratio: float
    hot: HotFunction | None
    working: HotFunction | None  # where they wait for no message and no lock; its share is of that
    hot_in_collate: HotFunction | None
    collate_share: float | None  # of the time in which they make batches
    batch_ms: float | None  # that one of them takes to make a batch
    gone: bool  # there were workers, and none is left
    renewed: bool  # they were started anew lately

    @property
    def waiting(self) -> bool:
        """Whether they are busy without computing: they wait for a disk, the network, a lock."""
        return (
            self.ran_ratio is not None and self.busy_ratio is not None and self.ran_ratio < RAN_RATIO * self.busy_ratio
        )


def training_loader(loaders: Sequence[LoaderRow]) -> LoaderRow | None:
    """The DataLoader whose batches train, according to its markers; None without.

    One that the set-up went through, as for statistics of the data, is fetched from no more.
    """
    training = (loader for loader in loaders if loader.latest.role != "eval")
    return max(training, key=lambda loader: loader.fetches_per_s or 0.0, default=None)


def evaluation_loader(loaders: Sequence[LoaderRow]) -> LoaderRow | None:
    """The DataLoader whose batches are evaluated; None without one, and where several are."""
    found = [loader for loader in loaders if loader.latest.role == "eval"]
    return found[0] if len(found) == 1 else None


def worker_evidence(session: Session, pid: int, loader: LoaderRow | None) -> Workers:
    """The workers of a process: those that live, and what was measured of those that lived lately."""
    recent = session.recent_workers(pid)
    live = _pids(session.workers(pid) or _between_epochs(recent, session.now_s), pid, loader)
    pids = list(dict.fromkeys([*live, *(worker.pid for worker in recent)]))
    threads = [t for p in pids if (t := session.process_threads(p)) is not None]
    cpu = [t.cpu_ratio for t in threads if t.cpu_ratio is not None]
    mains = [row for t in threads for row in t.threads if row.tid == t.pid]
    delays = [row.delay_ratio or 0.0 for row in mains]
    disk = [ratio for p in pids if (ratio := session.disk_ratio(p)) is not None]
    spots = [s for p in pids if (s := session.process_samples(p)) is not None]
    by_markers = mean_of_known([w.busy_ratio for w in loader.worker_rows]) if loader and loader.facts.workers else None
    counted = (sum(cpu) + sum(delays)) / len(cpu) if cpu else None
    own = [thread_samples(s, s.tid, session.frames) for s in spots]
    number = loader.facts.workers if loader is not None and loader.facts.workers else len(live)
    shares = (_busiest_share(threads), _busy_share(own), _brief_share(session, pid, number))
    known = [share for share in shares if share is not None]
    return Workers(
        number=number,
        cpu_ratio=sum(cpu) / len(cpu) if cpu else None,
        ran_ratio=counted,
        busy_ratio=by_markers if by_markers is not None else max(known, default=None),
        disk_ratio=sum(disk) / len(disk) if disk else 0.0,
        hot=with_callees(hottest_function(merged_lines(s.hot_lines() for s in spots)), _all_of(own)),
        working=hottest_place((s.place, s.count) for samples in own for s in samples.stacks if _works(s)),
        hot_in_collate=hottest_function(merged_lines(s.hot_lines_in_collate() for s in spots)),
        collate_share=_collate_share(loader, spots),
        batch_ms=_batch_ms(loader),
        gone=not live and session.had_workers(pid),
        renewed=0 < _GENERATIONS * len(live) <= len(recent),
    )


def _between_epochs(recent: Sequence[Process], now_s: float) -> list[Process]:
    """Where no worker lives: those that have just ended, if such workers have been started anew before."""
    last_s = max((worker.t for worker in recent), default=-math.inf)
    last = [worker for worker in recent if worker.t == last_s]
    return last if len(recent) >= _GENERATIONS * len(last) and now_s - last_s <= _NEXT_S else []


def lie_ready(loader: LoaderRow | None, workers: Workers, data: ThreadSamples) -> bool:
    """Whether batches are ready at most fetches: these take the time to hand a batch over, not to make it.

    Those of several workers only where these are idle. Without markers the samples of fetches show it (``data``): where
    it draws no indices, the training thread takes a batch out of shared memory.
    """
    if workers.busy_ratio is None:
        return False
    if workers.busy_ratio >= IDLE_WORKERS:
        none = loader.ready_none_ratio if loader is not None and workers.number == 1 else None
        return none is not None and none < FEW_NONE and _is_ahead(loader)
    if loader is None:
        draws = draws_indices(data)
        fetching = ThreadSamples(tuple(sample for sample in data.stacks if not draws(sample)))
        handing_over = fetching.share_where(_takes_batch)
        return handing_over is not None and handing_over > 1.0 - NONE_READY
    return loader.ready_none_ratio is not None and loader.ready_none_ratio < NONE_READY


def _is_ahead(loader: LoaderRow | None) -> bool:
    """Whether its worker waits for requests; True where no worker says how long."""
    rows = loader.worker_rows if loader is not None else ()
    known = [(w.wait_ms, w.items_ms + (w.collate_ms or 0.0)) for w in rows if w.wait_ms is not None and w.items_ms]
    waited = mean_of_known(wait_ms / (wait_ms + making_ms) for wait_ms, making_ms in known)
    return waited is None or waited >= AHEAD


def draws_for_longer(data: ThreadSamples) -> bool:
    """Whether more samples draw indices than wait for a batch or take it over."""
    draws = draws_indices(data)
    drawing = sum(sample.count for sample in data.stacks if draws(sample))
    taking = (s for s in data.stacks if not draws(s) and (_takes_batch(s) or s.activity in _WAITS))
    return drawing > sum(sample.count for sample in taking)


def _takes_batch(sample: StackSample) -> bool:
    return sample.calls(_TAKES_BATCH)


def _batch_ms(loader: LoaderRow | None) -> float | None:
    rows = loader.worker_rows if loader is not None else ()
    made = [w.items_ms + w.collate_ms for w in rows if w.items_ms is not None and w.collate_ms is not None]
    return mean_of_known(made)


def _pids(workers: Sequence[Process], pid: int, loader: LoaderRow | None) -> list[int]:
    """The workers by descent, and those that the loader names: a fork server's are no children of the trainer."""
    named = (
        [w.pid for w in loader.worker_rows if w.pid not in (None, pid) and not w.ended] if loader is not None else []
    )
    return list(dict.fromkeys([*(worker.pid for worker in workers), *named]))


def own_collate_share(loader: LoaderRow | None, data: ThreadSamples) -> float | None:
    """The part of the wait for data that the training process, without workers, spends in collate.

    ``data``: the training thread's samples in the data phase.
    """
    if loader is not None and not loader.facts.workers and (share := _collate_share(loader, ())) is not None:
        return share
    return data.share_where(lambda sample: sample.collates)


def is_outside_collate(hot: HotFunction, data: ThreadSamples) -> bool:
    """Whether the samples that collate show another function than the one that is named; without any, none does."""
    named = hot.library or hot.place
    collating = [sample for sample in data.stacks if sample.collates]
    return bool(collating) and not any(
        (frame.file, frame.function) == (named.file, named.function)
        for sample in collating
        for frame in sample.frames_in_collate
    )


def _collate_share(loader: LoaderRow | None, spots: Sequence[ProcessSamples]) -> float | None:
    rows = loader.worker_rows if loader is not None else ()
    items, collate = mean_of_known([w.items_ms for w in rows]), mean_of_known([w.collate_ms for w in rows])
    if items is not None and collate is not None and items + collate > 0:
        return collate / (items + collate)
    return mean_of_known([s.collate_share() for s in spots])


def working_share(data: ThreadSamples) -> float | None:
    """Share of the training thread's samples in the data phase in which it works itself; None with too few.

    Receiving a batch from a worker takes time too, which faster data does not shorten. In the rest it only waits.
    """
    return data.share_where(lambda sample: sample.activity not in _WAITS and sample.kinds[-1:] != ["fetch"])


def is_loaders_own(sample: StackSample) -> bool:
    """Whether the DataLoader is at its own work, such as indexing or default collate: nobody else's code runs below."""
    kinds = sample.kinds
    if "fetch" not in kinds:
        return False
    return not any(frame.user or is_others_package(frame.file) for frame in sample.frames[kinds.index("fetch") :])


def producer(main: ThreadSamples, others: Sequence[ThreadSamples]) -> HotFunction | None:
    """The line of another Python thread that fills the queue which the training thread waits at for its data.

    ``main``: the training thread's samples; ``others``: those of each other thread. Where that thread runs Python code,
    the training thread waits for the GIL as well, which the interpreter hands over where a loop begins anew.
    """
    data = main.in_phase("data")
    waits = data.activities["lock"]
    if any(_passes_queue(sample) for sample in data.stacks):
        waits += sum(sample.count for sample in data.stacks if _begins_anew(sample, main.training_path))
    if data.total < MIN_SAMPLES or waits < QUEUE_SHARE * data.total:
        return None
    places: Counter[HotFunction] = Counter()
    for samples in others:
        hot = hottest_function(_working_lines(samples))
        if hot is not None:
            places[hot] = hot.samples
    return places.most_common(1)[0][0] if places else None


def _passes_queue(sample: StackSample) -> bool:
    """Whether it takes from a queue or notifies the thread that fills it."""
    return any(_QUEUE_FILE.search(frame.file) for frame in sample.frames)


def _begins_anew(sample: StackSample, path: Collection[tuple[str, str]]) -> bool:
    """Whether it is at the head of the loop that trains, in no call: that takes no time of its own."""
    leaf = sample.frames[-1] if sample.frames else None
    return leaf is not None and (leaf.file, leaf.function) in path and leaf.source.startswith("for ")


def _working_lines(samples: ThreadSamples) -> list[HotLine]:
    """User lines of a thread where it does not itself wait for another; shares are of all its samples."""
    return [
        HotLine(sample.place, sample.count / samples.total, sample.count, samples.total)
        for sample in samples.stacks
        if sample.place is not None and sample.activity not in ("lock", "idle")
    ]


def _busiest_share(workers: Sequence[Threads]) -> float | None:
    """Share of time that the busiest thread of a worker runs or waits for a core: of a batch, only it makes.

    The thread beside it that writes batches to the pipe hands them over.
    """
    shares = [
        max((row.cpu_ratio or 0.0) + (row.delay_ratio or 0.0) for row in worker.threads)
        for worker in workers
        if worker.cpu_ratio is not None and worker.threads
    ]
    return mean_of_known(shares)


def _works(sample: StackSample) -> bool:
    return sample.activity not in ("lock", "idle") and not sample.awaits_message


def _brief_share(session: Session, pid: int, number: int) -> float | None:
    """What workers that live too briefly for records of their own use of the cores that they could have.

    Samples show little of them: a sampler starts in the middle of a life of a second, and sees how it ends.
    """
    trainer, cores = session.process_threads(pid), session.cpu_count
    if trainer is None or not trainer.childrens_cores or cores is None or not number:
        return None
    return min(1.0, trainer.childrens_cores / max(1.0, min(number, cores - (trainer.cpu_ratio or 0.0))))


def _all_of(workers: Sequence[ThreadSamples]) -> ThreadSamples:
    return ThreadSamples(tuple(stack for samples in workers for stack in samples.stacks))


def _busy_share(workers: Sequence[ThreadSamples]) -> float | None:
    """Share of the workers' samples in which they did not idle until the next batch was requested."""
    total = sum(samples.total for samples in workers)
    busy = total - sum(samples.activities["idle"] for samples in workers)
    return busy / total if total >= MIN_SAMPLES else None
