"""A row of the rule table: the definition of one rule, and the time that its findings may claim."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

from msgspec import Struct

from tuimon.diagnosis.cells import Cell, CellPhase, Cells, Doing, gpu_idle_in, loop_cells, step_cells
from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.finding import Finding
from tuimon.diagnosis.needs import Need
from tuimon.interval import NONE, Interval
from tuimon.records import PASSES
from tuimon.threshold import MOST, REPORTED, SMALL, TINY, Threshold


class Unclaimed(NamedTuple):
    """The part of a step that no finding explains."""

    evidence: Evidence
    cells: Cells  # shares of a step
    found: tuple[Finding, ...]  # the findings that show a fault of the loop
    holds_up: bool  # one of them is at least a warning

    @property
    def computes(self) -> dict[str, float]:
        """By phase, the share of a step in which the training thread runs a pass or an update."""
        return {name: self.cells.computing.where({name}).share for name in PASSES}


#: The meaning of a rule's findings, unless they are benign:
#: - ``harm``: something may end the run. It is severe whatever a fix gains, and first among findings of its severity.
#: - ``late``, ``fault``, ``leftovers``: a fault of the loop, which contradicts that it is in order. ``late`` claims its
#:   time before any other. ``leftovers`` claims what others leave: a finding that explains at least half of the same
#:   time comes before it.
#: - ``fact``: a fact that is neither.
#: - ``no_fault``: the loop has no fault. Without a cause it is dropped if a fault is found; a benign finding comes
#:   before findings that are not worth a fix. It, too, claims what others leave.
#: - ``outside``: a cause outside the run, after all causes inside it.
Kind = Literal["harm", "late", "fault", "leftovers", "fact", "no_fault", "outside"]


class Rule(Struct, frozen=True):
    """One rule. It abstains if any of ``needs`` is missing; ``judge`` returns None if it finds nothing."""

    judge: Callable[[Evidence], Finding | None]
    title: str  # for people, in a few words
    needs: tuple[Need, ...]
    kind: Kind = "fact"
    causes: tuple[str, ...] = ()
    takes: Callable[[Cell, Finding], bool] | None = None  # True if a finding claims the time of a cell
    of_unclaimed: Callable[[Unclaimed], Finding | None] | None = None  # judges the time that no other explains
    of_moment: bool = False  # its findings are about a moment, such as full memory, not about steps

    @property
    def name(self) -> str:
        """The name of ``judge``, which is the rule's name in reports and in ``--fail-on``."""
        return self.judge.__name__

    @property
    def is_fault(self) -> bool:
        """True if its findings, unless benign, show a fault of the loop."""
        return self.kind in ("late", "fault", "leftovers")

    @property
    def needs_no_step(self) -> bool:
        """True if the rule is judged even before the first step and after the run's end, which it may have caused."""
        return self.kind == "harm" and self.of_moment


# -- how certain the time that a rule claims must be

SETTLED_S = Threshold(
    4.0,
    "seconds that the phase table must cover before a share near its threshold counts",
    "our choice: until then loaders fill their queues",
)
UNSURE = Threshold(
    0.10,
    "tolerance of a share in the first seconds, or of one from few readings of the GIL's holder",
    "our choice: filling queues or one collection make up less; 37 readings gave 0.19 to 0.46 where five times as"
    " many gave 0.28",
)


class Claim(NamedTuple):
    """A claim on a part of a step's time."""

    share: float  # if GPU times are known, the upper bound of the GPU's idle time in it
    error: float | None  # of ``share``, if samples divide the phases
    lost: Interval  # the share of the step that this costs
    on_gpu: Interval | None
    ms_per_step: float | None  # of the training thread


def claim_on(evidence: Evidence, phase: CellPhase, *others: Doing) -> Claim:
    """The claim of a phase, without the cells of other rules: those of ``others``, and waits for the GIL and for ranks.

    Measured time that no sample locates stays with the phase (garbage collections with the code that makes the
    garbage), unless other rules claim most of the phase. So does time that is too little for a finding of another rule:
    the share is then that of the phase. Time that launches cover by running ahead costs the GPU nothing.
    """
    step, row, mean_ms = step_cells(evidence), evidence.phases.row(phase), evidence.phases.mean_ms

    def is_others(cell: Cell) -> bool:
        return cell.doing in (*others, "exchange") or "gil" in cell.via or "rank" in cell.via

    whole = step.where(phase=(phase,))
    taken = sum(cell.share for cell in whole if is_others(cell))
    is_most, is_little = taken >= MOST * whole.share, taken < SMALL

    def is_claimed(cell: Cell) -> bool:
        stays = not is_others(cell) or (not is_most and (is_little or cell.basis == "measured"))
        return cell.phase == phase and stays

    error = row.error if row is not None else None
    share = sum(cell.share for cell in step if is_claimed(cell))
    ms = share * mean_ms if mean_ms is not None else None
    if evidence.gpu.steps is None:
        return Claim(share, error, Interval.around(share, error or 0.0), None, ms)
    idle = gpu_idle_in(evidence, is_claimed).up_to(share)
    lost = idle if idle.low >= TINY else NONE
    return Claim(idle.high, error, Interval.around(lost.middle, lost.error + (error or 0.0)), idle, ms)


def waits_for_cores(evidence: Evidence, had_by: Literal["own", "others"]) -> float | None:
    """Share of the loop in which the training, or a worker it waits for, waits for a core that ``had_by`` occupies."""
    if evidence.training.delay_ratio is None:
        return None
    return sum(cell.share for cell in loop_cells(evidence).where(doing={had_by}, via="core") if "rank" not in cell.via)


def is_sure(
    evidence: Evidence, share: float, least: float = REPORTED, error: float | None = None, *, early: bool = True
) -> bool:
    """True if a share of the step is surely ``least`` or more, given its ``error`` and the seconds measured so far.

    ``early``: a share well above ``least`` counts before the phase table has settled.
    """
    if not evidence.phases or share < least or (error is not None and share - error < least):
        return False
    return evidence.phases.window_s >= SETTLED_S or (early and share - UNSURE >= least)
