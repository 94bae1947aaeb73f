"""The rule about memory: the machine runs out of it, will if the run goes on to grow, or that has ended the run."""

from __future__ import annotations

from typing import get_args

from msgspec import Struct

from tuimon.diagnosis.evidence.devices import RECENT_S
from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.machines import Machine
from tuimon.diagnosis.evidence.run import RunEvidence
from tuimon.diagnosis.finding import Finding, Fix, Severity
from tuimon.diagnosis.rule import MACHINE_MEMORY, Rule
from tuimon.diagnosis.rules.memory_growth import (
    LATER_S,
    LATEST_S,
    LEAST_RISE_BYTES,
    SOON_S,
    copied_growth,
    gpu_growth,
    host_growth,
    kept_in,
    less_memory,
    let_go,
    minutes,
    places_of,
    who,
)
from tuimon.diagnosis.rules.out_of_memory import out_of_memory
from tuimon.diagnosis.threshold import SMALL, Threshold
from tuimon.node_ids import own_id
from tuimon.records import MachineMemory
from tuimon.session.processes.nodes import ProcessGrowth
from tuimon.text import size_text

SWAP_BYTES_PER_S = Threshold(
    1e6,
    "bytes swapped a second from which a training suffers",
    "our choice: 250 pages a second, each of which may stop a thread for a read from disk",
)


_GRAVEST_FIRST: tuple[Severity, ...] = get_args(Severity)


class _Store(Struct, frozen=True, gc=False):
    """Memory that fills up: the machine's, or that of the run's control group."""

    name: str
    total_bytes: int
    left_bytes: int

    @property
    def left_share(self) -> float:
        return self.left_bytes / self.total_bytes if self.total_bytes else 1.0


def memory_pressure(evidence: Evidence) -> Finding | None:
    """Memory is nearly full, a machine swaps, or memory grows; of several the worst, as all ranks wait for it."""
    if evidence.run.has_ended:
        return out_of_memory(evidence)
    found = [finding for machine in evidence.run.machines if (finding := _on(evidence, machine)) is not None]
    on_gpu = gpu_growth(evidence)
    found += [on_gpu] if on_gpu is not None else []
    return max(found, key=lambda finding: -_GRAVEST_FIRST.index(finding.severity), default=None)


def _on(evidence: Evidence, machine: Machine) -> Finding | None:
    run, memory = evidence.run, machine.memory
    if memory is None or run.now_s - memory.t > RECENT_S:
        return None
    stores = _stores(memory)
    found = _pressure(evidence, machine, memory, min(stores, key=lambda store: store.left_share, default=None))
    if found is not None or not stores:
        return found
    left_bytes = min(store.left_bytes for store in stores)
    return host_growth(evidence, machine, left_bytes) or copied_growth(evidence, machine, left_bytes)


def _pressure(evidence: Evidence, machine: Machine, memory: MachineMemory, store: _Store | None) -> Finding | None:
    """Memory is nearly full, or the machine swaps."""
    run = evidence.run
    swapped = [rate for rate in (memory.swap_in_bytes_per_s, memory.swap_out_bytes_per_s) if rate is not None]
    swaps = bool(swapped) and sum(swapped) >= SWAP_BYTES_PER_S
    if store is not None and store.left_share >= SMALL:
        store = None
    if not swaps and store is None:
        return None
    culprit = next(iter(machine.growing), None)
    per_s = culprit.growth.bytes_per_s if culprit is not None else None
    keeping = kept_in(machine, culprit.pid) if culprit is not None else ()
    full_s = store.left_bytes / per_s if store is not None and per_s is not None else None
    is_grave = store is not None and ((full_s is not None and full_s < SOON_S) or store.left_share < SMALL / 2)
    return Finding(
        severity="critical" if is_grave else "warning",
        headline=machine.place + _headline(run, store, sum(swapped) if swaps else None, culprit, full_s),
        fixes=let_go(keeping) or (Fix(less_memory(evidence, culprit.pid if culprit is not None else None)),),
        where=places_of(keeping),
        evidence={
            "total_bytes": store.total_bytes if store else None,
            "left_bytes": store.left_bytes if store else None,
            "swap_bytes_per_s": sum(swapped) if swapped else None,
            "stalled_ratio": memory.stalled_ratio,
            "growing_pid": own_id(culprit.pid) if culprit else None,
            "growth_bytes_per_s": per_s,
            "full_in_s": full_s,
            **({"host": machine.host} if machine.host is not None else {}),
        },
    )


def _stores(memory: MachineMemory) -> list[_Store]:
    """The machine's memory, and that of the control group, as far as there are figures."""
    stores = []
    if memory.total_bytes and memory.available_bytes is not None:
        stores.append(_Store("the machine", memory.total_bytes, memory.available_bytes))
    if memory.limit_bytes and memory.limit_used_bytes is not None:
        left = max(0, memory.limit_bytes - memory.limit_used_bytes)
        stores.append(_Store("the container", memory.limit_bytes, left))
    return stores


def _headline(
    run: RunEvidence, store: _Store | None, swapped: float | None, culprit: ProcessGrowth | None, full_s: float | None
) -> str:
    parts = []
    if store is not None:
        parts.append(f"{store.name} has {size_text(store.left_bytes)} of {size_text(store.total_bytes)} of memory left")
    if swapped is not None:
        parts.append(f"the machine swaps {size_text(swapped)}/s")
    text = " and ".join(parts)
    if culprit is None:
        return text
    growth = f"{who(run, culprit.pid)} grows by {size_text(culprit.growth.bytes_per_s * 60)} a minute"
    return f"{text}: {growth}{f', full in {minutes(full_s)}' if full_s is not None and full_s < LATER_S else ''}"


MEMORY_PRESSURE = Rule(
    title="Memory is nearly full",
    judge=memory_pressure,
    explanation=(
        "Memory is nearly full, or the machine swaps, or a process has grown ever since the first steps. It rests on"
        " the memory that the kernel reports as available, swap counters and the limits of the run's control groups;"
        " the memory of the run's processes over two minutes, without files and shared memory, shows who grows. Once"
        " the run has ended, the kernel's count of processes that it killed for memory and the exception that ended it"
        " show whether that was why."
    ),
    needs=(MACHINE_MEMORY,),
    thresholds=(SMALL, SWAP_BYTES_PER_S, SOON_S, LATER_S, LATEST_S, LEAST_RISE_BYTES),
    causes=("growing", "copied", "out_of_memory"),
    of_moment=True,
    of_end=True,
    is_harm=True,
    before_steps=True,
)
