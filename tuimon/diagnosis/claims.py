"""Claims on the time of a step, and how sure they are: one confidence decides when a rule speaks."""

from __future__ import annotations

from typing import Literal, NamedTuple

from tuimon.diagnosis.cells import LOOP, Doing, cells
from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.interval import NONE, Interval
from tuimon.diagnosis.threshold import MOST, REPORTED, TRACE, Threshold
from tuimon.session.phase_table import PhaseRow

SETTLED_S = Threshold(
    4.0,
    "seconds that the phase table must cover before a share near its threshold counts",
    "our choice: until then loaders fill their queues",
)
UNSURE = Threshold(
    0.10,
    "how far off a share may be in those seconds, or by few looks at who holds the GIL",
    "our choice: queues that fill or one collection make up less; 37 looks find 0.19 to 0.46 where five times as many"
    " find 0.28",
)
#: The thresholds that decide how sure a claim is, as pages list them.
CONFIDENCE = (SETTLED_S, UNSURE)


class Claim(NamedTuple):
    """The time that something takes of a step."""

    share: float  # with GPU times, what the GPU may idle meanwhile at most
    lost: Interval  # how much of the step that costs
    on_gpu: Interval | None


def claim_on(evidence: Evidence, phase: PhaseRow) -> Claim:
    """The claim of a phase; time that launches cover which run ahead costs the GPU nothing."""
    gpu, error = evidence.gpu.steps, phase.error or 0.0
    if gpu is None:
        return Claim(phase.share, Interval.around(phase.share, error), None)
    idle = gpu.idle_during(phase)
    lost = idle if idle.low >= TRACE else NONE
    return Claim(idle.high, Interval.around(lost.middle, lost.error + error), idle)


def without(evidence: Evidence, phase: PhaseRow, *doing: Doing) -> PhaseRow:
    """A phase without what cells of these kinds, and waits for the GIL, take of it: other rules claim that.

    What is measured, and no sample shows where, goes with whatever causes it, as garbage does with those who make it,
    unless it is most of the phase.
    """
    found = cells(evidence).where(phase=(phase.name,))  # type: ignore[arg-type]  # of a table, so one of a step
    taken = [cell for cell in found if cell.doing in doing or "gil" in cell.via]
    measured, shown = sum(cell.cpu for cell in taken), sum(cell.cpu for cell in taken if cell.basis == "sampled")
    left = 1.0 - (measured if measured >= MOST * found.cpu else shown) / (found.cpu or 1.0)
    return phase._replace(share=left * phase.share, ms_per_step=phase.ms_per_step and left * phase.ms_per_step)


def waits_for_cores(evidence: Evidence, had_by: Literal["own", "others"]) -> float | None:
    """Share of the loop in which the training, or a worker that it waits for, waits for a core that these have."""
    if evidence.threads.training.delay_ratio is None:
        return None
    found = cells(evidence)
    waits = found.where(doing={had_by}, via="core")
    return sum(cell.cpu for cell in waits if "rank" not in cell.via) / (found.where(phase=LOOP).cpu or 1.0)


def is_sure(
    evidence: Evidence, share: float, least: float = REPORTED, error: float | None = None, *, early: bool = True
) -> bool:
    """True if a share of the step is this much at least, as far as samples, known to ``error``, and seconds show.

    ``early``: before the table has settled, too.
    """
    table = evidence.steps.phases
    if table is None or share < least or (error is not None and share - error < least):
        return False
    return table.window_s >= SETTLED_S or (early and share - UNSURE >= least)
