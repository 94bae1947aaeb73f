"""Steps on the GPU's clock: how much of each the GPU idles, at least and at most, by events and by NVML's counters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct

from tuimon.diagnosis.interval import Interval
from tuimon.diagnosis.threshold import LARGE, MOST, REPORTED, TRACE, Threshold
from tuimon.records import Gpu
from tuimon.session.gpu_time import GpuTimeRow, LeadRow
from tuimon.session.gpus import GpuMeans, GpuRow
from tuimon.session.phase_table import PhaseTable
from tuimon.session.series import sampling_error
from tuimon.session.stacks.samples import Samples

#: Share of its time that the GPU may idle and still be the bottleneck: idling more is a finding of its own.
BUSY_IDLE = REPORTED
MIN_STEPS = Threshold(
    8,
    "steps with GPU times, below which these are not used, unless they are long",
    "our choice: the agent times bursts of eight steps, so one whole burst",
)
#: Seconds of timed steps from which even one step is enough: our choice, eight steps of 125 ms. A user whose steps take
#: minutes should not have to wait for eight of them.
_MIN_TIMED_S = 1.0
GPU_CLOCK_WAIT_S = Threshold(
    6.0,
    "seconds after the first step by which GPU times have come, or will not",
    "our choice: they come within two seconds; three times that leaves room for a busy machine",
)
GAPS = Threshold(
    0.02,
    "share of the time that lies between works that follow each other, which utilisation may count as idle",
    "measured in tests/gpu_simulator: 0.1 to 1.7 % of recorded trainings on V100, RTX 2080 Ti and MI300X",
)
DEVICE_COPIES = Threshold(
    0.03,
    "share of the time that one of several ranks spends in copies within the GPU's own memory, which no counter shows",
    "measured in tests/gpu_simulator: 0.6 to 2.9 % of recorded trainings on V100, A100 and MI300X, mostly buckets of"
    " gradients",
)
SLOW_PCIE = Threshold(
    1.3e9,
    "bytes a second by NVML's PCIe counters, below which no copy goes",
    "a third of what pageable memory reaches on PCIe 3 (4 GB/s:"
    " https://developer.nvidia.com/blog/how-optimize-data-transfers-cuda-cc/), as the counters showed 2.0 of 5.5 GB/s"
    " on an H100",
)
MEASURED_BY = "tuimon trace measures it"
#: Least share of a copy's rate that PCIe counters show: 2.0 of 5.5 GB/s on an H100.
_COUNTED = 1 / 3
#: Bytes a second of one PCIe lane, by generation (https://en.wikipedia.org/wiki/PCI_Express#Comparison_table).
_LANE_BYTES_PER_S = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9}
#: For each phase of the computation, the boundaries that may begin it; the first one present counts.
_BEGINS = {
    "forward": ("fetch end", "optimizer end"),
    "backward": ("backward begin",),
    "optimizer": ("optimizer begin",),
}


class PhaseOnGpu(NamedTuple):
    """A phase on the GPU's clock, in ms per step: its length, and how much of it the GPU idles."""

    ms: float
    idle: Interval


class GpuSteps(NamedTuple):
    """A training's steps on the clock of its GPU; shares are of the GPU's time in steps."""

    time: GpuTimeRow
    idle: Interval
    step_ms: float
    phases: dict[str, PhaseOnGpu]
    contradiction: tuple[Interval, Interval] | None = None  # the idle time by events and by counters, if these disagree
    wide_because: str | None = None  # why the bounds of the idle time are far apart, for people
    untimed: float = 0.0  # least share of work that events of the stream do not time: on other streams, in CUDA graphs
    sm_ratio: float | None = None  # share of its multiprocessors that were busy in steps, on average
    waits_anywhere: bool = False  # waits for ranks may lie in any phase: the loop, or compiled code, calls collectives

    @property
    def width_evidence(self) -> dict[str, float | str]:
        """What events do not time, and why the bounds are wide, as findings report it; empty if they are not."""
        wide = {"idle_bounds_wide_because": self.wide_because} if self.wide_because is not None else {}
        return {"gpu_work_untimed_at_least": self.untimed, **wide} if self.untimed else {**wide}

    @property
    def is_bottleneck(self) -> bool:
        """True if the GPU always has something to do."""
        return self.idle.high < BUSY_IDLE

    def idle_in(self, *names: str) -> Interval:
        """Share of the step in which the GPU idles during these phases."""
        parts = [self.phases[name] for name in names if name in self.phases]
        others = [phase for name, phase in self.phases.items() if name not in names]
        in_parts, beside = (
            Interval.sum_of(phase.idle for phase in some).times(1 / self.step_ms) for some in (parts, others)
        )
        if self.contradiction is not None:
            return in_parts
        return Interval(max(in_parts.low, self.idle.low - beside.high), min(in_parts.high, self.idle.high - beside.low))

    def share(self, name: str) -> float:
        """A phase's share of the GPU's time of a step."""
        return self.phases[name].ms / self.step_ms if name in self.phases else 0.0

    def lead(self, boundary: str) -> LeadRow | None:
        """How far launches run ahead at one kind of boundary; None if unknown."""
        return next((row for row in self.time.leads if row.boundary == boundary), None)


