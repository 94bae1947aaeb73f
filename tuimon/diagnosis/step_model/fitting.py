"""Fits a step to the length that was measured, if its simulation takes another; its GPU's part with it."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from tuimon.diagnosis.cells import Cells, Phase, of_step
from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.workers import SATURATED_BUSY
from tuimon.diagnosis.step_model.edits import Step, Wait
from tuimon.diagnosis.step_model.simulation import step_ms
from tuimon.diagnosis.threshold import TRACE

#: How closely what slows a step must explain how long it takes, as a part of that; and after how many tries the nearest
#: is taken.
_CLOSE, _TRIES = 0.005, 8
#: How far a step simulated with its GPU may be off, as a part of the measured one: at most 0.05 in tests/scenarios.
_FITS = 0.10
#: Phases before which, or at whose beginning, a wait for the GPU comes before anything is launched.
_BEFORE_LAUNCHES: tuple[Phase, ...] = ("data", "forward")


def _matching(step_of: Callable[[float], Step], short: float, long: float, mean_ms: float) -> Step:
    """The step between the shortest and the longest that takes ``mean_ms``; the nearer end if none does.

    By false position: a step gets longer by nearly the same for each part of what makes it longer.
    """
    found = step_of(short)
    below_ms = mean_ms - step_ms(found)
    if below_ms <= 0.0:
        return found
    found = step_of(long)
    above_ms = step_ms(found) - mean_ms
    for _ in range(_TRIES if above_ms > 0.0 else 0):
        middle = short + (long - short) * below_ms / (below_ms + above_ms)
        found = step_of(middle)
        off_ms = step_ms(found) - mean_ms
        if abs(off_ms) <= _CLOSE * mean_ms:
            break
        if off_ms < 0.0:
            short, below_ms = middle, -off_ms
        else:
            long, above_ms = middle, off_ms
    return found


def waiting_for_workers(step: Step, mean_ms: float, busy: float) -> Step:
    """The step, whose batches come late, as long as was measured: each takes as long as busy workers have for it.

    At the beginning of an epoch none is ready.
    """
    if busy < SATURATED_BUSY:
        return step
    return _matching(lambda made_ms: replace(step, batch_ms=made_ms), step.batch_ms, step.batch_ms / busy, mean_ms)


def explained(step: Step, mean_ms: float) -> Step:
    """The step with its unexplained time as a wait of the training thread that no fix shortens."""
    missing_ms = mean_ms - step_ms(step)
    if missing_ms <= 0.0:
        return step
    own_ms = step.own_ms + missing_ms
    return replace(step, own_ms=own_ms, own_running=step.own_running * step.own_ms / own_ms)


def with_gpu(step: Step, evidence: Evidence, whole_ms: float, idle: float) -> Step | None:
    """The step with its GPU, which idles this share of it; None where nothing is known of it, or nothing fits.

    The place of the training thread's wait is not known exactly: a wait among the side work comes before it, and the
    GPU has nothing to do meanwhile, or after it. The model that fits the measured step best counts.
    """
    gpu = evidence.gpu.steps
    if gpu is None or evidence.gpu.waits is None or gpu.contradiction is not None or evidence.world_size > 1:
        return None
    waits = of_step(evidence).where(doing={"sync", "copy"})
    beside = evidence.steps.phase("other")
    beside_ms = (beside.ms_per_step or 0.0) if beside is not None else 0.0
    own_ms = max(0.0, step.own_ms - waits.cpu * whole_ms)
    known = replace(
        step,
        own_ms=own_ms,
        own_running=1.0,
        side_ms=min(own_ms, max(0.0, beside_ms - waits.where({"other"}, {"sync"}).cpu * whole_ms)),
        gpu_ms=whole_ms * (1.0 - idle),
    )
    best = min((replace(known, waits=at) for at in _where(waits)), key=lambda one: abs(step_ms(one) - whole_ms))
    return best if abs(step_ms(best) - whole_ms) <= _FITS * whole_ms else None


def _where(waits: Cells) -> tuple[Wait, ...]:
    """The places at which the training thread may wait."""
    if waits.cpu < TRACE:
        return ("no",)
    early = waits.where(doing={"copy"}).cpu + waits.where(_BEFORE_LAUNCHES, {"sync"}).cpu
    return ("first",) if 2 * early >= waits.cpu else ("launched", "last")
