"""Rules about memory: the machine runs out of it, and Python's garbage collector stops the training."""

from __future__ import annotations

from msgspec import Struct

from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.lines import HotFunction
from tuimon.diagnosis.evidence.machines import Machine
from tuimon.diagnosis.evidence.places.collections import collecting_line
from tuimon.diagnosis.evidence.run import RunEvidence
from tuimon.diagnosis.evidence.steps import SETTLED_S
from tuimon.diagnosis.finding import Change, Finding, Fix, Severity
from tuimon.diagnosis.needs import COLLECTIONS, MACHINE_MEMORY
from tuimon.diagnosis.rule import Rule
from tuimon.diagnosis.step_model.measured import host_model
from tuimon.diagnosis.step_model.model import Part
from tuimon.diagnosis.threshold import Threshold
from tuimon.diagnosis.words import at_hot, percent
from tuimon.node_ids import own_id
from tuimon.records import MachineMemory
from tuimon.session.processes.machine import Growth

ROOM_SHARE = Threshold(
    0.05,
    "share of the machine's memory, or of the control group's limit, below which too little is left",
    "our choice: on common machines a few GB, which one more DataLoader worker may take",
)
GROWING_ROOM_SHARE = Threshold(
    0.15,
    "share of a control group's limit below which too little is left while a process of the run grows",
    "our choice: earlier than for the machine, as the kernel kills at this limit without swapping first",
)
SWAP_BYTES_PER_S = Threshold(
    1e6,
    "bytes swapped a second from which a training suffers",
    "our choice: 250 pages a second, each of which may stop a thread for a read from disk",
)
SOON_S = Threshold(
    600.0, "seconds until memory is full, below which that is critical", "our choice: time left to save a checkpoint"
)
LATER_S = Threshold(
    3600.0,
    "seconds until memory is full, below which it is mentioned",
    "our choice: growth over two minutes predicts no more than the next hour",
)
FRESH_S = Threshold(
    30.0, "seconds after which the machine's figures are too old", "our choice: the window of all other figures"
)
GC_SHARE = Threshold(
    0.01,
    "share of time in collections from which it is mentioned",
    "our choice: less is not worth a line; it is info only",
)
GC_LONG_NS = Threshold(
    50_000_000,
    "ns of a single collection from which it is mentioned",
    "our choice: a pause that shows as a slow step, even where all of them take less than 1 %",
)
GC_CLEAR_SHARE = Threshold(
    0.20,
    "share of time in collections from which they show in the first seconds",
    "our choice: one collection makes much of a moment",
)


class _Store(Struct, frozen=True, gc=False):
    """What fills up: the machine, or the control group that the run is in."""

    name: str
    total_bytes: int
    left_bytes: int

    @property
    def left_share(self) -> float:
        return self.left_bytes / self.total_bytes if self.total_bytes else 1.0


def memory_pressure(evidence: Evidence) -> Finding | None:
    """Memory is nearly full, or a machine swaps; of several the worst, as all ranks wait for it."""
    found = [finding for machine in evidence.run.machines if (finding := _on(evidence, machine)) is not None]
    return max(found, key=lambda finding: finding.severity == "critical", default=None)


def _on(evidence: Evidence, machine: Machine) -> Finding | None:
    run, memory = evidence.run, machine.memory
    if memory is None or run.now_s - memory.t > FRESH_S:
        return None
    store = _tightest(memory)
    swapped = [rate for rate in (memory.swap_in_bytes_per_s, memory.swap_out_bytes_per_s) if rate is not None]
    swaps = bool(swapped) and sum(swapped) >= SWAP_BYTES_PER_S
    if not swaps and (store is None or store.left_share >= GROWING_ROOM_SHARE):
        return None
    growing = machine.growing
    if not swaps and (store is None or not _is_short(store, growing)):
        return None
    culprit = growing[0] if growing else None
    full_s = store.left_bytes / culprit.bytes_per_s if store is not None and culprit is not None else None
    soon = full_s is not None and full_s < SOON_S and store is not None and store.left_share < GROWING_ROOM_SHARE
    severity: Severity = "critical" if soon or (store is not None and store.left_share < ROOM_SHARE / 2) else "warning"
    return Finding(
        rule="memory_pressure",
        severity=severity,
        headline=machine.place + _headline(run, store, sum(swapped) if swaps else None, culprit, full_s),
        action=_less_memory(evidence, culprit),
        evidence={
            "total_bytes": store.total_bytes if store else None,
            "left_bytes": store.left_bytes if store else None,
            "swap_bytes_per_s": sum(swapped) if swapped else None,
            "stalled_ratio": memory.stalled_ratio,
            "growing_pid": own_id(culprit.pid) if culprit else None,
            "growth_bytes_per_s": culprit.bytes_per_s if culprit else None,
            "full_in_s": full_s,
            **({"host": machine.host} if machine.host is not None else {}),
        },
    )


