"""The rule about memory: the machine runs out of it, will if the run goes on to grow, or that has ended the run."""

from __future__ import annotations

import re
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
from tuimon.diagnosis.threshold import SMALL, Threshold
from tuimon.node_ids import own_id
from tuimon.records import Exit, MachineMemory, Place
from tuimon.session.machines import ProcessGrowth
from tuimon.text import size_text

#: The exit code of a shell, or of a container, whose program was killed.
_KILLED_CODE = 137
_WORKER = re.compile(r"DataLoader worker \(pid(?:\(s\))? \d+\) (?:is killed by signal: Killed|exited unexpectedly)")
#: Launchers report so that a process of theirs was killed, and ranks that another one is gone.
_CHILD = re.compile(r"ChildFailedError|SIGKILL|exitcode: -9|[Cc]onnection (?:closed|reset) by peer|DistBackendError")
_ON_GPU = re.compile(r"(?:\w+\.)*OutOfMemoryError\b|RuntimeError: (?:CUDA|HIP) out of memory")
_ON_HOST = re.compile(r"(?:\w+\.)*_?(?:Array)?MemoryError\b|RuntimeError: .*DefaultCPUAllocator: can't allocate memory")
#: The size that torch or numpy asked for.
_WANTED = re.compile(r"(?:Tried to allocate|Unable to allocate) (\d+\.?\d*) ?([KMGT]iB)")
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
        return _out_of_memory(evidence)
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


def _out_of_memory(evidence: Evidence) -> Finding | None:
    """The last line of the output, or the kernel's count of kills, shows that memory ended the run."""
    end = evidence.run.end
    if end is None or not end.has_failed:
        return None
    line = end.last_line or ""
    machines = evidence.run.machines
    killed = next((each for each in machines if each.memory is not None and each.memory.oom_kills), None)
    victim = _victim(end, line)
    if killed is not None and victim is not None:
        headline = f"{killed.place}the kernel killed {victim} for memory: {_held(evidence, killed)}"
        return _ended(evidence, killed, headline, on_gpu=False)
    if on_gpu := _ON_GPU.match(line) is not None:
        return _ended(evidence, evidence.run.here, _refused("a GPU", line), on_gpu=on_gpu)
    if _ON_HOST.match(line):
        return _ended(evidence, evidence.run.here, _refused("the machine", line), on_gpu=False)
    return None


def _victim(end: Exit, line: str) -> str | None:
    """The process that the kernel killed; None if the run ended by something else."""
    if end.signal == "SIGKILL" or end.exit_code == _KILLED_CODE:
        return "the training"
    if _WORKER.search(line):
        return "a DataLoader worker"
    return "a process of the run" if not line or _CHILD.search(line) else None


def _held(evidence: Evidence, machine: Machine) -> str:
    """``the container's 512 MiB are full``, and which process held most at a reading."""
    memory = machine.memory
    limit_bytes = memory.limit_bytes if memory is not None else None
    total_bytes = memory.total_bytes if memory is not None else None
    store, size = ("container", limit_bytes) if limit_bytes is not None else ("machine", total_bytes)
    text = f"the {store}'s {size_text(size)} are full" if size is not None else f"the {store} is full"
    most = machine.most_held
    return text if most is None else f"{text}, {who(evidence.run, most.pid)} held {size_text(most.held_bytes)}"


def _refused(where: str, line: str) -> str:
    wanted, error = _WANTED.search(line), line.partition(":")[0]
    size = f" for {wanted[1]} {wanted[2]}" if wanted is not None else ""
    return f"the training ended as {where} had no room{size}: {error.rpartition('.')[2]}"


def _raised_at(evidence: Evidence) -> tuple[Place, ...]:
    place = evidence.run.end.raised_at if evidence.run.end is not None else None
    return () if place is None else (place,)


def _ended(evidence: Evidence, machine: Machine, headline: str, *, on_gpu: bool) -> Finding:
    memory, most = machine.memory, machine.most_held
    keeping = machine.keeping if on_gpu else kept_in(machine, most.pid) if most is not None else ()
    torch = max(evidence.torch_memory, key=lambda row: row.peak_bytes or 0, default=None) if on_gpu else None
    smaller = (
        "make batches smaller, and accumulate gradients over several; or recompute activations"
        " (torch.utils.checkpoint); tuimon run --memory lists what is allocated at such an error"
    )
    return Finding(
        severity="critical",
        cause="out_of_memory",
        headline=headline,
        fixes=let_go(keeping) or (Fix(smaller if on_gpu else less_memory(evidence, most.pid if most else None)),),
        where=places_of(keeping) or _raised_at(evidence),
        evidence={
            "exit_code": evidence.run.end.exit_code if evidence.run.end is not None else None,
            "oom_kills": memory.oom_kills if memory is not None else None,
            "limit_bytes": memory.limit_bytes if memory is not None else None,
            "total_bytes": memory.total_bytes if memory is not None else None,
            "most_held_pid": own_id(most.pid) if most is not None else None,
            "most_held_bytes": most.held_bytes if most is not None else None,
            **({"torch_peak_bytes": torch.peak_bytes, "reserved_bytes": torch.reserved_bytes} if torch else {}),
            **machine.facts,
        },
    )


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
