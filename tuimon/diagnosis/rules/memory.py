"""Rules about resources that run out, above all memory: nearly full, filling up, or the cause of the run's end."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.run import Filling, Keeping, Machine, Resource, Store
from tuimon.diagnosis.finding import SEVERITY_ORDER, Figure, Finding, Severity, new_finding
from tuimon.node_ids import own_id
from tuimon.records import Exit, Place
from tuimon.session.gpu_time import TorchMemoryRow
from tuimon.text import at, size_text
from tuimon.threshold import SMALL, Threshold

_WORKER = re.compile(r"DataLoader worker \(pid(?:\(s\))? \d+\) (?:is killed by signal: Killed|exited unexpectedly)")
#: How launchers report that a process of theirs was killed, and ranks that another rank is gone.
_CHILD = re.compile(r"ChildFailedError|SIGKILL|exitcode: -9|[Cc]onnection (?:closed|reset) by peer|DistBackendError")
#: The size that torch or NumPy asked for.
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
    "seconds until memory is full, below which that is mentioned",
    "our choice: growth over two minutes predicts no more than the next hour",
)
LATEST_S = Threshold(
    86_400.0,
    "seconds until memory is full, below which steady growth is mentioned at all",
    "our choice: a day is longer than most runs",
)
MIN_RISE = Threshold(
    16.0,
    "MiB, open files or threads by which a process must have grown since the first steps",
    "our choice: more than allocators keep in reserve, and loggers and pools open at their first use; 1 MiB/s was"
    " seen within the first half minute",
)
_MIB = 1 << 20
_LOOK = (
    "look for what grows with every step: lists of losses or outputs (detach(), .item()), caches, logs,"
    " itertools.cycle(), which keeps all batches;"
    " tuimon run --memory lists the lines that keep tensors"
)
#: The advice on a line that keeps something.
_LET_GO: dict[str, str] = {
    "graph": "keep numbers, not tensors with their graph, in {}: .item(), or .detach()",
    "figure": "close each figure that {} opens: plt.close(figure)",
    "hook": "register the hook in {} once, before the loop, or remove it after use: handle.remove()",
    "tensor": "release the tensors that {} makes, or keep only numbers: .item()",
    "object": "limit what {} keeps, as deque(maxlen=N) does, or keep less of it",
}


class _Kind(NamedTuple):
    """The words for one resource, and the way in which a program ends when it runs out."""

    error: str  # a pattern for the line of the exception
    ended: str  # "the training ended because ..."
    fix: str
    unit: str = ""  # "open file"; "": bytes
    left: str = " left"  # the words after "has 1 of 2"
    cause: str = "exhausted"  # of the run's end

    def size(self, number: float) -> str:
        """``3 GiB``, ``2``."""
        return f"{number:,.0f}" if self.unit else size_text(number)

    def amount(self, number: float, more: str = "") -> str:
        """``3 GiB``, ``2 open files``; ``3 GiB more``, ``2 more open files``."""
        if not self.unit:
            return f"{self.size(number)}{more}"
        return f"{self.size(number)}{more} {self.unit if round(number) == 1 else f'{self.unit}s'}"

    @property
    def suffix(self) -> str:
        """The ending of the names of its figures."""
        return "" if self.unit else "_bytes"

    def full(self, store: Store, full_s: float) -> str:
        """``full in 5 hours``, ``at the limit of 1,024 in 5 hours``."""
        return f"{f'at the limit of {self.size(store.total)}' if self.unit else 'full'} in {_minutes(full_s)}"


_SMALLER = (
    "make batches smaller, and accumulate gradients over several; or recompute activations (torch.utils.checkpoint);"
    " tuimon run --memory lists what is allocated at such an error"
)
_LESS = "load less at once (memory-map the data)"
_IN_WORKERS = (
    "keep the dataset's objects in one array or tensor, or use fewer workers or a smaller prefetch_factor: each worker"
    " copies the Python objects that it touches"
)
_KINDS: dict[Resource, _Kind] = {
    "gpu": _Kind(
        r"^(?:\w+\.)*OutOfMemoryError\b|^RuntimeError: (?:CUDA|HIP) out of memory",
        "a GPU had no memory left",
        _LOOK,
        cause="out_of_memory",
    ),
    "memory": _Kind(
        r"^(?:\w+\.)*_?(?:Array)?MemoryError\b|^RuntimeError: .*DefaultCPUAllocator: can't allocate memory",
        "the machine had no memory left",
        _LOOK,
        left=" of memory left",
        cause="out_of_memory",
    ),
    "shm": _Kind(
        r"DataLoader worker \(pid.* is killed by signal: Bus error|(?:shared memory|</torch_).*No space left on device",
        "shared memory was full",
        "release the batches that workers make, or keep copies of them: .clone(); in a container, give it more:"
        " --shm-size",
    ),
    "files": _Kind(
        r"Too many open files|received 0 items of ancdata",
        "it reached its limit of open files",
        "close files after use: with open(...) as file. Each tensor kept from a worker's batch holds a file open:"
        " keep copies (.clone()), no batches (itertools.cycle() keeps all of them), or call"
        " torch.multiprocessing.set_sharing_strategy('file_system')",
        unit="open file",
        left=" open files left",
    ),
    "tasks": _Kind(
        r"can't start new thread|^BlockingIOError: .*Resource temporarily unavailable",
        "no thread or process could be started",
        "start threads and processes once, before the loop, and hand work to them: one pool, a queue",
        unit="thread",
        left=" threads and processes left",
    ),
    "disk": _Kind(
        r"No space left on device|Disk quota exceeded|PytorchStreamWriter failed writing",
        "the disk was full",
        "keep fewer checkpoints, and delete the older ones; write less, or to a disk with more room",
    ),
}
#: Resources that may well be nearly full: torch keeps the GPU memory that it has, and a disk of many TB has room left.
_MAY_BE_FULL: tuple[Resource, ...] = ("gpu", "disk")


def memory_pressure(evidence: Evidence) -> Finding | None:
    """A resource that runs out or is short, or a machine that swaps; of several machines the worst: all ranks wait."""
    if evidence.view.session.exit is not None:
        return _ended_by(evidence)
    found = [_pressure(evidence, machine) for machine in evidence.machines]
    found += [_growth(evidence, machine, each) for machine in evidence.machines for each in machine.filling]
    found += [_copied_pages(evidence, machine) for machine in evidence.machines]
    on_gpus = [(each, row.device) for row in evidence.torch_memory if (each := _on_gpu(evidence, row)) is not None]
    for each, device in sorted(on_gpus, key=lambda found: found[0].full_s):
        found.append(_growth(evidence, evidence.machine, each, device=device))
    return min(filter(None, found), key=lambda finding: SEVERITY_ORDER[finding.severity], default=None)


def _pressure(evidence: Evidence, machine: Machine) -> Finding | None:
    """A resource is nearly full, or the machine swaps."""
    memory, stores = machine.table.latest, [each for each in machine.stores if each.resource not in _MAY_BE_FULL]
    if memory is None or not stores:
        return None
    swapped = [rate for rate in (memory.swap_in_bytes_per_s, memory.swap_out_bytes_per_s) if rate is not None]
    swaps, store = sum(swapped) >= SWAP_BYTES_PER_S, min(stores, key=lambda each: each.left_share)
    is_short = store.left_share < SMALL
    if not is_short:
        store = next((each for each in stores if each.resource == "memory"), store)
        if not swaps:
            return None
    kind, filling = _KINDS[store.resource], next((each for each in machine.filling if each.store is store), None)
    pid, per_s = (filling.pid, filling.per_s) if filling is not None else (None, None)
    if store.resource == "memory" and machine.growing is not None:
        pid, per_s = machine.growing[0], machine.growing[1].per_s
    full_s = store.left / per_s if is_short and per_s else None
    is_grave = is_short and ((full_s is not None and full_s < SOON_S) or store.left_share < SMALL / 2)
    parts = []
    if is_short:
        left = f"{kind.size(store.left)} of {kind.size(store.total)}{kind.left}"
        parts.append(f"{_name(evidence, store)} has {left}")
    if swaps:
        parts.append(f"the machine swaps {size_text(sum(swapped))}/s")
    headline = machine.place + " and ".join(parts)
    if per_s:
        grows = "it" if pid is None or pid == store.pid else _process_text(evidence, pid)
        headline += f": {grows} grows by {kind.amount(60 * per_s)} a minute"
        headline += f", full in {_minutes(full_s)}" if full_s is not None and full_s < LATER_S else ""
    keeping = _keeping_lines(machine, store.resource, pid)
    return new_finding(
        headline,
        *_fixes(evidence, store.resource, pid, keeping),
        severity="critical" if is_grave else "warning",
        at=_places(keeping),
        evidence={
            f"total{kind.suffix}": store.total if is_short else None,
            f"left{kind.suffix}": store.left if is_short else None,
            "swap_bytes_per_s": sum(swapped) if swapped else None,
            "stalled_ratio": memory.stalled_ratio,
            "growing_pid": own_id(pid) if pid is not None else None,
            f"growth{kind.suffix}_per_s": per_s,
            "full_in_s": full_s,
            **machine.facts,
        },
    )


# -- resources that fill with the steps


def _growth(evidence: Evidence, machine: Machine, filling: Filling, **facts: int) -> Finding | None:
    """A resource has filled ever since the first steps; the severity depends on when it will be full."""
    (store, growth, per_s, pid, others), full_s = filling, filling.full_s
    resource, kind = store.resource, _KINDS[store.resource]
    if growth.risen < MIN_RISE * (1 if kind.unit else _MIB) or full_s >= LATEST_S:
        return None
    keeping = _keeping_lines(machine, resource, pid)
    is_known = any(each.is_sure for each in keeping)
    loader, may_be_cache = evidence.data.loader, False  # a cache stops growing after the first epoch
    if resource == "memory" and pid is not None and not is_known and loader is not None and loader.facts.kind == "map":
        first_end_s = loader.first_end_s
        may_be_cache = first_end_s is None or machine.grown(pid, since_s=first_end_s) is None
    steps_per_s = machine.steps_per_s(pid if pid is not None else evidence.pid)
    each_step = growth.per_s / steps_per_s if steps_per_s else None
    rates = {"step": steps_per_s, "second": 1.0} if resource != "disk" else {}  # the first that gives one or more
    unit = next((unit for unit, rate in rates.items() if rate and round(growth.per_s / rate)), "minute")
    more = f"{kind.amount(growth.per_s / (rates.get(unit) or 1 / 60), ' more')} each {unit}"
    keeps = f"{_process_text(evidence, pid)} keeps" if pid is not None else f"{_name(evidence, store)} holds"
    if resource == "gpu":
        keeps, more = "the training keeps", f"{more} on {store.name}"
    end = f", {others} other processes grow too" if others else ""
    place = machine.threads_at(pid) if resource == "tasks" and pid is not None else None
    return new_finding(
        f"{machine.place}{keeps} {more}{end}: {kind.full(store, full_s)}",
        *_fixes(evidence, resource, pid, keeping),
        severity=_severity(full_s, is_doubtful=may_be_cache or not (growth.is_sure or is_known)),
        cause="growing",
        at=_places(keeping) or place,
        evidence={
            "resource": resource,
            "growing_pid": own_id(pid) if pid is not None else None,
            f"growth{kind.suffix}_per_s": per_s,
            f"growth_per_step{kind.suffix}": each_step,
            f"held{kind.suffix}": growth.held,
            f"left{kind.suffix}": store.left,
            "full_in_s": full_s,
            **facts,
            **machine.facts,
        },
    )


def _on_gpu(evidence: Evidence, row: TorchMemoryRow) -> Filling | None:
    """Torch's tensors on a GPU that have grown ever since the first steps."""
    gpus = [gpu.latest for gpu in evidence.gpu.rows if row.uuid is None or gpu.latest.uuid == row.uuid]
    gpu = gpus[0] if len(gpus) == 1 else None
    if row.growth is None or gpu is None or gpu.memory_total_bytes is None:
        return None
    unused = max(0, (row.reserved_bytes or 0) - row.growth.held)  # torch keeps it for new tensors
    left_bytes = max(0, gpu.memory_total_bytes - (gpu.memory_used_bytes or row.reserved_bytes or 0)) + unused
    store = Store("gpu", gpu.memory_total_bytes, left_bytes, f"GPU {gpu.index}")
    return Filling(store, row.growth, row.growth.per_s, evidence.pid)