def gpu_steps(
    time: GpuTimeRow | None,
    table: PhaseTable | None,
    samples: Samples,
    waits: Samples | None,
    gpus: Sequence[GpuRow],
    ranks: int = 1,
    copying: float | None = None,
) -> GpuSteps | None:
    """The steps on the GPU's clock; None without GPU times of enough steps.

    ``waits``: the training thread's samples in which it waits for a value. ``ranks``: the world size.
    ``copying``: the largest share of all time in copies between host and GPU, by samples.

    Events bound the GPU's idle time in each phase; while the training thread waits for it, the GPU is not idle.
    NVML's utilisation bounds the idle time of the whole step. Unless the two contradict each other, the certain idle
    time of all phases but one narrows the bounds of that one.
    """
    if time is None or not has_enough_steps(time.steps, time.timed_s) or table is None:
        return None
    launching_ms = _launching_ms(time, table, samples.in_steps.total, waits)
    phases = {}
    for row in table.rows:
        if row.name != "eval" and row.gpu_ms_per_step is not None:
            ms, idle_ms = row.gpu_ms_per_step, row.gpu_idle_ms_per_step or 0.0
            maybe_ms = (row.gpu_maybe_idle_ms_per_step or 0.0) if time.bounded else ms
            at_most = min(ms, idle_ms + maybe_ms, launching_ms.get(row.name, ms))
            phases[row.name] = PhaseOnGpu(ms, Interval(idle_ms, max(idle_ms, at_most)))
    step_ms = sum(phase.ms for phase in phases.values())
    if step_ms <= 0:
        return None
    by_events = Interval.sum_of(phase.idle for phase in phases.values()).times(1 / step_ms)
    in_forward = phases["forward"].ms / step_ms if "forward" in phases else 1.0
    copies = Copies(in_forward, copying, TRACE if ranks < 2 else DEVICE_COPIES)
    by_counters = idle_by_counters(gpus, copies)
    untimed = max(0.0, by_events.low - by_counters.high) if by_counters is not None else 0.0
    if by_counters is not None and untimed:
        # kernels of other streams, such as NCCL's, run while the timed stream has nothing to do, in unknown phases
        most_ms = (untimed if ranks > 1 else by_events.high - by_counters.low) * step_ms
        phases = {
            name: PhaseOnGpu(phase.ms, Interval(max(0.0, phase.idle.low - most_ms), phase.idle.high))
            for name, phase in phases.items()
        }
        by_events = Interval.sum_of(phase.idle for phase in phases.values()).times(1 / step_ms).up_to(by_counters.high)
    idle = by_events.joined(by_counters) if by_counters is not None else by_events
    agree = by_counters is None or by_events.meets(by_counters)
    active = [row.means.sm_ratio for row in gpus if row.means is not None and row.means.sm_ratio is not None]
    outside = samples.where(phase=[name for name in samples.phases if name != "backward"])
    found = GpuSteps(
        time=time,
        idle=idle,
        step_ms=step_ms,
        phases=phases,
        contradiction=None if agree or by_counters is None else (by_events, by_counters),
        wide_because=why_wide(idle, by_counters, gpus, copies) if agree else None,
        untimed=untimed if ranks < 2 else 0.0,
        sm_ratio=sum(active) / len(active) if active else None,
        waits_anywhere=outside.where(doing="ranks").total + outside.where(below="compiled_call").total > 0,
    )
    narrowed = {name: PhaseOnGpu(phase.ms, found.idle_in(name).times(step_ms)) for name, phase in phases.items()}
    return found._replace(phases=narrowed)


def has_enough_steps(steps: int, timed_s: float) -> bool:
    """True if enough steps were timed to judge them, by number or by their total length."""
    return steps >= MIN_STEPS or timed_s >= _MIN_TIMED_S


