"""The rule about memory: it runs out, will if the run goes on to grow, or that has ended the run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.run import RECENT_S, Keeping, Machine, RunEvidence
from tuimon.diagnosis.finding import SEVERITY, Finding, Fix, Severity
from tuimon.diagnosis.rule import MACHINE_MEMORY, Rule
from tuimon.diagnosis.threshold import SMALL, Threshold
from tuimon.diagnosis.words import at
from tuimon.node_ids import own_id
from tuimon.records import Exit, MachineMemory, Place
from tuimon.session.gpu_time import TorchMemoryRow
from tuimon.session.machines import Growth
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
_LOOK = (
    "look for what grows with the steps: lists of losses or outputs (detach, .item()), caches, logs;"
    " tuimon run --memory lists the lines that keep tensors"
)
#: How a line can let go of what it keeps.
_LET_GO: dict[str, str] = {
    "graph": "keep numbers, not tensors with their graph, in {}: .item(), or .detach()",
    "figure": "close each figure that {} opens: plt.close(figure)",
    "hook": "register the hook in {} once, before the loop, or remove it after use: handle.remove()",
    "tensor": "let go of the tensors that {} makes, or keep numbers of them: .item()",
    "object": "bound what {} keeps, as deque(maxlen=N) does, or keep less of it",
}


class _Store(NamedTuple):
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
    on_gpus = (_gpu_growth(evidence, row, row.growth) for row in evidence.gpu.memory if row.growth is not None)
    on_gpu = min((each for each in on_gpus if each is not None), key=_full_in_s, default=None)
    found += [on_gpu] if on_gpu is not None else []
    return min(found, key=lambda finding: SEVERITY[finding.severity], default=None)


def _on(evidence: Evidence, machine: Machine) -> Finding | None:
    memory = machine.memory
    if memory is None or evidence.run.now_s - memory.t > RECENT_S:
        return None
    stores = []
    if memory.total_bytes and memory.available_bytes is not None:
        stores.append(_Store("the machine", memory.total_bytes, memory.available_bytes))
    if memory.limit_bytes and memory.limit_used_bytes is not None:
        left = max(0, memory.limit_bytes - memory.limit_used_bytes)
        stores.append(_Store("the container", memory.limit_bytes, left))
    found = _pressure(evidence, machine, memory, min(stores, key=lambda store: store.left_share, default=None))
    if found is not None or not stores:
        return found
    left_bytes = min(store.left_bytes for store in stores)
    return _host_growth(evidence, machine, left_bytes) or _copied_growth(evidence, machine, left_bytes)


def _pressure(evidence: Evidence, machine: Machine, memory: MachineMemory, store: _Store | None) -> Finding | None:
    """Memory is nearly full, or the machine swaps."""
    swapped = [rate for rate in (memory.swap_in_bytes_per_s, memory.swap_out_bytes_per_s) if rate is not None]
    swaps = bool(swapped) and sum(swapped) >= SWAP_BYTES_PER_S
    if store is not None and store.left_share >= SMALL:
        store = None
    if not swaps and store is None:
        return None
    culprit = next(iter(machine.growing), None)
    per_s = culprit.growth.bytes_per_s if culprit is not None else None
    full_s = store.left_bytes / per_s if store is not None and per_s is not None else None
    is_grave = store is not None and ((full_s is not None and full_s < SOON_S) or store.left_share < SMALL / 2)
    parts = []
    if store is not None:
        parts.append(f"{store.name} has {size_text(store.left_bytes)} of {size_text(store.total_bytes)} of memory left")
    if swaps:
        parts.append(f"the machine swaps {size_text(sum(swapped))}/s")
    headline = machine.place + " and ".join(parts)
    if culprit is not None:
        headline += f": {who(evidence.run, culprit.pid)} grows by {size_text(culprit.growth.bytes_per_s * 60)} a minute"
        headline += f", full in {minutes(full_s)}" if full_s is not None and full_s < LATER_S else ""
    keeping = kept_in(machine, culprit.pid) if culprit is not None else ()
    return Finding(
        severity="critical" if is_grave else "warning",
        headline=headline,
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
            **machine.facts,
        },
    )


# -- memory that grows with the steps


class _Filling(NamedTuple):
    """Memory that a process has held more of ever since the first steps."""

    pid: int
    growth: Growth
    per_s: float  # of all that fill it
    left_bytes: int

    @property
    def full_s(self) -> float:
        return self.left_bytes / self.per_s

    def finding(
        self, machine: Machine, text: str, advice: str, keeping: Sequence[Keeping], may_be_cache: bool, **first: int
    ) -> Finding | None:
        """How grave it is depends on when memory is full; ``text``: of the headline, around what is kept."""
        if self.full_s >= LATEST_S:
            return None
        steps_per_s = machine.steps_per_s(self.pid)
        each_step = self.growth.bytes_per_s / steps_per_s if steps_per_s else None
        more = f"{size_text(each_step or self.growth.bytes_per_s)} more each {'step' if each_step else 'second'}"
        return Finding(
            severity=_severity(self.full_s, may_be_cache=may_be_cache),
            cause="growing",
            headline=f"{text.format(more)}: full in {minutes(self.full_s)}",
            fixes=let_go(keeping) or (Fix(advice),),
            where=places_of(keeping),
            evidence={
                **first,
                "growth_bytes_per_s": self.per_s,
                "growth_per_step_bytes": each_step,
                "held_bytes": self.growth.held_bytes,
                "left_bytes": self.left_bytes,
                "full_in_s": self.full_s,
                **machine.facts,
            },
        )


def _host_growth(evidence: Evidence, machine: Machine, left_bytes: int) -> Finding | None:
    """A process has grown ever since the first steps."""
    growing = [each for each in machine.steadily_growing if each.growth.risen_bytes >= LEAST_RISE_BYTES]
    if not growing:
        return None
    pid, growth, _ = growing[0]
    keeping = kept_in(machine, pid)
    others = f", {len(growing) - 1} other processes grow too" if len(growing) > 1 else ""
    may_be_cache = not any(each.is_sure for each in keeping) and _may_be_cache(evidence, machine, pid)
    filling = _Filling(pid, growth, sum(each.growth.bytes_per_s for each in growing), left_bytes)
    text = f"{machine.place}{who(evidence.run, pid)} keeps {{}}{others}"
    return filling.finding(machine, text, less_memory(evidence, pid), keeping, may_be_cache, growing_pid=own_id(pid))


def _gpu_growth(evidence: Evidence, row: TorchMemoryRow, growth: Growth) -> Finding | None:
    """Torch's tensors on a GPU have grown ever since the first steps."""
    gpus = [gpu.latest for gpu in evidence.gpu.rows if row.uuid is None or gpu.latest.uuid == row.uuid]
    gpu = gpus[0] if len(gpus) == 1 else None
    if gpu is None or gpu.memory_total_bytes is None or growth.risen_bytes < LEAST_RISE_BYTES:
        return None
    unused = max(0, (row.reserved_bytes or 0) - growth.held_bytes)  # torch keeps it for new tensors
    left_bytes = max(0, gpu.memory_total_bytes - (gpu.memory_used_bytes or row.reserved_bytes or 0)) + unused
    machine = evidence.run.here
    filling = _Filling(evidence.pid, growth, growth.bytes_per_s, left_bytes)
    text = f"the training keeps {{}} on GPU {gpu.index}"
    return filling.finding(machine, text, _LOOK, machine.keeping, may_be_cache=False, device=row.device)


