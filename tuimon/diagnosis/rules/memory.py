"""The rule about memory: the machine runs out of it, or will if the run goes on to grow."""

from __future__ import annotations

from msgspec import Struct

from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.machines import Machine
from tuimon.diagnosis.evidence.run import RunEvidence
from tuimon.diagnosis.finding import Finding, Severity
from tuimon.diagnosis.needs import MACHINE_MEMORY
from tuimon.diagnosis.rule import Rule
from tuimon.diagnosis.threshold import Threshold
from tuimon.diagnosis.words import at
from tuimon.node_ids import own_id
from tuimon.records import MachineMemory, Place
from tuimon.session.processes.nodes import ProcessGrowth

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
LATEST_S = Threshold(
    86_400.0,
    "seconds until memory is full, below which steady growth is mentioned at all",
    "our choice: a day is longer than most runs",
)
LEAST_RISE_BYTES = Threshold(
    float(16 << 20),
    "bytes by which a process must have grown since the first steps",
    "our choice: more than what allocators keep for later, and 1 MiB/s seen within the first half minute",
)
FRESH_S = Threshold(
    30.0, "seconds after which the machine's figures are too old", "our choice: the window of all other figures"
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
    if memory is None or run.now_s - memory.t > FRESH_S:
        return None
    return _pressure(evidence, machine, memory) or _steady_growth(evidence, machine, memory)


def _pressure(evidence: Evidence, machine: Machine, memory: MachineMemory) -> Finding | None:
    """Memory is nearly full, or the machine swaps."""
    run, store = evidence.run, _tightest(memory)
    swapped = [rate for rate in (memory.swap_in_bytes_per_s, memory.swap_out_bytes_per_s) if rate is not None]
    swaps = bool(swapped) and sum(swapped) >= SWAP_BYTES_PER_S
    if not swaps and (store is None or store.left_share >= GROWING_ROOM_SHARE):
        return None
    growing = machine.growing
    if not swaps and (store is None or not _is_short(store, growing)):
        return None
    culprit = growing[0] if growing else None
    per_s = culprit.growth.bytes_per_s if culprit is not None else None
    full_s = store.left_bytes / per_s if store is not None and per_s is not None else None
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
            "growth_bytes_per_s": per_s,
            "full_in_s": full_s,
            **({"host": machine.host} if machine.host is not None else {}),
        },
    )


def _steady_growth(evidence: Evidence, machine: Machine, memory: MachineMemory) -> Finding | None:
    """A process has grown ever since the first steps; how grave that is depends on when memory is full."""
    growing = [each for each in machine.steadily_growing if each.growth.risen_bytes >= LEAST_RISE_BYTES]
    store = _tightest(memory)
    if not growing or store is None:
        return None
    per_s = sum(each.growth.bytes_per_s for each in growing)
    full_s = store.left_bytes / per_s
    if full_s >= LATEST_S:
        return None
    first = growing[0]
    steps_per_s = machine.steps_per_s(first.pid)
    each_step = first.growth.bytes_per_s / steps_per_s if steps_per_s else None
    more = f"{_size(each_step)} more each step" if each_step else f"{_size(first.growth.bytes_per_s)} more each second"
    keeping = machine.keeping if steps_per_s else ()
    others = f", {len(growing) - 1} other processes grow too" if len(growing) > 1 else ""
    return Finding(
        rule="memory_pressure",
        severity=_severity(full_s, may_be_cache=not keeping and _may_be_cache(evidence, machine, first.pid)),
        cause="growing",
        headline=f"{machine.place}{_who(evidence.run, first.pid)} keeps {more}{others}: full in {_minutes(full_s)}",
        action=_let_go(keeping) or _less_memory(evidence, first),
        where=keeping,
        evidence={
            "growing_pid": own_id(first.pid),
            "growth_bytes_per_s": per_s,
            "growth_per_step_bytes": each_step,
            "held_bytes": first.growth.held_bytes,
            "left_bytes": store.left_bytes,
            "full_in_s": full_s,
            **({"host": machine.host} if machine.host is not None else {}),
        },
    )


def _severity(full_s: float, *, may_be_cache: bool) -> Severity:
    """What may be a cache that fills is one degree less grave."""
    if full_s < SOON_S:
        return "warning" if may_be_cache else "critical"
    return "warning" if full_s < LATER_S and not may_be_cache else "info"


