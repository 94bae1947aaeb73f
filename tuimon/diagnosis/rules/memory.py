"""Rules about memory: the machine runs out of it, and Python's garbage collector stops the training."""

from __future__ import annotations

from typing import NamedTuple

from tuimon.diagnosis.evidence.common import SETTLED_S, at, percent
from tuimon.diagnosis.finding import Finding, Severity
from tuimon.session.machine import Growth
from tuimon.session.rows import HotLine
from tuimon.session.session import Session

#: Room left, of the machine's memory or of the control group's limit, below which it is short (proposal).
ROOM_SHARE = 0.05
#: ... of a control group while a process of the run grows: it is killed at the limit without swapping (proposal).
GROWING_ROOM_SHARE = 0.15
#: Swapping from which a training suffers (proposal).
SWAP_BYTES_PER_S = 1e6
#: Until memory is full, at the rate it grows, from which that is worth alarm and a word (proposals).
SOON_S = 600.0
LATER_S = 3600.0
#: Older figures are no picture of now.
FRESH_S = 30.0

#: Share of time in collections (FIELD-NOTES: 1 % or pauses over 50 ms); grave from five and twenty times as much
#: (proposals).
GC_SHARE = 0.01
GC_WARN_SHARE = 0.05
GC_CRITICAL_SHARE = 0.20
GC_LONG_NS = 50_000_000
_COLLECT = "gc.collect("


class _Store(NamedTuple):
    """What fills up: the machine, or the control group that the run is in."""

    name: str
    total_bytes: int
    left_bytes: int

    @property
    def left_share(self) -> float:
        return self.left_bytes / self.total_bytes if self.total_bytes else 1.0


def memory_pressure(session: Session, pid: int) -> Finding | None:
    """Memory is nearly full, or the machine swaps.

    Evidence: MemAvailable, swap counters, the limits of the run's control groups; resident memory of the run's
    processes over two minutes, for who grows. Threshold: 5 % left, 15 % left of a limit while a process grows, or
    1 MB/s of swapping. Abstains without figures of the machine.
    """
    memory = session.machine.latest
    if memory is None or session.now_s - memory.t > FRESH_S:
        return None
    store = _tightest(session)
    growing = session.machine.growing()
    swapped = [rate for rate in (memory.swap_in_bytes_per_s, memory.swap_out_bytes_per_s) if rate is not None]
    swaps = bool(swapped) and sum(swapped) >= SWAP_BYTES_PER_S
    if not swaps and (store is None or not _is_short(store, growing)):
        return None
    culprit = growing[0] if growing else None
    full_s = store.left_bytes / culprit.bytes_per_s if store is not None and culprit is not None else None
    soon = full_s is not None and full_s < SOON_S and store is not None and store.left_share < GROWING_ROOM_SHARE
    severity: Severity = "critical" if soon or (store is not None and store.left_share < ROOM_SHARE / 2) else "warning"
    return Finding(
        rule="memory_pressure",
        severity=severity,
        headline=_headline(session, store, sum(swapped) if swaps else None, culprit, full_s),
        action=_less_memory(session, pid, culprit),
        evidence={
            "total_bytes": store.total_bytes if store else None,
            "left_bytes": store.left_bytes if store else None,
            "swap_bytes_per_s": sum(swapped) if swapped else None,
            "stalled_ratio": memory.stalled_ratio,
            "growing_pid": culprit.pid if culprit else None,
            "growth_bytes_per_s": culprit.bytes_per_s if culprit else None,
            "full_in_s": full_s,
        },
    )


def _tightest(session: Session) -> _Store | None:
    memory = session.machine.latest
    stores = []
    if memory is not None and memory.total_bytes and memory.available_bytes is not None:
        stores.append(_Store("the machine", memory.total_bytes, memory.available_bytes))
    if memory is not None and memory.limit_bytes and memory.limit_used_bytes is not None:
        left = max(0, memory.limit_bytes - memory.limit_used_bytes)
        stores.append(_Store("the container", memory.limit_bytes, left))
    return min(stores, key=lambda store: store.left_share, default=None)


def _is_short(store: _Store, growing: list[Growth]) -> bool:
    limit = GROWING_ROOM_SHARE if growing and store.name == "the container" else ROOM_SHARE
    return store.left_share < limit


