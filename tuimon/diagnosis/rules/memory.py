"""The rule about memory: the machine runs out of it."""

from __future__ import annotations

from msgspec import Struct

from tuimon.diagnosis.evidence.devices import RECENT_S
from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.machines import Machine
from tuimon.diagnosis.evidence.run import RunEvidence
from tuimon.diagnosis.finding import Finding, Fix, Severity
from tuimon.diagnosis.needs import MACHINE_MEMORY
from tuimon.diagnosis.rule import Rule
from tuimon.diagnosis.threshold import SMALL, Threshold
from tuimon.node_ids import own_id
from tuimon.records import MachineMemory
from tuimon.session.processes.nodes import Growth
from tuimon.text import size_text

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


class _Store(Struct, frozen=True, gc=False):
    """Memory that fills up: the machine's, or that of the run's control group."""

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
    if memory is None or run.now_s - memory.t > RECENT_S:
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
    severity: Severity = "critical" if soon or (store is not None and store.left_share < SMALL / 2) else "warning"
    return Finding(
        rule="memory_pressure",
        severity=severity,
        headline=machine.place + _headline(run, store, sum(swapped) if swaps else None, culprit, full_s),
        fixes=(Fix(_less_memory(evidence, culprit)),),
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
    """The memory with the smallest share left; None without figures."""
    stores = []
    if memory.total_bytes and memory.available_bytes is not None:
        stores.append(_Store("the machine", memory.total_bytes, memory.available_bytes))
    if memory.limit_bytes and memory.limit_used_bytes is not None:
        left = max(0, memory.limit_bytes - memory.limit_used_bytes)
        stores.append(_Store("the container", memory.limit_bytes, left))
    return min(stores, key=lambda store: store.left_share, default=None)


def _is_short(store: _Store, growing: tuple[Growth, ...]) -> bool:
    limit = GROWING_ROOM_SHARE if growing and store.name == "the container" else SMALL
    return store.left_share < limit


def _headline(
    run: RunEvidence, store: _Store | None, swapped: float | None, culprit: Growth | None, full_s: float | None
) -> str:
    parts = []
    if store is not None and (swapped is None or store.left_share < GROWING_ROOM_SHARE):
        parts.append(f"{store.name} has {size_text(store.left_bytes)} of {size_text(store.total_bytes)} of memory left")
    if swapped is not None:
        parts.append(f"the machine swaps {size_text(swapped)}/s")
    text = " and ".join(parts)
    if culprit is None:
        return text
    growth = f"{_who(run, culprit.pid)} grows by {size_text(culprit.bytes_per_s * 60)} a minute"
    return f"{text}: {growth}{f', full in {_minutes(full_s)}' if full_s is not None and full_s < LATER_S else ''}"


def _who(run: RunEvidence, pid: int) -> str:
    process = run.processes.get(pid)
    role = {"trainer": "the training", "worker": "a DataLoader worker"}.get(process.role if process else "", "process")
    return f"{role} ({own_id(pid)})"


def _less_memory(evidence: Evidence, culprit: Growth | None) -> str:
    process = evidence.run.processes.get(culprit.pid) if culprit is not None else None
    if process is not None and process.role == "worker":
        return (
            "keep the data set's objects in one array or tensor, or use fewer workers or a smaller prefetch_factor:"
            " each worker copies the Python objects that it touches"
        )
    if process is not None:
        return "look for what grows with the steps: lists of losses or outputs (detach, .item()), caches, logs"
    if evidence.child_workers:
        return "use fewer workers or a smaller prefetch_factor, or close other programs"
    return "load less at once (memory-map the data), or close other programs"


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
        thresholds=(SMALL, GROWING_ROOM_SHARE, SWAP_BYTES_PER_S, SOON_S, LATER_S),
        of_moment=True,
        is_harm=True,
        before_steps=True,
    ),
)
