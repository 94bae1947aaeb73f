"""Rules about the GPUs of a run: idle ones, those far from their cores, errors, and slow clocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from tuimon.diagnosis import xids
from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.gpu import COUNTED, READINGS, is_free, pcie_peak, runs_nothing, utilisation, whole_gpus
from tuimon.diagnosis.evidence.run import Machine, used_gpus
from tuimon.diagnosis.finding import SEVERITY_ORDER, Figure, Finding, Fix, Severity, new_finding
from tuimon.interval import Interval
from tuimon.records import GpuProcess, Process
from tuimon.session.gpus import GpuRow
from tuimon.session.machines import Placement
from tuimon.session.stacks.samples import HotLine
from tuimon.text import percent, plain, plural
from tuimon.threshold import LARGE, MOST, NEARLY_ALL, SMALL, TINY, UNUSUAL, Threshold

#: For GPUs on which nothing runs: a headline and an action.
_UNUSED = (
    "nothing runs on {gpus}: the training uses {own} of {all} GPUs",
    "train on all {all} (torchrun --nproc-per-node {all}, DistributedDataParallel), or request only {own}",
)
_HELD = (
    "the training holds {gpus}, and runs no kernel there",
    "train on it too (torchrun --nproc-per-node {own}), or leave it out of CUDA_VISIBLE_DEVICES",
)
_MODEL_ON_CPU = (
    "no kernel runs on {gpus}: the model computes on the CPU",
    "move the model and each batch to the GPU: .to('cuda'); torch must be a build with CUDA",
)
#: By role: words for a process that holds memory of a GPU without using it, and the advice.
_HOLDERS = {
    "trainer": ("rank", "call torch.cuda.set_device(local_rank) first of all, and torch.load(map_location=)"),
    "worker": ("DataLoader worker", "keep the dataset's tensors on the CPU, and move each batch in the training loop"),
}


def idle_gpu(evidence: Evidence) -> Finding | None:
    """A GPU of the run has run no kernel since the steps began, or is held by a process that trains elsewhere."""
    gpus = whole_gpus(evidence.view.gpus())
    own = [row for row in gpus if row.used_by_run]
    if not own or not evidence.gpu.has_stepped_for_long or evidence.gpu.is_contradicted:
        return None
    still = [row for row in own if runs_nothing(row) and all(each.pid in row.run_pids for each in row.latest.processes)]
    if len(still) == len(own):
        return _idle("model_on_cpu", _MODEL_ON_CPU, still, own, evidence.hottest_in("forward"))
    if still:
        return _idle("held", _HELD, still, own)
    # GPUs that CUDA_VISIBLE_DEVICES names; without that variable, the machine's GPUs of the models in use
    models = {row.latest.name for row in own}
    could = [row for row in gpus if row.latest.chosen] or [row for row in gpus if row.latest.name in models]
    free = [row for row in could if is_free(row) and runs_nothing(row)]
    return _idle("unused", _UNUSED, free, own) if free else _contexts(gpus, evidence)


def _idle(
    cause: str, texts: tuple[str, str], still: Sequence[GpuRow], own: Sequence[GpuRow], hot: HotLine | None = None
) -> Finding:
    """The finding, without a gain, because it is unknown how well the training would use more GPUs."""
    every = len({row.latest.uuid for row in (*own, *still)})
    gpus = ", ".join(str(row.latest.index) for row in still)
    headline, action = (text.format(gpus=f"GPU {gpus}", own=len(own), all=every) for text in texts)
    return new_finding(
        headline,
        action,
        severity="info",
        cause=cause,
        at=hot,
        gpus=", ".join(f"{row.latest.index} ({plain(row.latest.name)})" for row in still),
        readings=min(len(row.history("util_ratio")) for row in still),
        held_bytes=sum(held.memory_bytes or 0 for row in still for held in row.latest.processes) or None,
    )


def _contexts(gpus: Sequence[GpuRow], evidence: Evidence) -> Finding | None:
    """Ranks that hold memory of a GPU on which they do not train, and workers that hold memory of any GPU."""
    for row in gpus:
        holders: dict[str, list[GpuProcess]] = {"trainer": [], "worker": []}
        # without any process's share, a worker that computes looks like one that does not
        is_reported = any(each.sm_ratio for each in row.latest.processes)
        for each in row.latest.processes:
            process = evidence.view.of(each.pid).process
            if process.role not in holders:
                continue
            is_elsewhere = bool(process.gpu_uuids) and not process.uses(row.latest)
            computes = not is_reported or (each.sm_ratio or 0.0) >= TINY
            if is_elsewhere if process.role == "trainer" else not computes:
                holders[process.role].append(each)
        for role, (who, action) in _HOLDERS.items():
            if number := len(holders[role]):
                held_by = plural(number, who)
                return new_finding(
                    f"memory of GPU {row.latest.index} is held but not used by {held_by}",
                    action,
                    severity="info",
                    cause="context",
                    gpu=row.latest.index,
                    processes=number,
                    held_bytes=sum(each.memory_bytes or 0 for each in holders[role]) or None,
                )
    return None


def placement(evidence: Evidence) -> Finding | None:
    """A training process runs on cores of another NUMA node than the one that its GPU is attached to."""
    far = list(_far(evidence))
    if not far:
        return None
    _, gpu, node, place = next((each for each in far if each[0].pid == evidence.pid), far[0])
    index, runs_on = gpu.latest.index, place.ran_on[-1]
    runs = "may only run" if node not in place.allowed else "runs"
    action = (
        f"bind it to that node: torchrun --numa-binding=node, or numactl --cpunodebind={node} --localalloc python ..."
    )
    if node not in place.allowed:
        action = (
            f"let it use cores of node {node}: change what binds it (numactl, taskset), or ask the scheduler for cores"
            " near the GPU (Slurm: --gres-flags=enforce-binding)"
        )
    return new_finding(
        f"GPU {index} is attached to NUMA node {node}, and its process {runs} on node {runs_on}",
        action,
        severity="info",
        gpu=index,
        gpu_node=node,
        runs_on_node=runs_on,
        ranks_far=len(far),
        ranks=len(evidence.machine.trainers),
    )


def _far(evidence: Evidence) -> Iterator[tuple[Process, GpuRow, int, Placement]]:
    """Training processes away from the NUMA node of their GPU: confined to other cores, or hardly ever near it."""
    for own in evidence.machine.trainers:
        place = evidence.machine.table.placement(own.pid)
        if place is None or own.process.ended:
            continue
        process, gpus = own.process, own.gpus
        near = {tuple(row.latest.near_nodes or ()) for row in gpus}
        if len(near) != 1 or not (nodes := near.pop()):
            continue  # several GPUs of different nodes, or no known node
        away, seen = sum(node not in nodes for node in place.ran_on), len(place.ran_on)
        if set(nodes).isdisjoint(place.allowed) or (seen >= READINGS and away >= NEARLY_ALL * seen):
            yield process, gpus[0], nodes[0], place


REPLAYS = Threshold(
    8.0,
    "packets a minute that a GPU resends over PCIe, from which its link counts as faulty",
    "NVIDIA's own health check: https://github.com/NVIDIA/DCGM (DCGM_LIMIT_MAX_PCIREPLAY_RATE)",
)


#: By the state of a GPU's spare memory rows: words that follow the GPU's name, the advice, and the severity.
_REMAPS: dict[str, tuple[str, str, Severity]] = {
    "failed": ("has no spare memory left for faulty rows", xids.REPLACE, "critical"),
    "pending": ("replaces faulty memory at its next reset", xids.RESET_LATER, "warning"),
}


def gpu_health(evidence: Evidence) -> Finding | None:
    """A GPU of the run has reported an error: of its memory, its links, its processors, or of a kernel on it."""
    return _gravest(
        (error, row, machine)
        for machine in evidence.machines
        for row in evidence.view.gpus_on(machine.node)
        if row.used_by_run
        for error in _errors(row)
    )


def _trouble(text: str, remedy: str, severity: Severity, lost: float = 0.0, **figures: Figure) -> Finding:
    """A fault of a GPU, in words that follow its name; ``lost``: the largest share of each step that it costs."""
    share = lost if lost >= TINY else None
    fix = Fix(remedy).with_upper_bound(1.0 / (1.0 - share) if share is not None else None)
    return new_finding(text, fix, severity=severity, share=share, evidence=figures)


def _gravest(found: Iterable[tuple[Finding, GpuRow, Machine]]) -> Finding | None:
    """The most severe fault, and among equals the most costly, with all other faults of its GPU and their remedies."""
    order = sorted(found, key=lambda each: (SEVERITY_ORDER[each[0].severity], -(each[0].share_of_step or 0.0)))
    if not order:
        return None
    worst, gpu, machine = order[0]
    others = [each for each, row, _ in order[1:] if row is gpu and each.severity in ("critical", "warning")]
    also = {"it_also": "; ".join(each.headline for each in others)} if others else {}
    fixes, share = {worst.action: worst.best}, worst.share_of_step
    for each in others:
        fixes.setdefault(each.action, each.best)
        share = max(share or 0.0, each.share_of_step or 0.0) or None
    return replace(
        worst,
        headline=f"{machine.place}GPU {gpu.latest.index} {worst.headline}",
        fixes=tuple(fixes.values()),
        share_of_step=share,
        evidence={"gpu": gpu.latest.index, **worst.evidence, **also, **machine.facts},
    )


def _errors(gpu: GpuRow) -> Iterator[Finding]:
    """The errors of a GPU that the driver reported, the newest first."""
    latest = gpu.latest
    for number in dict.fromkeys(reversed(gpu.xids)):
        error = xids.xid(number)
        yield _trouble(f"has reported Xid {number}: {error.meaning}", error.remedy, error.severity)
    if latest.row_remap in _REMAPS:
        yield _trouble(*_REMAPS[latest.row_remap])
    if latest.ecc_errors:
        text = f"has had {latest.ecc_errors} uncorrected memory errors since the driver was loaded"
        yield _trouble(text, xids.RESET, "warning")
    if gpu.resent_per_min > REPLAYS:
        yield _trouble(f"resends {gpu.resent_per_min} packets a minute over PCIe", xids.CONNECTION, "warning")


# -- causes of a lower speed

_COOL = "check the cooling: fans, air flow, neighbours in the case; nvidia-smi -q -d TEMPERATURE,PERFORMANCE"
_UNLOCK = "reset the clocks that someone has set: nvidia-smi -q -d CLOCK shows them, -rgc and -rac reset them"
_POWER_CAP, _UNNAMED = "power cap", "the driver names no cause"
#: The advice on each cause of lower clocks, and the highest severity. At its power limit a busy GPU works as it
#: was built to.
_CLOCKS: dict[str, tuple[str, Severity]] = {
    "hardware slowdown": (_COOL, "critical"),
    "thermal (software)": (_COOL, "critical"),
    "thermal (hardware)": (_COOL, "critical"),
    "power brake": ("ask whoever runs the machine: its power supply holds the GPU back", "critical"),
    "application clocks": (_UNLOCK, "warning"),
    _UNNAMED: (_UNLOCK, "warning"),  # the driver names no cause if the clocks are locked
    "sync boost": (_UNLOCK, "info"),
    _POWER_CAP: ("change nothing: at full power this is normal", "info"),
}


def throttled(evidence: Evidence) -> Finding | None:
    """The GPU is held below its speed: its clocks, by heat, power, a fault or a setting; or the link to it.

    Lower clocks cost time while the GPU works, unless its kernels wait for memory, which keeps its own pace. A slow
    link costs the extra time of copies.
    """
    if evidence.gpu.is_used is False:
        return None
    gpus = [(row, machine) for machine in evidence.machines for row in used_gpus(evidence.view, machine.node)]
    return _gravest((each, row, at) for row, at in gpus for each in (*_clocks(evidence, row), *_link(row)))


def _clocks(evidence: Evidence, gpu: GpuRow) -> Iterator[Finding]:
    steps, used = evidence.gpu.steps if gpu in evidence.gpu.rows else None, utilisation(gpu) or 0.0
    idle = steps.idle if steps is not None else Interval.around(1.0 - used)
    latest, mhz, most_mhz = gpu.latest, gpu.figures.sm_clock_mhz, gpu.latest.sm_clock_max_mhz
    slowed = max(0.0, 1.0 - mhz / most_mhz) if mhz and most_mhz else 0.0
    power_w, limit_w, default_w = gpu.figures.power_w, latest.power_limit_w, latest.power_limit_default_w
    held = {cause: share for cause, share in gpu.throttled if share >= LARGE and cause in _CLOCKS}
    # NVIDIA's driver names every cause but a lock, or none at all on some GPUs; AMD's clocks follow the load
    if not held and slowed >= UNUSUAL and idle.high <= MOST and latest.uuid.startswith("GPU-"):
        is_at_limit = power_w is not None and limit_w is not None and power_w >= NEARLY_ALL * limit_w
        held = {_POWER_CAP if is_at_limit else _UNNAMED: 1.0}
    for cause, share in held.items():
        remedy, gravest = _CLOCKS[cause]
        text = f"is throttled {percent(share)} of the time: {cause}"
        text = f"runs at a low clock, and {_UNNAMED}" if cause == _UNNAMED else text
        text += f" ({mhz:.0f} of {most_mhz} MHz)" if mhz and most_mhz else ""
        if cause == _POWER_CAP and limit_w and default_w and limit_w < (1.0 - SMALL) * default_w:
            text += f", with a limit of {limit_w:.0f} W instead of {default_w:.0f} W"
            remedy, gravest = f"have the default power limit restored (nvidia-smi -pl {default_w:.0f})", "warning"
        lost = (1.0 - idle.low) * slowed * share / sum(held.values()) if gravest != "info" else 0.0
        yield _trouble(
            text,
            remedy,
            gravest if lost >= TINY and idle.high <= MOST else "info",
            lost,
            cause=cause,
            throttled_share=share,
            sm_clock_mhz=mhz,
            sm_clock_max_mhz=most_mhz,
            temperature_c=gpu.figures.temperature_c,
            power_w=power_w,
            power_limit_w=limit_w,
        )


def _link(gpu: GpuRow) -> Iterator[Finding]:
    """A PCIe link slower than both ends allow, on a GPU that works: an idle GPU slows its link down itself.

    The link does not matter if copies use another one (C2C).
    """
    latest, means = gpu.latest, gpu.figures
    peak = pcie_peak(latest.pcie_generation, latest.pcie_width)
    most = pcie_peak(latest.pcie_generation_max, latest.pcie_width_max)
    if latest.c2c or peak is None or most is None or peak >= most or (utilisation(gpu) or 0.0) < LARGE:
        return
    copied = max(means.pcie_rx_bytes_per_s or 0.0, means.pcie_tx_bytes_per_s or 0.0)
    lost = min(1.0, copied / COUNTED / peak) * (1.0 - peak / most)
    yield _trouble(
        f"is linked by PCIe {latest.pcie_generation}.0 x{latest.pcie_width}, although card and slot support"
        f" {latest.pcie_generation_max}.0 x{latest.pcie_width_max}",
        "check the card's seat, its riser, and the slot's speed in the firmware's settings",
        "warning" if lost >= TINY else "info",
        lost,
        pcie_bytes_per_s=copied,
    )
