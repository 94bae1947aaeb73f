"""The GPU's part in a step, as it was measured: what it computes, and where the training thread waits for it."""

from __future__ import annotations

from msgspec.structs import replace

from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.gpu.steps import SOME_WAITS, GpuSteps
from tuimon.diagnosis.evidence.gpu.waits import GpuWaits
from tuimon.diagnosis.step_model.simulation import step_ms
from tuimon.diagnosis.step_model.step import Step, Wait
from tuimon.diagnosis.threshold import Threshold

FIT = Threshold(
    0.10,
    "relative difference of the simulated step and the measured one, up to which the GPU's queue is understood",
    "our choice: what is further off would add more error to a gain than the bounds of the idle time leave open",
)
#: Phases before which, or at whose beginning, a wait for the GPU comes before anything is launched.
_BEFORE_LAUNCHES = ("data", "forward")


def with_gpu(step: Step, evidence: Evidence, whole_ms: float, idle: float) -> Step | None:
    """The step with its GPU, which idles this share of it; None where nothing is known of it, or nothing fits.

    Where the training thread waits is not known exactly: a wait among the side work comes before it, and the GPU has
    nothing to do meanwhile, or after it. The model that fits the measured step best counts.
    """
    gpu, waits = evidence.gpu_steps, evidence.gpu_waits
    ranks = evidence.process.world_size if evidence.process is not None else None
    if gpu is None or waits is None or gpu.contradiction is not None or (ranks or 1) > 1:
        return None
    waiting_ms = waits.share * whole_ms
    beside_ms = _ms(evidence, "other") - waits.sync_by_phase.get("other", 0.0) * whole_ms
    own_ms = max(0.0, step.own_ms - waiting_ms)
    known = replace(
        step,
        own_ms=own_ms,
        own_running=1.0,
        burst_ms=0.0,
        burst_every=1,
        side_ms=min(own_ms, max(0.0, beside_ms)),
        gpu_ms=whole_ms * (1.0 - idle),
    )
    found = [replace(known, waits=where) for where in _where(gpu, waits)]
    best = min(found, key=lambda one: abs(step_ms(one) - whole_ms))
    return best if abs(step_ms(best) - whole_ms) <= FIT * whole_ms else None


def _where(gpu: GpuSteps, waits: GpuWaits) -> tuple[Wait, ...]:
    """The places at which the training thread may wait."""
    if waits.share < SOME_WAITS:
        return ("no",)
    early = waits.transfer + sum(waits.sync_by_phase.get(phase, 0.0) for phase in _BEFORE_LAUNCHES)
    return ("first",) if 2 * early >= waits.share else ("launched", "last")


def _ms(evidence: Evidence, phase: str) -> float:
    row = evidence.phase(phase)
    return (row.ms_per_step or 0.0) if row is not None else 0.0
