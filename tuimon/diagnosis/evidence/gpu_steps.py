"""Steps on the GPU's clock: how much of each the GPU idles, at least and at most."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tuimon.diagnosis.evidence.devices import utilisation
from tuimon.diagnosis.evidence.gpu_waits import GpuWaits
from tuimon.diagnosis.threshold import Threshold
from tuimon.session.rows import GpuRow, GpuTimeRow, LeadRow, PhaseRow, PhaseTable

BUSY_IDLE = Threshold(
    0.10,
    "share of its time that the GPU may idle and still be the bottleneck",
    "our choice: above it, a fix of the idle time may gain 10 % or more, which is worth a warning",
)
SMALL_LEAD_US = Threshold(
    100.0,
    "us that launches run ahead, below which the GPU waits for the CPU",
    "our choice: ten launches of 5-10 us each; a CPU that is no further ahead is caught up with at its next pause",
)
IDLE_STREAM_RATIO = Threshold(
    0.5,
    "share of boundaries at which a query found the stream idle, from which the GPU keeps up with the CPU",
    "our choice: at half of them the typical step has run dry there",
)
SOME_WAITS = Threshold(
    0.01,
    "share of samples in a phase that wait for the GPU, from which something synchronises there",
    "our choice: below it a wait is a stray sample; the bound on idle time then stays tighter",
)
LEAST_IDLE = Threshold(
    0.01,
    "share of the step that idles, below which no gain is estimated from it",
    "our choice: less is within the error of its bound",
)
UTILISATION_ERROR = Threshold(
    0.03,
    "what NVML's utilisation may be off by",
    "our choice: it is reported in whole percent over 1/6 to 1 s:"
    " https://docs.nvidia.com/deploy/nvml-api/structnvmlUtilization__t.html",
)
MIN_STEPS = Threshold(
    8,
    "steps with GPU times, below which these are not used",
    "our choice: the agent times bursts of eight steps, so one whole burst",
)
GPU_CLOCK_WAIT_S = Threshold(
    6.0,
    "seconds after the first step by which GPU times have come, or will not",
    "our choice: they come within two seconds; three times that leaves room for a busy machine",
)
#: The boundary that ends a phase within the computation.
_ENDS = {"forward": "backward begin", "backward": "backward end", "optimizer": "optimizer end"}


class IdleBounds(NamedTuple):
    """Idle time of the GPU, as shares of the step."""

    at_least: float
    at_most: float

    def as_evidence(self) -> dict[str, float]:
        """As findings report them."""
        return {"gpu_idle_at_least": self.at_least, "gpu_idle_at_most": self.at_most}


class GpuPhase(NamedTuple):
    """A phase on the GPU's clock, in ms a step: how long it takes, and how much of it the GPU idles."""

    ms: float
    idle_ms: float  # at least
    idle_ms_at_most: float


class GpuSteps(NamedTuple):
    """A training on the clock of its GPU; shares are of the GPU's time in steps."""

    time: GpuTimeRow
    idle: float  # at least
    idle_at_most: float
    step_ms: float
    phases: dict[str, GpuPhase]

    @property
    def is_bottleneck(self) -> bool:
        """Whether the GPU always has something to do."""
        return self.idle_at_most < BUSY_IDLE

    def idle_in(self, *names: str) -> IdleBounds:
        """Share of the step in which the GPU idles in these phases."""
        parts = [self.phases[name] for name in names if name in self.phases]
        at_least, at_most = sum(p.idle_ms for p in parts), sum(p.idle_ms_at_most for p in parts)
        return IdleBounds(at_least / self.step_ms, at_most / self.step_ms)

    def idle_outside(self, *names: str) -> float:
        """Share of the step in which the GPU idles in all other phases, at most."""
        return self.idle_in(*(name for name in self.phases if name not in names)).at_most

    def idle_during(self, phase: PhaseRow) -> IdleBounds:
        """How much of a phase of the CPU the GPU idles; time that launches ahead cover costs the GPU nothing.

        Where samples divide the phases, the GPU's clock knows only their sum.
        """
        names = ("data", "forward", "other") if phase.estimated else (phase.name,)
        at_least, at_most = self.idle_in(*names)
        at_most = min(phase.share, at_most, self.idle_at_most)
        return IdleBounds(min(at_most, max(at_least, self.idle - self.idle_outside(*names))), at_most)

    def share(self, name: str) -> float:
        """Share of a phase in the GPU's time of a step."""
        return self.phases[name].ms / self.step_ms if name in self.phases else 0.0

    def lead(self, boundary: str) -> LeadRow | None:
        """How far launches run ahead at one kind of boundary."""
        return next((row for row in self.time.leads if row.boundary == boundary), None)


