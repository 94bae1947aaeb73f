"""Rules about the input: does the training wait for its data, and why."""

from __future__ import annotations

from tuimon.diagnosis.evidence.common import HotFunction, at, hottest_function, percent, row, settled, step_ms
from tuimon.diagnosis.evidence.gpu import awaited, gpu_idle, noticed
from tuimon.diagnosis.evidence.workers import (
    Workers,
    data_share_in,
    own_collate_share,
    producer,
    training_loader,
    workers_of,
)
from tuimon.diagnosis.finding import Finding, Severity
from tuimon.diagnosis.rules.input_advice import advice, free_cores, starting_advice
from tuimon.session.rows import LoaderRow
from tuimon.session.session import Session

#: Share of the step spent waiting for data (TraceML warns at 10 %, calls it critical at 20 %).
WARN_SHARE = 0.10
CRITICAL_SHARE = 0.20
#: Share of time in which the workers run or wait for a core, from which they count as saturated (proposal).
SATURATED_BUSY = 0.80
#: Share of the time in which batches are made that collate must take, and of the wait that the sampler must take, to
#: be the cause: what an expert would look at first takes most of it (proposal).
COLLATE_SHARE = 0.50
SAMPLER_SHARE = 0.50
#: Share of the workers in disk wait that makes it the cause (proposal).
DISK_SHARE = 0.20

#: Share of the wait for data that the beginnings of epochs must take to be what to look at first (proposal).
START_SHARE = 0.50
#: So many epochs must have begun: the first one's workers are started in any case.
START_EPOCHS = 2

_Cause = tuple[str | None, HotFunction | None, str]


def input_bound(session: Session, pid: int) -> Finding | None:
    """The step waits for data.

    Evidence: share of the step inside the loader's ``__next__`` (markers), or of samples before the first forward line
    in a loop without a DataLoader; with GPU events, how much of that the GPU idles: what launches that run ahead cover
    is no wait. Cause: what the workers' CPU and samples show.
    """
    table = session.phases(pid)
    data = row(table, "data")
    if table is None or data is None or data.share < WARN_SHARE or awaited(session, pid):
        return None
    on_gpu = noticed(session, pid, data)
    share = data.share if on_gpu is None else on_gpu[1]
    if share < WARN_SHARE:
        return None
    if data.error is not None and data.share - data.error < WARN_SHARE / 2:
        return None  # too few samples to say
    severity: Severity = "critical" if share >= CRITICAL_SHARE else "warning"
    if severity == "warning" and not settled(table):
        return None
    workers = workers_of(session, pid)
    own = hottest_function(session.hot_lines(pid, "data"))
    lost = share if on_gpu is None else on_gpu[0]
    starting = _starting(session, pid)
    if starting is not None:
        cause, hot, saying = None, None, f": starting workers takes {starting.start_s or 0.0:.1f} s an epoch"
        action, speedup = starting_advice(starting, lost)
    else:
        cause, hot, saying = _cause(data.estimated and not table.inferred, workers, own, session, pid)
        action, speedup = advice(cause, workers, hot, session, pid, lost)
    return Finding(
        rule="input_bound",
        severity=severity,
        headline=f"{percent(share)} of every step {'waits' if on_gpu is None else 'the GPU waits'} for data{saying}",
        action=action,
        cause="hand_rolled_loader" if cause == "slow_thread" else cause,
        share_of_step=share,
        where=tuple(dict.fromkeys(f.place for f in (hot, own) if f is not None)),
        evidence={
            "data_ms_per_step": data.ms_per_step,
            "step_ms": step_ms(table),
            "workers": workers.number,
            "worker_cpu_ratio": workers.cpu_ratio,
            "worker_busy_ratio": workers.busy_ratio,
            "hot_share": hot.share if hot else None,
            "epoch_start_s": starting.start_s if starting else None,
            **gpu_idle(on_gpu),
        },
        estimated_speedup=speedup,
    )


def _starting(session: Session, pid: int) -> LoaderRow | None:
    """The training loader, if its workers are started anew for every epoch and that is most of the wait."""
    loader = training_loader(session, pid)
    if loader is None or loader.facts.persistent or not loader.facts.workers or loader.starts < START_EPOCHS:
        return None
    return loader if (loader.start_share or 0.0) >= START_SHARE else None


def _cause(by_hand: bool, workers: Workers, own: HotFunction | None, session: Session, pid: int) -> _Cause:
    """The cause's name, the place to look at, and the rest of the sentence."""
    if own is not None and (data_share_in(session, pid, ("_next_index",)) or 0.0) >= SAMPLER_SHARE:
        return "sampler", own, f": {at(own.place)} draws the indices"
    if workers.number:
        return _cause_in_workers(workers, session)
    if workers.gone:
        return None, own, ": its workers have just ended"
    thread = producer(session, pid) if by_hand else None
    if thread is not None:
        return "slow_thread", thread, f": {at(thread.place)} prepares it in a thread"
    if own is not None and not by_hand and (own_collate_share(session, pid) or 0.0) >= COLLATE_SHARE:
        return "slow_collate", own, f": {at(own.place)} collates batches in the training process"
    place = f": {at(own.place)} prepares it in the training process" if own else " prepared in the training process"
    return ("hand_rolled_loader" if by_hand else "no_workers"), own, place


def _cause_in_workers(workers: Workers, session: Session) -> _Cause:
    hot = workers.hot
    if workers.disk_ratio >= DISK_SHARE:
        return "disk_wait", hot, ": the workers wait for the disk"
    collating, share = workers.hot_in_collate, workers.collate_share or 0.0
    collating = collating._replace(share=share * collating.share) if collating is not None else hot
    if collating is not None and share >= COLLATE_SHARE:
        return "slow_collate", collating, f": {at(collating.place)} collates batches in the workers"
    if workers.busy_ratio is None or workers.busy_ratio < SATURATED_BUSY:
        return None, hot, f": {at(hot.place)} is where the workers work" if hot else ""
    if workers.waiting:
        who = "the worker waits" if workers.number == 1 else f"{_all(workers)} wait"
        return "workers_saturated", hot, f": {who} at {at(hot.place)}" if hot else f": {who} for something else"
    kept = f"{_all(workers)} at {percent(min(1.0, workers.busy_ratio))}"
    saying = f": {at(hot.place)} keeps {kept}" if hot else f": {kept} busy"
    return ("workers_saturated" if free_cores(session) >= 1 else "slow_item"), hot, saying


def _all(workers: Workers) -> str:
    return {1: "the worker", 2: "both workers"}.get(workers.number, f"all {workers.number} workers")
