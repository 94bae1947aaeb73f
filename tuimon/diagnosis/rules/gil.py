"""The rule about the GIL: another thread's Python code holds up the training thread."""

from __future__ import annotations

from tuimon.diagnosis.cells import LOOP, cells
from tuimon.diagnosis.claims import UNSURE
from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.threads import Contention
from tuimon.diagnosis.finding import Change, Finding, Fix
from tuimon.diagnosis.interval import Interval
from tuimon.diagnosis.known import known_of
from tuimon.diagnosis.rule import SAMPLES, Rule
from tuimon.diagnosis.step_model.measured import host_model
from tuimon.diagnosis.threshold import MIN_SAMPLES, REPORTED
from tuimon.diagnosis.words import Known, in_library, percent

_MOVE, _RELEASING = "move that work to a process", "code that releases the GIL (NumPy, torch, C)"


def gil_contention(evidence: Evidence) -> Finding | None:
    """Other threads of the training process hold the GIL while the training thread could run.

    Without that work a step takes 1 - share of its time.
    """
    found, divided = evidence.threads.contention, cells(evidence).where(phase=LOOP)
    waits = divided.where(via="gil")
    lost, queued = (part.cpu / (divided.cpu or 1.0) for part in (waits, waits.where(via="batch")))
    if found is None or evidence.gpu.is_used is not False or lost - queued < REPORTED:
        return None  # or it is waited for at its queue first of all: input_bound
    place, known = found.place, known_of(found.place, *evidence.threads.others.values())
    beside = f" {percent(queued)} of the time for its batches and" if queued else ""
    return Finding(
        headline=(
            f"the training thread waits{beside} about {percent(lost - queued)} of the time for the GIL, held by"
            f" {'another thread' if place else f'thread {found.culprit.name}'}{in_library(None, known)}"
        ),
        fixes=_fixes(evidence, found, lost, queued, known),
        share_of_step=lost,
        where=(place,) if place else (),
        evidence={
            "others_hold_gil": found.others_hold,
            "training_holds_gil": found.training_holds,
            "unexplained": found.unexplained,
            "queue_wait_share": queued or None,
        },
    )


def _fixes(evidence: Evidence, found: Contention, lost: float, queued: float, known: Known | None) -> tuple[Fix, ...]:
    """Without that work; what the training thread needs of it sets the pace in a process, too.

    Worked example: the training thread waits 70 % of the time for a thread that makes its batches, which is on a core
    for 80 % of it. Without that work a step takes 30 % of its time; with a process that does it, 80 %.
    """
    releasing = f"{_RELEASING}; or {known.action}" if known is not None else _RELEASING
    model = host_model(evidence)._replace(claimed=Interval.around(lost))
    part = Interval.around(lost, min(float(UNSURE), (lost - queued) / 2))
    making = found.culprit.cpu_ratio if found.culprit.cpu_ratio is not None else found.others_hold
    if not (queued or found.feeds) or making <= 1.0 - lost:
        return (model.fix(f"{_MOVE}, or to {releasing}", Change("gil", 0.0), part),)
    fewer = model.fix(f"make that work cheaper, or move it to {releasing}", Change("gil", 0.0), part)
    moved = model.fix(f"{_MOVE}, which then sets the pace", Change("gil", 1.0 - (1.0 - making) / lost), part)
    return (fewer, moved) if moved.estimated_speedup else (fewer,)


GIL_CONTENTION = Rule(
    title="Waits for the GIL",
    judge=gil_contention,
    needs=(SAMPLES,),
    thresholds=(REPORTED, UNSURE, MIN_SAMPLES),
    takes=lambda cell, _: "gil" in cell.via,
    contradicts_order=True,
)
