"""Rules about the input: does the training wait for its data, and why."""

from __future__ import annotations

from typing import NamedTuple

from tuimon.diagnosis.evidence import HotFunction, at, hottest_function, merged_lines, percent, row, step_ms
from tuimon.diagnosis.finding import Finding, Severity
from tuimon.session.session import Session

#: Share of the step spent waiting for data (TraceML warns at 10 %, calls it critical at 20 %).
WARN_SHARE = 0.10
CRITICAL_SHARE = 0.20
#: Share of time in which the workers run or wait for a core, from which they count as saturated (proposal).
SATURATED_BUSY = 0.80
#: Share of the workers' samples in collate / their time in disk wait that makes these the cause (proposals).
COLLATE_SHARE = 0.30
DISK_SHARE = 0.20


class _Workers(NamedTuple):
    """The DataLoader workers of a trainer, as far as they were measured."""

    number: int
    cpu_ratio: float | None  # mean of one worker
    busy_ratio: float | None  # mean of CPU plus time runnable without a core
    disk_ratio: float
    hot: HotFunction | None
    collate_share: float | None
    gone: bool  # there were workers, and none is left


def input_bound(session: Session, pid: int) -> Finding | None:
    """The step waits for data.

    Evidence: share of the step inside the loader's ``__next__`` (markers), or of samples before the first forward line
    in a loop without a DataLoader. Cause: what the workers' CPU and samples show.
    """
    table = session.phases(pid)
    data = row(table, "data")
    if table is None or data is None or data.share < WARN_SHARE:
        return None
    if data.error is not None and data.share - data.error < WARN_SHARE / 2:
        return None  # too few samples to say
    severity: Severity = "critical" if data.share >= CRITICAL_SHARE else "warning"
    workers = _workers(session, pid)
    own = hottest_function(session.hot_lines(pid, "data"))
    cause, hot, saying = _cause(data.estimated and not table.inferred, workers, own, session)
    action, gain = _advice(cause, workers, hot, session, data.share)
    where = tuple(dict.fromkeys(f.place for f in (hot, own) if f is not None))
    length = step_ms(table)
    return Finding(
        rule="input_bound",
        severity=severity,
        headline=f"{percent(data.share)} of every step waits for data{saying}",
        action=action,
        cause=cause,
        share_of_step=data.share,
        where=where,
        evidence={
            "data_ms_per_step": data.ms_per_step,
            "step_ms": length,
            "workers": workers.number,
            "worker_cpu_ratio": workers.cpu_ratio,
            "worker_busy_ratio": workers.busy_ratio,
            "hot_share": hot.share if hot else None,
        },
        estimated_speedup=gain,
    )


def _workers(session: Session, pid: int) -> _Workers:
    processes = session.workers(pid)
    threads = [t for p in processes if (t := session.process_threads(p.pid)) is not None]
    cpu = [t.cpu_ratio for t in threads if t.cpu_ratio is not None]
    mains = [row for t in threads for row in t.threads if row.tid == t.pid]
    delays = [row.delay_ratio or 0.0 for row in mains]
    states = [row.state for row in mains]
    spots = [s for p in processes if (s := session.hotspots(p.pid)) is not None]
    collates = [share for s in spots if (share := s.share_with("collate")) is not None]
    return _Workers(
        number=len(processes),
        cpu_ratio=sum(cpu) / len(cpu) if cpu else None,
        busy_ratio=(sum(cpu) + sum(delays)) / len(cpu) if cpu else None,
        disk_ratio=states.count("disk") / len(states) if states else 0.0,
        hot=hottest_function(merged_lines(s.hot_lines() for s in spots)),
        collate_share=sum(collates) / len(collates) if collates else None,
        gone=not processes and session.had_workers(pid),
    )