def _headline(
    session: Session, store: _Store | None, swapped: float | None, culprit: Growth | None, full_s: float | None
) -> str:
    parts = []
    if store is not None and (swapped is None or store.left_share < GROWING_ROOM_SHARE):
        parts.append(
            f"{store.name} has {_gigabytes(store.left_bytes)} of {_gigabytes(store.total_bytes)} of memory left"
        )
    if swapped is not None:
        parts.append(f"the machine swaps {swapped / 1e6:.3g} MB/s")
    text = " and ".join(parts)
    if culprit is None:
        return text
    growth = f"{_who(session, culprit.pid)} grows by {_megabytes(culprit.bytes_per_s * 60)} a minute"
    return f"{text}: {growth}{f', full in {_minutes(full_s)}' if full_s is not None and full_s < LATER_S else ''}"


def _who(session: Session, pid: int) -> str:
    process = session.process(pid)
    role = {"trainer": "the training", "worker": "a DataLoader worker"}.get(process.role if process else "", "process")
    return f"{role} ({pid})"


def _less_memory(session: Session, pid: int, culprit: Growth | None) -> str:
    process = session.process(culprit.pid) if culprit is not None else None
    if process is not None and process.role == "worker":
        return (
            "each worker copies what it touches of the data set's Python objects: keep them in one array or tensor,"
            " use fewer workers, or a smaller prefetch_factor"
        )
    if process is not None:
        return "look for what grows with the steps: lists of losses or outputs (detach, .item()), caches, logs"
    if session.workers(pid):
        return "use fewer workers or a smaller prefetch_factor, or close other programs"
    return "load less at once (memory-map the data), or close other programs"


def gc_pauses(session: Session, pid: int) -> Finding | None:
    """Python's garbage collector stops the training, on whatever thread it runs.

    Evidence: time in collections of half a millisecond and more, told by ``gc.callbacks`` in the process; the line of
    an explicit ``gc.collect()`` from samples. Threshold (FIELD-NOTES): 1 % of the time, or single pauses of 50 ms.
    Abstains where the process does not tell of its collections.
    """
    stats = session.step_stats(pid)
    totals = stats.recent() if stats is not None else None
    if totals is None or totals.gc_ns is None or not totals.gc_count or not totals.count or totals.window_s <= 0:
        return None
    share = min(1.0, totals.gc_ns / (totals.window_s * 1e9))
    if share < GC_SHARE and totals.gc_longest_ns < GC_LONG_NS:
        return None
    if share < GC_CRITICAL_SHARE and totals.window_s < SETTLED_S:
        return None  # one collection makes much of a moment
    asked = _asked_for(session, pid)
    every_s = totals.window_s / totals.gc_count
    longest_ms = totals.gc_longest_ns / 1e6
    return Finding(
        rule="gc_pauses",
        severity=_gc_severity(share),
        headline=(
            f"the garbage collector stops the training for {_share(share)} of the time:"
            f" every {_seconds(every_s)}, for up to {longest_ms:.3g} ms{f', at {at(asked.place)}' if asked else ''}"
        ),
        action=(
            f"call {at(asked.place)} less often, or not at all"
            if asked
            else "gc.freeze() once model and data are set up, so that they are not looked through again; or"
            " gc.disable() and a gc.collect() between epochs; keep large data in arrays instead of many objects"
        ),
        share_of_step=share,
        where=(asked.place,) if asked else (),
        evidence={
            "gc_share": share,
            "pauses": totals.gc_count,
            "longest_ms": longest_ms,
            "gc_ms_per_step": totals.gc_ns / totals.count / 1e6,
        },
        estimated_speedup=1.0 / (1.0 - share) if GC_SHARE <= share < 1.0 else None,
    )


def _gc_severity(share: float) -> Severity:
    if share >= GC_CRITICAL_SHARE:
        return "critical"
    return "warning" if share >= GC_WARN_SHARE else "info"


def _asked_for(session: Session, pid: int) -> HotLine | None:
    """The line that collects by itself; an automatic collection has no line of its own."""
    return next((line for line in session.hot_lines(pid) if _COLLECT in line.place.source), None)


def _share(share: float) -> str:
    return percent(share) if share >= GC_SHARE else "less than 1 %"


def _gigabytes(size: float) -> str:
    return f"{size / 1e9:.3g} GB"


def _megabytes(size: float) -> str:
    return f"{size / 1e6:.0f} MB" if size >= 1e7 else f"{size / 1e6:.2g} MB"


def _seconds(length_s: float) -> str:
    return f"{length_s:.2g} s" if length_s >= 1 else f"{1e3 * length_s:.0f} ms"


def _minutes(length_s: float) -> str:
    return "a minute" if length_s < 90 else f"{length_s / 60:.0f} minutes"