def _copied_pages(evidence: Evidence, machine: Machine) -> Finding | None:
    """Forked workers copy the pages of the dataset: each access to a Python object writes its reference count."""
    loader, left = evidence.data.loader, [each.left for each in machine.stores if each.resource == "memory"]
    if loader is None or loader.facts.context != "fork" or machine.copying is None or not left:
        return None
    pid, growth, shared_bytes = machine.copying
    if growth.risen < MIN_RISE * _MIB:
        return None
    number, dataset = len(machine.workers), loader.facts.dataset
    per_s, most_bytes = number * growth.per_s, number * shared_bytes
    full_s = min(left) / per_s if most_bytes > min(left) else None
    end = f"full in {_minutes(full_s)}" if full_s is not None else f"up to {size_text(most_bytes)} more"
    return new_finding(
        f"{machine.place}{number} forked workers copy {size_text(60 * per_s)} of {dataset} a minute: {end}",
        f"hold the data of {dataset} in one NumPy array or tensor, not in lists or dicts of Python objects:"
        " each access to an object writes its reference count, which copies its page",
        severity="info" if full_s is None else _severity(full_s, is_doubtful=False),
        cause="copied",
        evidence={
            "growing_pid": own_id(pid),
            "workers": number,
            "growth_bytes_per_s": per_s,
            "held_bytes": growth.held,
            "shared_bytes": shared_bytes,
            "left_bytes": min(left),
            "full_in_s": full_s,
            **machine.facts,
        },
    )