def _cause(
    by_hand: bool, workers: _Workers, own: HotFunction | None, session: Session
) -> tuple[str | None, HotFunction | None, str]:
    """The cause's name, the place to look at, and the rest of the sentence."""
    if not workers.number:
        if workers.gone:
            return None, own, ": its workers have just ended"
        place = f": {at(own.place)} prepares it in the training process" if own else " prepared in the training process"
        return ("hand_rolled_loader" if by_hand else "no_workers"), own, place
    if workers.disk_ratio >= DISK_SHARE:
        return "disk_wait", workers.hot, ": the workers wait for the disk"
    hot = workers.hot
    if hot is not None and (workers.collate_share or 0.0) >= COLLATE_SHARE:
        return "slow_collate", hot, f": {at(hot.place)} collates batches in the workers"
    if workers.busy_ratio is None or workers.busy_ratio < SATURATED_BUSY:
        return None, hot, f": {at(hot.place)} is where the workers work" if hot else ""
    kept = _keeps(workers)
    saying = f": {at(hot.place)} keeps {kept}" if hot else f": {kept} busy"
    return ("workers_saturated" if _free_cores(session) >= 1 else "slow_item"), hot, saying


def _keeps(workers: _Workers) -> str:
    who = {1: "the worker", 2: "both workers"}.get(workers.number, f"all {workers.number} workers")
    return f"{who} at {percent(min(1.0, workers.busy_ratio or 0.0))}"


def _free_cores(session: Session) -> float:
    """Cores that the run could still get: those of the machine less what its threads use and what they wait for."""
    cores = float(session.header.cpu_count if session.header else 1)
    for process in session.processes():
        threads = None if process.ended else session.process_threads(process.pid)
        if threads is not None:
            cores -= threads.cpu_ratio or 0.0
            cores -= sum(row.delay_ratio or 0.0 for row in threads.threads)
    return cores


def _advice(
    cause: str | None, workers: _Workers, hot: HotFunction | None, session: Session, share: float
) -> tuple[str, float | None]:
    """What to do now, and step time now / then.

    The estimate follows from what overlaps: what remains is at least the rest of the step, and what the fix does not
    touch (the worker's other lines; the cores there are).
    """
    cores = session.header.cpu_count if session.header else 1
    rest = 1.0 - share
    cheaper = f"make {at(hot.place)} cheaper (vectorise, cache, or move it to the GPU)" if hot else "make items cheaper"
    without_hot = _gain(max(rest, 1.0 - hot.share)) if hot else None
    if cause == "no_workers":
        spare = max(1, cores - 1)
        after = max(rest, share / spare, _used_cores(session) / cores)
        return f"num_workers=0 -> {min(spare, 8)}, so that loading overlaps with training; or {cheaper}", _gain(after)
    if cause == "hand_rolled_loader":
        after = max(rest, share, _used_cores(session) / cores)
        return (
            f"prepare the next batch while this one trains (a DataLoader with workers, or a thread); or {cheaper}",
            _gain(after),
        )
    if cause == "workers_saturated":
        more = workers.number + int(_free_cores(session))
        after = max(rest, workers.number / more)
        return f"num_workers={workers.number} -> {more} on this {cores}-core machine; or {cheaper}", _gain(after)
    if cause == "slow_item":
        return f"{cheaper}: all {cores} cores are busy, more workers will not help", without_hot
    if cause == "slow_collate":
        return f"{cheaper}: build the batch in one operation instead of item by item", without_hot
    if cause == "disk_wait":
        return "read fewer, larger files, cache the data set in memory or on a faster disk", _gain(rest)
    return cheaper, without_hot


def _gain(after: float) -> float | None:
    """Speed-up when a step takes this share of what it takes now; None where it would not gain."""
    return 1.0 / after if 0.0 < after < 1.0 else None


def _used_cores(session: Session) -> float:
    """Cores that the run's processes use on average: work that overlaps still has to be done."""
    measured = (session.process_threads(p.pid) for p in session.processes() if not p.ended)
    return sum(t.cpu_ratio or 0.0 for t in measured if t is not None)
