"""What the rules about GPUs ask of a Session: how much of a step the GPU idles, at least and at most."""

from __future__ import annotations

from typing import NamedTuple

from tuimon.diagnosis.evidence.common import uses_gpu
from tuimon.diagnosis.evidence.gpu_waits import Waits, waits_of
from tuimon.records import bare_uuid
from tuimon.session.rows import GpuRow, GpuTimeRow, LeadRow, PhaseRow, PhaseTable
from tuimon.session.session import Session

#: A GPU that idles for no more of its time than this is the bottleneck (proposal).
BUSY_IDLE = 0.10
#: Launches that are ahead by no more wait for the CPU, not for the GPU (FIELD-NOTES: 100 us); so does a GPU that has
#: nothing left to do at half of the boundaries (proposal).
SMALL_LEAD_US = 100.0
DRAINED_RATIO = 0.5
#: Share of samples in a phase that wait for the GPU, from which something synchronises there (proposal).
SOME_WAITS = 0.01
#: NVML's utilisation may be off by so much (proposal; it is told in whole percent, over a sixth of a second or more).
UTIL_ERROR = 0.03
#: Turns of the loop below which their GPU time says little (proposal).
MIN_TURNS = 8
#: The boundary that ends a phase within the computation.
_ENDS = {"forward": "backward begin", "backward": "backward end", "optimizer": "optimizer end"}
#: So long after the first step GPU events have come, or will not (proposal: they come within two seconds).
AWAITED_S = 6.0
#: What NVML's utilisation is averaged over: the last so many windows.
_RECENT = 30


class OnGpu(NamedTuple):
    """A phase on the GPU's clock, in ms a step: how long it takes, and how much of it the GPU idles."""

    ms: float
    idle_ms: float  # at least
    idle_ms_at_most: float


class GpuPicture(NamedTuple):
    """A training on the clock of its GPU; shares are of the GPU's time in steps."""

    time: GpuTimeRow
    idle: float  # at least
    idle_at_most: float
    step_ms: float
    phases: dict[str, OnGpu]

    @property
    def is_bottleneck(self) -> bool:
        """Whether the GPU always has something to do."""
        return self.idle_at_most < BUSY_IDLE

    def idle_in(self, *names: str) -> tuple[float, float]:
        """Share of the step in which the GPU idles in these phases, at least and at most."""
        parts = [self.phases[name] for name in names if name in self.phases]
        return sum(p.idle_ms for p in parts) / self.step_ms, sum(p.idle_ms_at_most for p in parts) / self.step_ms

    def share(self, name: str) -> float:
        """Share of a phase in the GPU's time of a step."""
        return self.phases[name].ms / self.step_ms if name in self.phases else 0.0

    def lead(self, boundary: str) -> LeadRow | None:
        """How far launches run ahead at one kind of boundary."""
        return next((row for row in self.time.leads if row.boundary == boundary), None)


def picture_of(session: Session, pid: int) -> GpuPicture | None:
    """None without GPU events, or with too few turns.

    In a phase at whose end the GPU keeps up it may have idled all the time, but for what the training thread waited for
    it. In one with a synchronisation somewhere it may have idled while the CPU did not wait, even if launches are ahead
    again at its end. NVML's utilisation ("a kernel was running") bounds the idle time from below, and what of it has no
    event of its own from above.
    """
    time, table = session.gpu_time(pid), session.phases(pid)
    if time is None or time.steps < MIN_TURNS or table is None:
        return None
    rows = [row for row in table.rows if row.name != "eval" and row.gpu_ms_per_step is not None]
    seen = {row.name: _on_gpu(row, _keeps_up(time, row.name)) for row in rows}
    step_ms = sum(phase.ms for phase in seen.values())
    if step_ms <= 0:
        return None
    waits = waits_of(session, pid)
    phases = {name: phase._replace(idle_ms_at_most=_at_most(table, waits, name, phase)) for name, phase in seen.items()}
    told, at_most = (sum(phase.idle_ms_at_most for phase in some.values()) / step_ms for some in (seen, phases))
    certain = sum(phase.idle_ms for phase in phases.values()) / step_ms
    gpus = gpus_of(session, pid)
    used = [ratio for row in gpus if (ratio := utilisation(row)) is not None]
    if used:
        certain = max(certain, 1.0 - max(used))
    if used and not any(row.others for row in gpus):
        at_most = min(at_most, max(told, 1.0 - min(used) + UTIL_ERROR))
    if waits is not None:
        at_most = min(at_most, max(0.0, 1.0 - waits.sync - waits.transfer))
    return GpuPicture(time, min(certain, at_most), at_most, step_ms, phases)