def _may_be_cache(evidence: Evidence, machine: Machine, pid: int) -> bool:
    """True until a process has grown on after the first epoch, in which a data set may cache what it reads."""
    loader = evidence.loader
    if loader is None or loader.facts.kind != "map":
        return False
    return loader.first_end_s is None or machine.steady_growth(pid, loader.first_end_s) is None


def _let_go(keeping: tuple[Place, ...]) -> str:
    """How the lines that keep could let go; empty without any."""
    if not keeping:
        return ""
    first = keeping[0]
    if "plt." in first.source:
        return f"close each figure that {at(first)} opens: plt.close(figure)"
    return f"keep numbers, not tensors with their graph, in {at(first)}: .item(), or .detach()"


def _tightest(memory: MachineMemory) -> _Store | None:
    """The memory with the smallest share left; None without figures."""
    stores = []
    if memory.total_bytes and memory.available_bytes is not None:
        stores.append(_Store("the machine", memory.total_bytes, memory.available_bytes))
    if memory.limit_bytes and memory.limit_used_bytes is not None:
        left = max(0, memory.limit_bytes - memory.limit_used_bytes)
        stores.append(_Store("the container", memory.limit_bytes, left))
    return min(stores, key=lambda store: store.left_share, default=None)


def _is_short(store: _Store, growing: tuple[ProcessGrowth, ...]) -> bool:
    limit = GROWING_ROOM_SHARE if growing and store.name == "the container" else ROOM_SHARE
    return store.left_share < limit


def _headline(
    run: RunEvidence, store: _Store | None, swapped: float | None, culprit: ProcessGrowth | None, full_s: float | None
) -> str:
    parts = []
    if store is not None and (swapped is None or store.left_share < GROWING_ROOM_SHARE):
        parts.append(f"{store.name} has {_size(store.left_bytes)} of {_size(store.total_bytes)} of memory left")
    if swapped is not None:
        parts.append(f"the machine swaps {_size(swapped)}/s")
    text = " and ".join(parts)
    if culprit is None:
        return text
    growth = f"{_who(run, culprit.pid)} grows by {_size(culprit.growth.bytes_per_s * 60)} a minute"
    return f"{text}: {growth}{f', full in {_minutes(full_s)}' if full_s is not None and full_s < LATER_S else ''}"


def _who(run: RunEvidence, pid: int) -> str:
    process = run.processes.get(pid)
    role = {"trainer": "the training", "worker": "a DataLoader worker"}.get(process.role if process else "", "process")
    return f"{role} ({own_id(pid)})"


def _less_memory(evidence: Evidence, culprit: ProcessGrowth | None) -> str:
    process = evidence.run.processes.get(culprit.pid) if culprit is not None else None
    if process is not None and process.role == "worker":
        return (
            "keep the data set's objects in one array or tensor, or use fewer workers or a smaller prefetch_factor:"
            " each worker copies the Python objects that it touches"
        )
    if process is not None:
        return (
            "look for what grows with the steps: lists of losses or outputs (detach, .item()), caches, logs;"
            " tuimon run --memory lists the lines that keep tensors"
        )
    if evidence.child_workers:
        return "use fewer workers or a smaller prefetch_factor, or close other programs"
    return "load less at once (memory-map the data), or close other programs"


def _size(value_bytes: float) -> str:
    """Bytes in the units of the GPU pane."""
    mib = value_bytes / (1 << 20)
    if mib >= 1000.0:
        return f"{mib / 1024:.3g} GiB"
    return f"{mib:.0f} MiB" if mib >= 10 else f"{mib:.2g} MiB"


def _minutes(length_s: float) -> str:
    if length_s < 90:
        return "a minute"
    return f"{length_s / 60:.0f} minutes" if length_s < 2 * LATER_S else f"{length_s / 3600:.0f} hours"


RULES = (
    Rule(
        name="memory_pressure",
        title="Memory is nearly full",
        order=140,
        judge=memory_pressure,
        explanation=(
            "Memory is nearly full, or the machine swaps, or a process has grown ever since the first steps. It rests"
            " on the memory that the kernel reports as available, swap counters and the limits of the run's control"
            " groups; the memory of the run's processes over two minutes, without files and shared memory, shows who"
            " grows."
        ),
        needs=(MACHINE_MEMORY,),
        thresholds=(
            *(ROOM_SHARE, GROWING_ROOM_SHARE, SWAP_BYTES_PER_S, SOON_S, LATER_S, LATEST_S, LEAST_RISE_BYTES, FRESH_S),
        ),
        causes=("growing",),
        of_moment=True,
        is_harm=True,
        before_steps=True,
    ),
)
