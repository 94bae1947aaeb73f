"""What is known of a trainer's DataLoader workers, and of where its data comes from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from tuimon.diagnosis.evidence.common import HotFunction, hottest_function, merged_lines
from tuimon.session.rows import HotLine, LoaderRow
from tuimon.session.samples.activity import Activity, activity_of
from tuimon.session.samples.classify import Sample
from tuimon.session.samples.window import HotSpots
from tuimon.session.session import Session
from tuimon.torch_code import COLLATE_HOOK

#: Samples of a thread, below which its share of anything says nothing.
MIN_SAMPLES = 10


class Workers(NamedTuple):
    """The DataLoader workers of a trainer, as far as they were measured."""

    number: int
    cpu_ratio: float | None  # mean of one worker
    ran_ratio: float | None  # with the time in which it waited for a core
    busy_ratio: float | None  # making batches: told by markers, else the larger of what counters and samples show
    disk_ratio: float
    hot: HotFunction | None
    hot_in_collate: HotFunction | None
    collate_share: float | None  # of the time in which they make batches
    gone: bool  # there were workers, and none is left

    @property
    def waiting(self) -> bool:
        """Whether they are busy without computing: they wait for a disk, the network, a lock."""
        return self.ran_ratio is not None and self.busy_ratio is not None and self.ran_ratio < 0.5 * self.busy_ratio


def workers_of(session: Session, pid: int) -> Workers:
    """The live workers of a process."""
    loader = training_loader(session, pid)
    pids = _pids(session, pid, loader)
    threads = [t for p in pids if (t := session.process_threads(p)) is not None]
    cpu = [t.cpu_ratio for t in threads if t.cpu_ratio is not None]
    mains = [row for t in threads for row in t.threads if row.tid == t.pid]
    delays = [row.delay_ratio or 0.0 for row in mains]
    states = [row.state for row in mains]
    spots = [s for p in pids if (s := session.hotspots(p)) is not None]
    told = _mean([w.busy_ratio for w in loader.worker_rows if not w.ended]) if loader and loader.facts.workers else None
    counted = (sum(cpu) + sum(delays)) / len(cpu) if cpu else None
    sampled = _busy_share(session, pids)
    known = [ratio for ratio in (counted, sampled) if ratio is not None]
    return Workers(
        number=max(len(pids), loader.facts.workers if loader is not None else 0),
        cpu_ratio=sum(cpu) / len(cpu) if cpu else None,
        ran_ratio=counted,
        busy_ratio=told if told is not None else max(known, default=None),
        disk_ratio=states.count("disk") / len(states) if states else 0.0,
        hot=hottest_function(merged_lines(s.hot_lines() for s in spots)),
        hot_in_collate=hottest_function(merged_lines(s.hot_lines_under(COLLATE_HOOK) for s in spots)),
        collate_share=_collate_share(loader, spots),
        gone=not pids and session.had_workers(pid),
    )


def _pids(session: Session, pid: int, loader: LoaderRow | None) -> list[int]:
    """The workers by descent, and those that the loader names: a fork server's are no children of the trainer."""
    named = (
        [w.pid for w in loader.worker_rows if w.pid not in (None, pid) and not w.ended] if loader is not None else []
    )
    return list(dict.fromkeys([*(p.pid for p in session.workers(pid)), *named]))


def training_loader(session: Session, pid: int) -> LoaderRow | None:
    """The DataLoader whose batches train, as its markers tell it; None without."""
    return next((loader for loader in session.loaders(pid) if loader.latest.role != "eval"), None)


def own_collate_share(session: Session, pid: int) -> float | None:
    """Without workers: the part of the wait for data that the training process spends in collate."""
    loader = training_loader(session, pid)
    if loader is not None and not loader.facts.workers and (share := _collate_share(loader, ())) is not None:
        return share
    return data_share_in(session, pid, ("collate",))


def _collate_share(loader: LoaderRow | None, spots: Sequence[HotSpots]) -> float | None:
    rows = loader.worker_rows if loader is not None else ()
    items, collate = _mean([w.items_ms for w in rows]), _mean([w.collate_ms for w in rows])
    if items is not None and collate is not None and items + collate > 0:
        return collate / (items + collate)
    return _mean([s.share_with("collate") for s in spots])


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def data_share_in(session: Session, pid: int, function_parts: tuple[str, ...]) -> float | None:
    """Share of the training thread's samples in the data phase with such a function in the stack; None without any."""
    hotspots = session.hotspots(pid)
    samples = [s for s in hotspots.samples_of(pid) if s.phase == "data"] if hotspots else []
    total = sum(s.count for s in samples)
    if total < MIN_SAMPLES:
        return None
    hits = sum(s.count for s in samples if _calls(session, s, function_parts))
    return hits / total


def waiting_share(session: Session, pid: int) -> float | None:
    """Share of the training thread's samples in the data phase in which it only waits; None with too few.

    The rest is its own work there (taking a batch from its worker costs time too), and stays however fast the data is.
    """
    hotspots = session.hotspots(pid)
    samples = [s for s in hotspots.samples_of(pid) if s.phase == "data"] if hotspots else []
    total = sum(s.count for s in samples)
    if total < MIN_SAMPLES:
        return None
    waits = sum(s.count for s in samples if _doing(session, s) in ("data", "idle", "io", "lock"))
    return waits / total


def producer(session: Session, pid: int) -> HotFunction | None:
    """The line of another Python thread that the training thread waits for in a queue while it gets its data."""
    hotspots = session.hotspots(pid)
    if hotspots is None:
        return None
    doing: Counter[str] = Counter()
    for sample in hotspots.samples_of(pid):
        if sample.phase == "data":
            doing[_doing(session, sample)] += sample.count
    if doing.total() < MIN_SAMPLES or doing["lock"] < 0.5 * doing.total():
        return None
    places: Counter[HotFunction] = Counter()
    for tid in hotspots.tids():
        hot = hottest_function(_working_lines(session, hotspots.samples_of(tid))) if tid != pid else None
        if hot is not None:
            places[hot] = hot.samples
    return places.most_common(1)[0][0] if places else None


def _working_lines(session: Session, samples: Sequence[Sample]) -> list[HotLine]:
    """User lines of a thread where it does not itself wait for another."""
    total = sum(s.count for s in samples)
    lines = []
    for sample in samples:
        place = session.frames.user_place(sample.stack)
        if place is not None and _doing(session, sample) not in ("lock", "idle"):
            lines.append(HotLine(place, sample.count / total, sample.count, total))
    return lines


def _busy_share(session: Session, pids: Sequence[int]) -> float | None:
    """Share of the workers' samples in which they were not waiting to be asked for a batch."""
    total = busy = 0
    for pid in pids:
        hotspots = session.hotspots(pid)
        for sample in hotspots.samples_of(pid) if hotspots else ():
            total += sample.count
            busy += sample.count if _doing(session, sample) != "idle" else 0
    return busy / total if total >= MIN_SAMPLES else None


def _doing(session: Session, sample: Sample) -> Activity:
    return activity_of([session.frames[number] for number in sample.stack])


def _calls(session: Session, sample: Sample, function_parts: tuple[str, ...]) -> bool:
    functions = [session.frames[number].function for number in sample.stack]
    return any(part in function for function in functions for part in function_parts)
