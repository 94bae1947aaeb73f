"""Rules about the health of a run's GPUs: errors of their hardware, and what holds them below their speed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from tuimon.diagnosis import xids
from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.gpu import utilisation
from tuimon.diagnosis.evidence.gpu_steps import pcie_peak
from tuimon.diagnosis.evidence.run import Machine
from tuimon.diagnosis.finding import SEVERITY, Finding, Fix, Severity
from tuimon.diagnosis.interval import Interval
from tuimon.diagnosis.rule import GPU_COUNTERS, Rule
from tuimon.diagnosis.threshold import LARGE, MOST, SMALL, TRACE, Threshold
from tuimon.diagnosis.words import percent
from tuimon.session.gpus import GpuRow

REPLAYS = Threshold(
    8.0,
    "packets a minute that a GPU sends again over PCIe, from which its link is faulty",
    "NVIDIA's own health check: https://github.com/NVIDIA/DCGM (DCGM_LIMIT_MAX_PCIREPLAY_RATE)",
)
FAR_BELOW = Threshold(
    1 / 3,
    "part by which a busy GPU is slower than its highest clock, from which that is reported though nobody says why",
    "our choice: cards for workstations name higher clocks than they reach, by up to a quarter",
)


class Trouble(NamedTuple):
    """What is wrong with a GPU, in words that follow the GPU's name, and what to do about it."""

    text: str
    remedy: str
    severity: Severity
    lost: float = 0.0  # largest share of each step that it costs
    evidence: Mapping[str, float | str | None] = {}


_REMAPS = {
    "failed": Trouble("has no spare memory left for faulty rows", xids.REPLACE, "critical"),
    "pending": Trouble("takes faulty memory out of use at its next reset", xids.RESET_LATER, "warning"),
}


def gpu_health(evidence: Evidence) -> Finding | None:
    """A GPU of the run has reported an error: of its memory, its links, its processors, or of a kernel on it."""
    return _gravest(
        (error, row, machine)
        for machine in evidence.run.machines
        for row in evidence.run.gpus_on(machine.node)
        if row.used_by_run
        for error in _errors(row)
    )


def _gravest(found: Iterable[tuple[Trouble, GpuRow, Machine]]) -> Finding | None:
    """The gravest trouble, and among equals the most costly; with the remedies for all troubles of its GPU."""
    order = sorted(found, key=lambda each: (SEVERITY[each[0].severity], -each[0].lost))
    if not order:
        return None
    worst, gpu, machine = order[0]
    remedies = {worst.remedy: worst.lost}
    for each, row, _ in order:
        if row is gpu and each.severity in ("critical", "warning"):
            remedies.setdefault(each.remedy, each.lost)
    return Finding(
        severity=worst.severity,
        headline=f"{machine.place}GPU {gpu.latest.index} {worst.text}",
        fixes=tuple(
            Fix(remedy).by_up_to(1.0 / (1.0 - lost) if lost >= TRACE else None) for remedy, lost in remedies.items()
        ),
        share_of_step=worst.lost if worst.lost >= TRACE else None,
        evidence={"gpu": gpu.latest.index, **worst.evidence, **machine.facts},
    )


def _errors(gpu: GpuRow) -> Iterator[Trouble]:
    """The errors of a GPU that the driver reported, the newest first."""
    latest = gpu.latest
    for number in dict.fromkeys(reversed(gpu.xids)):
        error = xids.xid(number)
        yield Trouble(f"has reported Xid {number}: {error.meaning}", error.remedy, error.severity)
    if latest.row_remap in _REMAPS:
        yield _REMAPS[latest.row_remap]
    if latest.ecc_errors:
        text = f"has had {latest.ecc_errors} uncorrected memory errors since the driver was loaded"
        yield Trouble(text, xids.RESET, "warning")
    if gpu.resent_per_min > REPLAYS:
        yield Trouble(f"sends {gpu.resent_per_min} packets a minute again over PCIe", xids.CONNECTION, "warning")


# -- what keeps it below its speed