def _severity(full_s: float, *, is_doubtful: bool) -> Severity:
    """The severity; one degree lower if growth may end soon, as in a cache, or was seen too briefly."""
    if full_s < SOON_S:
        return "warning" if is_doubtful else "critical"
    return "warning" if full_s < LATER_S and not is_doubtful else "info"


def _keeping_lines(machine: Machine, resource: Resource, pid: int | None) -> tuple[Keeping, ...]:
    """The lines that keep objects in a process: in the training's loop, or in the code that its workers run.

    Files, and batches of workers, are kept by objects, not by graphs or figures.
    """
    if resource in ("tasks", "disk") or (resource == "memory" and pid is None):
        return ()
    runs_in_loop = resource in ("memory", "gpu") and (resource == "gpu" or bool(pid and machine.steps_per_s(pid)))
    if resource == "memory" and not runs_in_loop and pid not in machine.workers:
        return ()
    return machine.keeping if runs_in_loop else tuple(each for each in machine.keeping if each.kept == "object")


def _places(keeping: Sequence[Keeping]) -> tuple[Place, ...]:
    return tuple(place for each in keeping for place in each.places)


def _fixes(evidence: Evidence, resource: Resource, pid: int | None, keeping: Sequence[Keeping]) -> tuple[str, ...]:
    """The advice on these lines; without lines, remedies for a growing process or full memory."""
    if keeping and resource != "files":
        return tuple(_LET_GO[each.kept].format(at(each.places[0])) for each in keeping)
    text = _KINDS[resource].fix
    if resource == "memory" and pid is None:
        less = "use fewer workers or a smaller prefetch_factor" if evidence.workers else _LESS
        text = f"{less}, or close other programs"
    elif resource == "memory" and pid is not None and evidence.view.of(pid).process.role == "worker":
        text = _IN_WORKERS
    return (text,)