def _full_in_s(finding: Finding) -> float:
    return float(finding.evidence["full_in_s"] or 0.0)


def _copied_growth(evidence: Evidence, machine: Machine, left_bytes: int) -> Finding | None:
    """Forked workers copy the pages of the data set: each look at a Python object writes its reference count."""
    loader, found = evidence.data.loader, machine.copying
    if loader is None or loader.facts.context != "fork" or found is None:
        return None
    if found.growth.risen_bytes < LEAST_RISE_BYTES:
        return None
    number, dataset = len(machine.workers), loader.facts.dataset
    per_s, most_bytes = number * found.growth.bytes_per_s, number * found.shared_bytes
    full_s = left_bytes / per_s if most_bytes > left_bytes else None
    end = f"full in {minutes(full_s)}" if full_s is not None else f"up to {size_text(most_bytes)} more"
    return Finding(
        severity="info" if full_s is None else _severity(full_s, may_be_cache=False),
        cause="copied",
        headline=f"{machine.place}{number} forked workers copy {size_text(60 * per_s)} of {dataset} a minute: {end}",
        fixes=(
            Fix(
                f"hold the data of {dataset} in one NumPy array or tensor, not in lists or dicts of Python objects:"
                " each look at an object writes its reference count, and copies its page"
            ),
        ),
        evidence={
            "growing_pid": own_id(found.pid),
            "workers": number,
            "growth_bytes_per_s": per_s,
            "held_bytes": found.growth.held_bytes,
            "shared_bytes": found.shared_bytes,
            "left_bytes": left_bytes,
            "full_in_s": full_s,
            **machine.facts,
        },
    )


