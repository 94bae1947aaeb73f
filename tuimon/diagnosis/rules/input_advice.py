"""What to do about data that comes too late, and what it would gain."""

from __future__ import annotations

from math import ceil

from tuimon.diagnosis.evidence.common import HotFunction, at, cpu_count
from tuimon.diagnosis.evidence.workers import Workers, waiting_share
from tuimon.diagnosis.rules.cores import held_up
from tuimon.session.rows import LoaderRow
from tuimon.session.session import Session

#: Nobody is told to multiply the workers by more than this at once: what lies behind them may have limits of its own.
MOST_WORKERS_RATIO = 4


def advice(
    cause: str | None, workers: Workers, hot: HotFunction | None, session: Session, pid: int, share: float
) -> tuple[str, float | None]:
    """What to do now, and step time now / then; ``share`` is that of the wait for data.

    The estimate follows from what overlaps: what remains is at least the rest of the step, and what the fix does not
    touch (the worker's other lines; the cores there are). Where others hold the cores, what would run beside the
    training is promised no gain.
    """
    cores = cpu_count(session)
    waited = waiting_share(session, pid) if workers.number else None
    rest = 1.0 - share * (waited or 1.0)
    taken = held_up(session, pid)
    cheaper = f"make {at(hot.place)} cheaper (vectorise, cache, or move it to the GPU)" if hot else "make items cheaper"
    in_trainer = gain(1.0 - share * hot.share) if hot else None
    in_workers = gain(max(rest, 1.0 - hot.share)) if hot else None
    match cause:
        case "no_workers":
            spare = max(1, cores - 1)
            after = 1.0 if taken else max(rest, share / spare, used_cores(session) / cores)
            more = min(spare, 8)
            return f"num_workers=0 -> {more}, so that loading overlaps with training; or {cheaper}", gain(after)
        case "hand_rolled_loader":
            after = 1.0 if taken else max(rest, share, used_cores(session) / cores)
            speedup = in_trainer or gain(after)
            return f"{cheaper}; or prepare the next batch in a DataLoader's workers meanwhile", speedup
        case "slow_thread":
            return f"{cheaper}, or use several threads: the training thread waits for it", in_workers
        case "sampler":
            return f"{cheaper}: indices are drawn in the training process, one by one; draw many at once", in_trainer
        case "workers_saturated":
            more = more_workers(workers, session, rest)
            after = 1.0 if taken and not workers.waiting else max(rest, workers.number / more)
            return f"num_workers={workers.number} -> {more} on this {cores}-core machine; or {cheaper}", gain(after)
        case "slow_item":
            return f"{cheaper}: all {cores} cores are busy, more workers will not help", in_workers
        case "slow_collate":
            speedup = in_workers if workers.number else in_trainer
            return f"{cheaper}: build the batch in one operation instead of item by item", speedup
        case "disk_wait":
            return "read fewer, larger files, cache the data set in memory or on a faster disk", gain(rest)
        case _:
            return cheaper, in_workers


def starting_advice(loader: LoaderRow, share: float) -> tuple[str, float | None]:
    """What to do about workers that are started anew for every epoch, and what it would gain."""
    cheaper = "; or fork instead of spawn" if loader.facts.context == "spawn" else ""
    kept = "the worker" if loader.facts.workers == 1 else f"the {loader.facts.workers} workers"
    action = f"persistent_workers=True keeps {kept} from epoch to epoch{cheaper}"
    return action, gain(1.0 - share * (loader.start_share or 0.0))


def gain(after: float) -> float | None:
    """Speed-up when a step takes this share of what it takes now; None where it would not gain."""
    return 1.0 / after if 0.0 < after < 1.0 else None


def more_workers(workers: Workers, session: Session, rest: float) -> int:
    """As many as keep up with the rest of the step, as far as the free cores carry them."""
    each = max(workers.cpu_ratio or 1.0, 0.1) if workers.waiting else 1.0
    carried = workers.number + int(max(0.0, free_cores(session)) / each)
    wanted = ceil(workers.number / rest) if workers.waiting and rest > 0 else carried
    return max(workers.number + 1, min(carried, wanted, MOST_WORKERS_RATIO * workers.number))


def free_cores(session: Session) -> float:
    """Cores that the run could still get: those of the machine less what its threads use and what they wait for."""
    cores = float(cpu_count(session))
    for process in session.processes():
        threads = None if process.ended else session.process_threads(process.pid)
        if threads is not None:
            cores -= threads.cpu_ratio or 0.0
            cores -= sum(row.delay_ratio or 0.0 for row in threads.threads)
    return cores


def used_cores(session: Session) -> float:
    """Cores that the run's processes use on average: work that overlaps still has to be done."""
    measured = (session.process_threads(p.pid) for p in session.processes() if not p.ended)
    return sum(t.cpu_ratio or 0.0 for t in measured if t is not None)