def _process_text(evidence: Evidence, pid: int) -> str:
    """``the training (4711)``."""
    role = {"trainer": "the training", "worker": "a DataLoader worker"}.get(
        evidence.view.of(pid).process.role, "process"
    )
    return f"{role} ({own_id(pid)})"


def _name(evidence: Evidence, store: Store) -> str:
    """``the machine``, ``/dev/shm``; for open files ``the training (4711)``."""
    return (
        _process_text(evidence, store.pid)
        if store.pid is not None
        else "the run"
        if store.resource == "tasks"
        else store.name
    )


def _minutes(length_s: float) -> str:
    """``a minute``, ``12 minutes``, ``5 hours``."""
    if length_s < 90:
        return "a minute"
    return f"{length_s / 60:.0f} minutes" if length_s < 2 * LATER_S else f"{length_s / 3600:.0f} hours"


# -- the cause of the run's end


def _ended_by(evidence: Evidence) -> Finding | None:
    """The resource that was missing at the end, by the last line of the output or the kernel's count of kills."""
    end, here = evidence.view.session.exit, evidence.machine
    if end is None or not end.has_failed:
        return None
    line, victim = end.last_line or "", None
    if end.signal == "SIGKILL" or end.exit_code == 137:  # 137: from a shell or a container whose program was killed
        victim = "the training"
    elif _WORKER.search(line):
        victim = "a DataLoader worker"
    elif not line or _CHILD.search(line):
        victim = "a process of the run"
    for machine in evidence.machines if victim is not None else ():
        memory, most = machine.table.latest, machine.table.most_held
        if memory is not None and memory.oom_kills:
            name, size = "container" if memory.limit_bytes else "machine", memory.limit_bytes or memory.total_bytes
            full = f"the {name}'s {size_text(size)} were full" if size is not None else f"the {name}'s memory was full"
            held = f": {_process_text(evidence, most[0])} held {size_text(most[1])}" if most is not None else ""
            headline = f"{machine.place}the kernel killed {victim} because {full}{held}"
            return _ended(evidence, end, machine, "memory", headline)
    stores = {each.resource: each for each in sorted(here.stores, key=lambda each: -each.left_share)}
    resource = next((name for name, kind in _KINDS.items() if re.search(kind.error, line)), None)
    if end.signal == "SIGBUS" and "shm" in stores and stores["shm"].left_share < SMALL:
        resource = "shm"  # a page of it could not be had
    if resource is None:
        return None
    kind, store, wanted, of = _KINDS[resource], stores.get(resource), _WANTED.search(line), ""
    if kind.cause != "exhausted":
        of = f" for {wanted[1]} {wanted[2]}" if wanted is not None else ""
    elif store is not None:
        of = f" ({'' if kind.unit else f'{store.name}, '}{kind.size(store.total)})"
    error = line.partition(":")[0].rpartition(".")[2] or "bus error"
    return _ended(evidence, end, here, resource, f"the training ended because {kind.ended}{of}: {error}")