def _severity(full_s: float, *, may_be_cache: bool) -> Severity:
    """The severity, one degree lower for growth that may be a cache that fills."""
    if full_s < SOON_S:
        return "warning" if may_be_cache else "critical"
    return "warning" if full_s < LATER_S and not may_be_cache else "info"


def _may_be_cache(evidence: Evidence, machine: Machine, pid: int) -> bool:
    """True until a process has grown on after the first epoch, in which a data set may cache what it reads."""
    loader = evidence.data.loader
    if loader is None or loader.facts.kind != "map":
        return False
    return loader.first_end_s is None or machine.steady_growth(pid, loader.first_end_s) is None


def kept_in(machine: Machine, pid: int) -> tuple[Keeping, ...]:
    """The lines that keep in a process: of the training's loop, or of what its workers run."""
    if machine.steps_per_s(pid):
        return machine.keeping
    return tuple(each for each in machine.keeping if each.kept == "object") if pid in machine.workers else ()


def places_of(keeping: Sequence[Keeping]) -> tuple[Place, ...]:
    """All these lines."""
    return tuple(place for each in keeping for place in each.places)


def let_go(keeping: Sequence[Keeping]) -> tuple[Fix, ...]:
    """How these lines could let go; none without any."""
    return tuple(Fix(_LET_GO[each.kept].format(at(each.places[0]))) for each in keeping)


def who(run: RunEvidence, pid: int) -> str:
    """``the training (4711)``."""
    process = run.processes.get(pid)
    role = {"trainer": "the training", "worker": "a DataLoader worker"}.get(process.role if process else "", "process")
    return f"{role} ({own_id(pid)})"


def less_memory(evidence: Evidence, pid: int | None) -> str:
    """Advice on a process that grows, or holds most, or on memory that is full."""
    process = evidence.run.processes.get(pid) if pid is not None else None
    if process is not None and process.role == "worker":
        return (
            "keep the data set's objects in one array or tensor, or use fewer workers or a smaller prefetch_factor:"
            " each worker copies the Python objects that it touches"
        )
    if process is not None:
        return _LOOK
    if evidence.data.worker_processes:
        return "use fewer workers or a smaller prefetch_factor, or close other programs"
    return "load less at once (memory-map the data), or close other programs"


def minutes(length_s: float) -> str:
    """``a minute``, ``12 minutes``, ``5 hours``."""
    if length_s < 90:
        return "a minute"
    return f"{length_s / 60:.0f} minutes" if length_s < 2 * LATER_S else f"{length_s / 3600:.0f} hours"


# -- memory that has ended the run


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


def _ended(evidence: Evidence, machine: Machine, headline: str, *, on_gpu: bool) -> Finding:
    memory, most, end = machine.memory, machine.most_held, evidence.run.end
    raised_at = end.raised_at if end is not None else None
    keeping = machine.keeping if on_gpu else kept_in(machine, most.pid) if most is not None else ()
    torch = max(evidence.gpu.memory, key=lambda row: row.peak_bytes or 0, default=None) if on_gpu else None
    smaller = (
        "make batches smaller, and accumulate gradients over several; or recompute activations"
        " (torch.utils.checkpoint); tuimon run --memory lists what is allocated at such an error"
    )
    return Finding(
        severity="critical",
        cause="out_of_memory",
        headline=headline,
        fixes=let_go(keeping) or (Fix(smaller if on_gpu else less_memory(evidence, most.pid if most else None)),),
        where=places_of(keeping) or ((raised_at,) if raised_at is not None else ()),
        evidence={
            "exit_code": end.exit_code if end is not None else None,
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
    needs=(MACHINE_MEMORY,),
    thresholds=(SMALL, SWAP_BYTES_PER_S, SOON_S, LATER_S, LATEST_S, LEAST_RISE_BYTES),
    causes=("growing", "copied", "out_of_memory"),
    of_moment=True,
    of_end=True,
    is_harm=True,
    before_steps=True,
)