def _tightest(memory: MachineMemory) -> _Store | None:
    """What has the smallest share left; None without figures."""
    stores = []
    if memory.total_bytes and memory.available_bytes is not None:
        stores.append(_Store("the machine", memory.total_bytes, memory.available_bytes))
    if memory.limit_bytes and memory.limit_used_bytes is not None:
        left = max(0, memory.limit_bytes - memory.limit_used_bytes)
        stores.append(_Store("the container", memory.limit_bytes, left))
    return min(stores, key=lambda store: store.left_share, default=None)


def _is_short(store: _Store, growing: tuple[Growth, ...]) -> bool:
    limit = GROWING_ROOM_SHARE if growing and store.name == "the container" else ROOM_SHARE
    return store.left_share < limit


def _headline(
    run: RunEvidence, store: _Store | None, swapped: float | None, culprit: Growth | None, full_s: float | None
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
    growth = f"{_who(run, culprit.pid)} grows by {_megabytes(culprit.bytes_per_s * 60)} a minute"
    return f"{text}: {growth}{f', full in {_minutes(full_s)}' if full_s is not None and full_s < LATER_S else ''}"


def _who(run: RunEvidence, pid: int) -> str:
    process = run.processes.get(pid)
    role = {"trainer": "the training", "worker": "a DataLoader worker"}.get(process.role if process else "", "process")
    return f"{role} ({own_id(pid)})"


def _less_memory(evidence: Evidence, culprit: Growth | None) -> str:
    process = evidence.run.processes.get(culprit.pid) if culprit is not None else None
    if process is not None and process.role == "worker":
        return (
            "each worker copies what it touches of the data set's Python objects: keep them in one array or tensor,"
            " use fewer workers, or a smaller prefetch_factor"
        )
    if process is not None:
        return "look for what grows with the steps: lists of losses or outputs (detach, .item()), caches, logs"
    if evidence.child_workers:
        return "use fewer workers or a smaller prefetch_factor, or close other programs"
    return "load less at once (memory-map the data), or close other programs"


def gc_pauses(evidence: Evidence) -> Finding | None:
    """Python's garbage collector stops the training, on whatever thread it runs."""
    steps = evidence.steps
    collections = steps.collections if steps is not None else None
    if steps is None or collections is None or not collections.pauses or not steps.recent or steps.window_s <= 0:
        return None
    share = min(1.0, collections.total_ns / (steps.window_s * 1e9))
    if share < GC_SHARE and collections.longest_ns < GC_LONG_NS:
        return None
    if share < GC_CLEAR_SHARE and steps.window_s < SETTLED_S:
        return None  # one collection makes much of a moment
    call = collecting_line(evidence.stacks.main)
    every_s = steps.window_s / collections.pauses
    longest_ms = collections.longest_ns / 1e6
    best, *others = _fewer_collections(evidence, call, share if share >= GC_SHARE else 0.0)
    return Finding(
        rule="gc_pauses",
        severity="warning",
        headline=(
            f"the garbage collector stops the training for {_share(share)} of the time:"
            f" every {_seconds(every_s)}, for up to {longest_ms:.3g} ms{f', at {at_hot(call)}' if call else ''}"
        ),
        action=best.action,
        share_of_step=share,
        where=(call.place,) if call else (),
        evidence={
            "gc_share": share,
            "pauses": collections.pauses,
            "longest_ms": longest_ms,
            "gc_ms_per_step": collections.total_ns / steps.recent / 1e6,
        },
        estimated_speedup=best.estimated_speedup,  # none of them is left
        change=best.change,
        other_fixes=tuple(others),
    )


def _fewer_collections(evidence: Evidence, call: HotFunction | None, share: float) -> tuple[Fix, ...]:
    model = host_model(evidence)
    if call is not None:
        often, half = f"call {at_hot(call)} less often, or not at all", f"call {at_hot(call)} half as often"
        return model.less(often, half, "collections", Part(share))
    none = (
        "gc.freeze() once model and data are set up, so that they are not scanned again; or"
        " gc.disable() and a gc.collect() between epochs; keep large data in arrays instead of many objects"
    )
    return (model.fix(none, Change("collections", 0.0), Part(share)),)


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


RULES = (
    Rule(
        name="memory_pressure",
        title="Memory is nearly full",
        order=140,
        judge=memory_pressure,
        explanation=(
            "Memory is nearly full, or the machine swaps. It rests on the memory that the kernel reports as available,"
            " swap counters and the limits of the run's control groups; the resident memory of the run's processes over"
            " two minutes shows who grows."
        ),
        needs=(MACHINE_MEMORY,),
        thresholds=(ROOM_SHARE, GROWING_ROOM_SHARE, SWAP_BYTES_PER_S, SOON_S, LATER_S, FRESH_S),
        of_moment=True,
        is_harm=True,
        before_steps=True,
    ),
    Rule(
        name="gc_pauses",
        title="Garbage collections",
        order=150,
        judge=gc_pauses,
        explanation=(
            "Python's garbage collector stops the training, on whatever thread it runs. It rests on the time in"
            " collections of half a millisecond and more, reported by gc.callbacks in the process; the line of an"
            " explicit gc.collect() comes from samples."
        ),
        needs=(COLLECTIONS,),
        thresholds=(GC_SHARE, GC_LONG_NS, GC_CLEAR_SHARE, SETTLED_S),
    ),
)