_COOL = "check the cooling: fans, air flow, neighbours in the case; nvidia-smi -q -d TEMPERATURE,PERFORMANCE"
_UNLOCK = "reset the clocks that someone has set: nvidia-smi -q -d CLOCK shows them, -rgc and -rac reset them"
_POWER_CAP, _UNNAMED = "power cap", "the driver names no cause"
#: What to do about each cause of lower clocks, and the severity at most. At its power limit a busy GPU works as it
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
    gpus = [(row, machine) for machine in evidence.run.machines for row in evidence.run.gpus_used_on(machine.node)]
    return _gravest((each, row, at) for row, at in gpus for each in (*_clocks(evidence, row), *_link(row)))


def _clocks(evidence: Evidence, gpu: GpuRow) -> Iterator[Trouble]:
    steps, used = evidence.gpu.steps if gpu in evidence.gpu.rows else None, utilisation(gpu) or 0.0
    idle = steps.idle if steps is not None else Interval.around(1.0 - used)
    latest, mhz, most_mhz = gpu.latest, gpu.figures.sm_clock_mhz, gpu.latest.sm_clock_max_mhz
    slowed = max(0.0, 1.0 - mhz / most_mhz) if mhz and most_mhz else 0.0
    held = {cause: share for cause, share in gpu.throttled if share >= LARGE and cause in _CLOCKS}
    # on NVIDIA's GPUs, whose driver names every cause but a lock; AMD's clocks follow the load
    if not held and slowed >= FAR_BELOW and idle.high <= MOST and latest.uuid.startswith("GPU-"):
        held = {_UNNAMED: 1.0}
    for cause, share in held.items():
        remedy, gravest = _CLOCKS[cause]
        text = f"is held down {percent(share)} of the time: {cause}"
        text += f" ({mhz:.0f} of {most_mhz} MHz)" if mhz and most_mhz else ""
        limit_w, default_w = latest.power_limit_w, latest.power_limit_default_w
        if cause == _POWER_CAP and limit_w and default_w and limit_w < (1.0 - SMALL) * default_w:
            text += f", with a limit of {limit_w:.0f} W instead of {default_w:.0f} W"
            remedy, gravest = f"ask for the default power limit (nvidia-smi -pl {default_w:.0f})", "warning"
        lost = (1.0 - idle.low) * slowed * share / sum(held.values()) if gravest != "info" else 0.0
        yield Trouble(
            text,
            remedy,
            gravest if lost >= TRACE and idle.high <= MOST else "info",
            lost,
            {
                "cause": cause,
                "throttled_share": share,
                "sm_clock_mhz": mhz,
                "sm_clock_max_mhz": most_mhz,
                "temperature_c": latest.temperature_c,
                "power_w": gpu.figures.power_w,
                "power_limit_w": limit_w,
            },
        )


def _link(gpu: GpuRow) -> Iterator[Trouble]:
    """A PCIe link slower than both ends allow, on a GPU that works: an idle GPU slows its link down itself."""
    latest, means = gpu.latest, gpu.figures
    peak = pcie_peak(latest.pcie_generation, latest.pcie_width)
    most = pcie_peak(latest.pcie_generation_max, latest.pcie_width_max)
    if peak is None or most is None or peak >= most or (utilisation(gpu) or 0.0) < LARGE:
        return
    copied = max(means.pcie_rx_bytes_per_s or 0.0, means.pcie_tx_bytes_per_s or 0.0)
    lost = min(1.0, copied / peak) * (1.0 - peak / most)
    yield Trouble(
        f"is linked by PCIe {latest.pcie_generation}.0 x{latest.pcie_width}, where card and slot can"
        f" {latest.pcie_generation_max}.0 x{latest.pcie_width_max}",
        "check how the card sits, its riser, and the slot's speed in the firmware's settings",
        "warning" if lost >= TRACE else "info",
        lost,
        {"pcie_bytes_per_s": copied},
    )


GPU_HEALTH = Rule(
    title="Errors of the GPU",
    judge=gpu_health,
    needs=(GPU_COUNTERS,),
    thresholds=(REPLAYS,),
    is_harm=True,
    of_moment=True,
)

THROTTLED = Rule(
    title="GPU below its speed",
    judge=throttled,
    needs=(GPU_COUNTERS,),
    of_moment=True,
    thresholds=(LARGE, FAR_BELOW, MOST, SMALL, TRACE),
    from_outside=True,
)