def gpu_steps(
    time: GpuTimeRow | None, table: PhaseTable | None, waits: GpuWaits | None, gpus: Sequence[GpuRow]
) -> GpuSteps | None:
    """None without GPU times, or with those of fewer than MIN_STEPS steps.

    In a phase at whose end the GPU keeps up with the CPU it may have idled all the time, except while the training
    thread waited for it. In a phase with a synchronisation it may have idled while the CPU did not wait, even if
    launches are ahead again at its end. NVML's utilisation ("a kernel was running") bounds the idle time from below,
    and from above where nobody else uses the GPU.
    """
    if time is None or time.steps < MIN_STEPS or table is None:
        return None
    rows = [row for row in table.rows if row.name != "eval" and row.gpu_ms_per_step is not None]
    timed = {row.name: _gpu_phase(row, _keeps_up(time, row.name)) for row in rows}
    step_ms = sum(phase.ms for phase in timed.values())
    if step_ms <= 0:
        return None
    phases = {
        name: phase._replace(idle_ms_at_most=_at_most(table, waits, name, phase)) for name, phase in timed.items()
    }
    timed_at_most = sum(phase.idle_ms_at_most for phase in timed.values()) / step_ms
    at_most = sum(phase.idle_ms_at_most for phase in phases.values()) / step_ms
    at_least = sum(phase.idle_ms for phase in phases.values()) / step_ms
    used = [ratio for row in gpus if (ratio := utilisation(row)) is not None]
    if used:
        at_least = max(at_least, 1.0 - max(used))
    if used and not any(row.others for row in gpus):  # otherwise others may have used it
        at_most = min(at_most, max(timed_at_most, 1.0 - min(used) + UTILISATION_ERROR))
    if waits is not None:
        at_most = min(at_most, max(0.0, 1.0 - waits.sync - waits.transfer))
    return GpuSteps(time, min(at_least, at_most), at_most, step_ms, phases)


def _keeps_up(time: GpuTimeRow, phase: str) -> bool:
    """Whether the GPU has finished nearly all launched work when the CPU reaches the end of a phase.

    Without a lead (the clocks are not known well enough) no: the GPU was far behind at every query.
    """
    lead = next((lead for lead in time.leads if lead.boundary == _ENDS.get(phase)), None)
    if lead is None:
        return False
    return lead.stream_idle_ratio >= IDLE_STREAM_RATIO or (
        lead.median_us is not None and lead.median_us < SMALL_LEAD_US
    )


def _gpu_phase(row: PhaseRow, keeps_up: bool) -> GpuPhase:
    ms, idle_ms = row.gpu_ms_per_step or 0.0, row.gpu_idle_ms_per_step or 0.0
    at_most = ms if keeps_up else min(ms, idle_ms + (row.gpu_maybe_idle_ms_per_step or 0.0))
    return GpuPhase(ms, idle_ms, at_most)


def _at_most(table: PhaseTable, waits: GpuWaits | None, name: str, phase: GpuPhase) -> float:
    """The most that a phase may idle, in ms: with a synchronisation in it, all the time that the CPU did not wait."""
    on_cpu = [row for row in table.rows if row.name == name or (row.estimated and name == "forward")]
    waited = sum(waits.by_phase.get(row.name, 0.0) for row in on_cpu) if waits is not None else 0.0
    lengths = [row.ms_per_step for row in table.rows if row.name != "eval" and row.ms_per_step is not None]
    if waited < SOME_WAITS or not lengths:
        return phase.idle_ms_at_most
    free_ms = sum(row.ms_per_step or 0.0 for row in on_cpu) - waited * sum(lengths)
    return min(phase.ms, max(phase.idle_ms_at_most, free_ms))