def _ended(evidence: Evidence, end: Exit, machine: Machine, resource: Resource, headline: str) -> Finding:
    kind, most, memory = _KINDS[resource], machine.table.most_held, machine.table.latest
    keeping = _keeping_lines(machine, resource, pid := most[0] if most is not None and resource == "memory" else None)
    torch = max(evidence.torch_memory, key=lambda row: row.peak_bytes or 0, default=None) if resource == "gpu" else None
    figures: dict[str, Figure] = {"resource": resource, "exit_code": end.exit_code, **machine.facts}
    if kind.cause == "out_of_memory":
        for name in ("oom_kills", "limit_bytes", "total_bytes"):
            figures[name] = getattr(memory, name, None)
        figures["most_held_pid"], figures["most_held_bytes"] = (own_id(most[0]), most[1]) if most else (None, None)
    if torch is not None:
        figures |= {"torch_peak_bytes": torch.peak_bytes, "reserved_bytes": torch.reserved_bytes}
    return new_finding(
        headline,
        *(_fixes(evidence, resource, pid, keeping) if keeping or resource != "gpu" else (_SMALLER,)),
        severity="critical",
        cause=kind.cause,
        at=_places(keeping) or end.raised_at,
        evidence=figures,
    )


def allocator_retries(evidence: Evidence) -> Finding | None:
    """torch's allocator had to free its cache and try again: memory is nearly full, and each retry stops the GPU.

    Source: https://pytorch.org/docs/stable/generated/torch.cuda.memory_stats.html
    """
    rows = [memory for memory in evidence.torch_memory if memory.retries]
    if not rows:
        return None
    worst = max(rows, key=lambda memory: memory.retries or 0)
    gpu = next((g for g in evidence.gpu.rows if g.latest.uuid == worst.uuid), None)
    total = gpu.latest.memory_total_bytes if gpu is not None else None
    retries = worst.retries or 0
    return new_finding(
        f"torch's allocator freed its cache {retries} {'time' if retries == 1 else 'times'} in steady training: GPU"
        f" memory is nearly full",
        "set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, or use a smaller batch or activation"
        " checkpointing; batches of similar length fragment memory less",
        retries=retries,
        caught_ooms=worst.ooms or None,
        device=worst.device,
        allocated_bytes=worst.allocated_bytes,
        reserved_bytes=worst.reserved_bytes,
        total_bytes=total,
    )