class Copies(Struct, frozen=True, gc=False):
    """Upper bounds on the time of copies, which utilisation does not count, as they are not kernels."""

    in_phase: float  # share of the steps that lies in the phase with copies between host and GPU
    sampled: float | None = None  # share of all time in those copies, by samples; None if unknown
    on_device: float = TRACE  # share of the steps in copies within the GPU's own memory

    def in_steps(self, gpu: GpuRow, means: GpuMeans) -> float:
        """Share of the steps in copies between host and GPU, by PCIe counters as well."""
        peak = pcie_peak(gpu.latest.pcie_generation, gpu.latest.pcie_width)
        slowest = min(SLOW_PCIE, _COUNTED * peak) if peak is not None else SLOW_PCIE
        known = [sum(rates) / slowest] if (rates := pcie_rates(gpu, means)) else []
        known += [self.sampled] if self.sampled is not None else []
        return min((share / (means.steps_ratio or 1.0) for share in known), default=self.in_phase)


def idle_by_counters(gpus: Sequence[GpuRow], copies: Copies) -> Interval | None:
    """Bounds of the GPU's idle time, from the share of time in which a kernel ran; None if that is not measured.

    Kernels of other programs, or of another rank on the same GPU, could hide idle time.
    """
    known = [(row, row.means) for row in gpus if row.means is not None and row.means.util_at_most is not None]
    if not known:
        return None
    error = max(TRACE / (means.steps_ratio or 1.0) for _, means in known)
    most = max(means.util_at_most or 0.0 for _, means in known) + error
    least = min(means.util_at_least or 0.0 for _, means in known) - error
    copying = min(1.0, max(copies.in_steps(*each) for each in known)) + copies.on_device
    at_most = 1.0 if any(row.is_shared for row in gpus) else 1.0 - max(0.0, least)
    return Interval(max(0.0, 1.0 - min(1.0, most) - copying - GAPS), at_most)


def pcie_peak(generation: int | None, width: int | None) -> float | None:
    """Bytes a second of a link, each way; None if unknown."""
    lane = _LANE_BYTES_PER_S.get(generation or 0)
    return lane * width if lane is not None and width else None


def pcie_rates(gpu: GpuRow, figures: GpuMeans | Gpu) -> list[float]:
    """Bytes a second by PCIe counters; empty if copies between host and GPU go over C2C, which they do not count."""
    rates = (figures.pcie_rx_bytes_per_s, figures.pcie_tx_bytes_per_s) if not gpu.latest.c2c else ()
    return [rate for rate in rates if rate is not None]


def why_wide(idle: Interval, counters: Interval | None, gpus: Sequence[GpuRow], copies: Copies) -> str | None:
    """Why the bounds are far apart; None if they are close. ``counters``: the bounds by NVML's utilisation."""
    if idle.width < LARGE:
        return None
    reasons = []
    if counters is None:
        reasons.append("NVML's utilisation is not known")
    else:
        if any(row.is_shared for row in gpus):
            reasons.append("NVML counts other processes as busy")
        if copies.sampled is None and not any(pcie_rates(row, row.latest) for row in gpus):
            reasons.append("NVML counts no copies, so these may take all that no kernel does")
    return f"{'; '.join(reasons or ['launches are hardly ahead'])}; {MEASURED_BY}"


def _launching_ms(time: GpuTimeRow, table: PhaseTable, samples: int, waits: Samples | None) -> dict[str, float]:
    """How long the CPU is in a phase without waiting for the GPU, less the lead that it had at the phase's beginning.

    The GPU can idle in the phase only during that time. Samples show the waits; without them, as in old logs, only the
    lead is subtracted. If samples divide the phases, the GPU's clock knows only their sum, as forward.
    """
    rows = [row for row in table.rows if row.name != "eval"]
    step_ms = sum(row.ms_per_step or 0.0 for row in rows)
    leads, found = {lead.boundary: lead for lead in time.leads}, {}
    for name in (row.name for row in rows):
        on_cpu = [row for row in rows if row.name == name or (row.estimated and name == "forward")]
        waited = sum(waits.phases[row.name] for row in on_cpu) / samples if waits is not None else 0.0
        surely = max(0.0, waited - sampling_error(waited, samples)) if waited >= TRACE else 0.0
        lead = next((leads[begin] for begin in _BEGINS.get(name, ()) if begin in leads), None)
        ahead_us = lead.median_us if lead is not None and lead.stream_idle_ratio < MOST and not time.bounded else 0.0
        if surely or not time.bounded:
            found[name] = sum(row.ms_per_step or 0.0 for row in on_cpu) - surely * step_ms - (ahead_us or 0.0) / 1e3
    return found