def _keeps_up(time: GpuTimeRow, phase: str) -> bool:
    """Whether the GPU has done nearly all that was launched when the CPU comes to the end of a phase.

    Where the clocks are not known well enough for a lead, the GPU was far behind whenever one looked.
    """
    lead = next((lead for lead in time.leads if lead.boundary == _ENDS.get(phase)), None)
    if lead is None:
        return False
    return lead.stream_idle_ratio >= DRAINED_RATIO or (lead.median_us is not None and lead.median_us < SMALL_LEAD_US)


def _on_gpu(row: PhaseRow, keeps_up: bool) -> OnGpu:
    ms, idle_ms = row.gpu_ms_per_step or 0.0, row.gpu_idle_ms_per_step or 0.0
    at_most = ms if keeps_up else min(ms, idle_ms + (row.gpu_maybe_idle_ms_per_step or 0.0))
    return OnGpu(ms, idle_ms, at_most)


def _at_most(table: PhaseTable, waits: Waits | None, name: str, phase: OnGpu) -> float:
    """What a phase may idle, after a synchronisation within it too: no more than the CPU does not wait there."""
    on_cpu = [row for row in table.rows if row.name == name or (row.estimated and name == "forward")]
    waited = sum(waits.by_phase.get(row.name, 0.0) for row in on_cpu) if waits is not None else 0.0
    lengths = [row.ms_per_step for row in table.rows if row.name != "eval" and row.ms_per_step is not None]
    if waited < SOME_WAITS or not lengths:
        return phase.idle_ms_at_most
    free_ms = sum(row.ms_per_step or 0.0 for row in on_cpu) - waited * sum(lengths)
    return min(phase.ms, max(phase.idle_ms_at_most, free_ms))


def run_gpus(session: Session) -> list[GpuRow]:
    """The GPUs that the run uses, as far as their figures are of now."""
    return [row for row in session.gpus() if row.used_by_run and row.stale_s < _RECENT]


def gpus_of(session: Session, pid: int) -> list[GpuRow]:
    """Those that one process uses; all of the run where it has not said which."""
    process = session.process(pid)
    told = {bare_uuid(uuid) for uuid in process.gpu_uuids} if process is not None else set()
    rows = run_gpus(session)
    return [row for row in rows if bare_uuid(row.latest.uuid) in told] or rows


def utilisation(row: GpuRow) -> float | None:
    """Mean of the last half minute; None where it is not told."""
    known = [ratio for ratio in row.util_history[-_RECENT:] if ratio is not None]
    return sum(known) / len(known) if len(known) >= 3 else None


def noticed(session: Session, pid: int, phase: PhaseRow) -> tuple[float, float] | None:
    """Share of the step that the GPU idles in a phase of the CPU, at least and at most; None without GPU events.

    What launches run ahead covers, the GPU does not notice. Where samples divide the phases, the GPU knows them only
    together.
    """
    picture = picture_of(session, pid)
    if picture is None:
        return None
    names = ("data", "forward", "other") if phase.estimated else (phase.name,)
    certain, at_most = picture.idle_in(*names)
    elsewhere = picture.idle_in(*(name for name in picture.phases if name not in names))[1]
    at_most = min(phase.share, at_most, picture.idle_at_most)
    return min(at_most, max(certain, picture.idle - elsewhere)), at_most


def awaited(session: Session, pid: int) -> bool:
    """Whether the GPU's clock is still to tell: what the CPU waits for may be a GPU at work."""
    process, stats = session.process(pid), session.step_stats(pid)
    if process is None or not process.markers or stats is None or stats.first_step_s is None:
        return False
    if session.now_s - stats.first_step_s > AWAITED_S or uses_gpu(session, pid) is not True:
        return False
    return picture_of(session, pid) is None


def gpu_idle(on_gpu: tuple[float, float] | None) -> dict[str, float | int | str | None]:
    """What ``noticed`` found, as evidence."""
    return {} if on_gpu is None else {"gpu_idle_at_least": on_gpu[0], "gpu_idle_at_most": on_gpu[1]}
