"""Memory that grows with the steps: of processes, and of torch's tensors on a GPU."""

from __future__ import annotations

from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.machines import Keeping, Machine
from tuimon.diagnosis.evidence.run import RunEvidence
from tuimon.diagnosis.finding import Finding, Fix, Severity
from tuimon.diagnosis.threshold import Threshold
from tuimon.diagnosis.words import at
from tuimon.node_ids import own_id
from tuimon.records import Place
from tuimon.session.rows import Growth, TorchMemoryRow
from tuimon.text import size_text

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


def host_growth(evidence: Evidence, machine: Machine, left_bytes: int) -> Finding | None:
    """A process has grown ever since the first steps; how grave that is depends on when memory is full."""
    growing = [each for each in machine.steadily_growing if each.growth.risen_bytes >= LEAST_RISE_BYTES]
    if not growing:
        return None
    per_s = sum(each.growth.bytes_per_s for each in growing)
    full_s = left_bytes / per_s
    if full_s >= LATEST_S:
        return None
    first = growing[0]
    steps_per_s = machine.steps_per_s(first.pid)
    each_step = first.growth.bytes_per_s / steps_per_s if steps_per_s else None
    more = _more(each_step, first.growth.bytes_per_s)
    keeping = kept_in(machine, first.pid)
    is_known = any(each.is_sure for each in keeping)
    others = f", {len(growing) - 1} other processes grow too" if len(growing) > 1 else ""
    return Finding(
        severity=_severity(full_s, may_be_cache=not is_known and _may_be_cache(evidence, machine, first.pid)),
        cause="growing",
        headline=f"{machine.place}{who(evidence.run, first.pid)} keeps {more}{others}: full in {minutes(full_s)}",
        fixes=let_go(keeping) or (Fix(less_memory(evidence, first.pid)),),
        where=places_of(keeping),
        evidence={
            "growing_pid": own_id(first.pid),
            "growth_bytes_per_s": per_s,
            "growth_per_step_bytes": each_step,
            "held_bytes": first.growth.held_bytes,
            "left_bytes": left_bytes,
            "full_in_s": full_s,
            **({"host": machine.host} if machine.host is not None else {}),
        },
    )


def copied_growth(evidence: Evidence, machine: Machine, left_bytes: int) -> Finding | None:
    """Forked workers copy the pages of the data set: each look at a Python object writes its reference count."""
    loader, found = evidence.loader, machine.copying
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


def _more(each_step: float | None, per_s: float) -> str:
    return f"{size_text(each_step)} more each step" if each_step else f"{size_text(per_s)} more each second"


def _severity(full_s: float, *, may_be_cache: bool) -> Severity:
    """The severity, one degree lower for growth that may be a cache that fills."""
    if full_s < SOON_S:
        return "warning" if may_be_cache else "critical"
    return "warning" if full_s < LATER_S and not may_be_cache else "info"


def _may_be_cache(evidence: Evidence, machine: Machine, pid: int) -> bool:
    """True until a process has grown on after the first epoch, in which a data set may cache what it reads."""
    loader = evidence.loader
    if loader is None or loader.facts.kind != "map":
        return False
    return loader.first_end_s is None or machine.steady_growth(pid, loader.first_end_s) is None


def kept_in(machine: Machine, pid: int) -> tuple[Keeping, ...]:
    """The lines that keep in a process: of the training's loop, or of what its workers run."""
    if machine.steps_per_s(pid):
        return machine.keeping
    return tuple(each for each in machine.keeping if each.kept == "object") if pid in machine.workers else ()


def places_of(keeping: tuple[Keeping, ...]) -> tuple[Place, ...]:
    """All these lines."""
    return tuple(place for each in keeping for place in each.places)


def let_go(keeping: tuple[Keeping, ...]) -> tuple[Fix, ...]:
    """How these lines could let go; none without any."""
    return tuple(Fix(_LET_GO[each.kept].format(at(each.places[0]))) for each in keeping)


def gpu_growth(evidence: Evidence) -> Finding | None:
    """Torch's tensors on a GPU have grown ever since the first steps; of several the one that is full first."""
    rows = (row for row in evidence.torch_memory if row.growth is not None)
    found = (_on_gpu(evidence, row, row.growth) for row in rows if row.growth is not None)
    return min((each for each in found if each is not None), key=_full_in_s, default=None)


def _full_in_s(finding: Finding) -> float:
    return float(finding.evidence["full_in_s"] or 0.0)


def _on_gpu(evidence: Evidence, row: TorchMemoryRow, growth: Growth) -> Finding | None:
    gpus = [gpu.latest for gpu in evidence.gpus if row.uuid is None or gpu.latest.uuid == row.uuid]
    gpu = gpus[0] if len(gpus) == 1 else None
    if gpu is None or gpu.memory_total_bytes is None or growth.risen_bytes < LEAST_RISE_BYTES:
        return None
    unused = max(0, (row.reserved_bytes or 0) - growth.held_bytes)  # torch keeps it for new tensors
    left_bytes = max(0, gpu.memory_total_bytes - (gpu.memory_used_bytes or row.reserved_bytes or 0)) + unused
    full_s = left_bytes / growth.bytes_per_s
    if full_s >= LATEST_S:
        return None
    machine = evidence.run.here
    steps_per_s = machine.steps_per_s(evidence.pid)
    each_step = growth.bytes_per_s / steps_per_s if steps_per_s else None
    more, keeping = _more(each_step, growth.bytes_per_s), machine.keeping
    return Finding(
        severity=_severity(full_s, may_be_cache=False),
        cause="growing",
        headline=f"the training keeps {more} on GPU {gpu.index}: full in {minutes(full_s)}",
        fixes=let_go(keeping) or (Fix(_LOOK),),
        where=places_of(keeping),
        evidence={
            "device": row.device,
            "growth_bytes_per_s": growth.bytes_per_s,
            "growth_per_step_bytes": each_step,
            "held_bytes": growth.held_bytes,
            "left_bytes": left_bytes,
            "full_in_s": full_s,
        },
    )


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
    if evidence.child_workers:
        return "use fewer workers or a smaller prefetch_factor, or close other programs"
    return "load less at once (memory-map the data), or close other programs"


def minutes(length_s: float) -> str:
    """``a minute``, ``12 minutes``, ``5 hours``."""
    if length_s < 90:
        return "a minute"
    return f"{length_s / 60:.0f} minutes" if length_s < 2 * LATER_S else f"{length_s / 3600:.0f} hours"
