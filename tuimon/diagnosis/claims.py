"""Claims on the time of a step, and how sure they are: one confidence decides when a rule speaks."""

from __future__ import annotations

from typing import Literal, NamedTuple

from tuimon.diagnosis.cells import Cell, Doing, Phase, gpu_idle_in, of_loop, of_step
from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.interval import NONE, Interval
from tuimon.diagnosis.threshold import MOST, REPORTED, TRACE, Threshold

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


class Claim(NamedTuple):
    """The time that something takes of a step."""

    share: float  # with GPU times, the most that the GPU may idle meanwhile
    error: float | None  # how far off ``share`` may be, where samples divide the phases
    lost: Interval  # how much of the step that costs
    on_gpu: Interval | None
    ms_per_step: float | None  # of the training thread


def claim_on(evidence: Evidence, phase: Phase, *others: Doing) -> Claim:
    """The claim of a phase, without what other rules claim: cells of ``others``, waits for the GIL and for ranks.

    Measured time that no sample locates stays with its cause, as garbage does with the code that makes it, unless other
    rules claim most of the phase. Time that is covered by launches running ahead costs the GPU nothing.
    """
    step, row, mean_ms = of_step(evidence), evidence.steps.phase(phase), evidence.steps.mean_ms

    def is_others(cell: Cell) -> bool:
        return cell.doing in (*others, "exchange") or "gil" in cell.via or "rank" in cell.via

    whole = step.where(phase=(phase,))
    is_most = sum(cell.cpu for cell in whole if is_others(cell)) >= MOST * whole.cpu

    def is_claimed(cell: Cell) -> bool:
        return cell.phase == phase and not (is_others(cell) and (is_most or cell.basis != "measured"))

    error = row.error if row is not None else None
    share = sum(cell.cpu for cell in step if is_claimed(cell))
    ms = share * mean_ms if mean_ms is not None else None
    if evidence.gpu.steps is None:
        return Claim(share, error, Interval.around(share, error or 0.0), None, ms)
    idle = gpu_idle_in(evidence, is_claimed).up_to(share)
    lost = idle if idle.low >= TRACE else NONE
    return Claim(idle.high, error, Interval.around(lost.middle, lost.error + (error or 0.0)), idle, ms)


def waits_for_cores(evidence: Evidence, had_by: Literal["own", "others"]) -> float | None:
    """Share of the loop in which the training, or a worker it waits for, waits for a core that ``had_by`` occupies."""
    if evidence.training.delay_ratio is None:
        return None
    return sum(cell.cpu for cell in of_loop(evidence).where(doing={had_by}, via="core") if "rank" not in cell.via)


def is_sure(
    evidence: Evidence, share: float, least: float = REPORTED, error: float | None = None, *, early: bool = True
) -> bool:
    """True if a share of the step is at least ``least``, given its ``error`` and the seconds measured so far.

    ``early``: also before the phase table has settled.
    """
    table = evidence.steps.phases
    if table is None or share < least or (error is not None and share - error < least):
        return False
    return table.window_s >= SETTLED_S or (early and share - UNSURE >= least)
