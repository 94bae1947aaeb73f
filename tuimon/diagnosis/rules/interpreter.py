"""Rules about Python itself: the GIL, which another thread holds, and the garbage collector, which stops training."""

from __future__ import annotations

from collections import Counter

from tuimon.diagnosis.cells import of_loop
from tuimon.diagnosis.claims import CONFIDENCE, UNSURE, is_sure
from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.lines import is_collecting
from tuimon.diagnosis.evidence.threads import Contention
from tuimon.diagnosis.finding import Change, Finding, Fix
from tuimon.diagnosis.interval import Interval
from tuimon.diagnosis.known import figures, known_of
from tuimon.diagnosis.rule import COLLECTIONS, SAMPLES, Rule
from tuimon.diagnosis.step_model.measured import host_model
from tuimon.diagnosis.threshold import MIN_SAMPLES, REPORTED, TRACE
from tuimon.diagnosis.words import Known, at_hot, in_library, percent
from tuimon.records import Place
from tuimon.session.stacks.samples import HotLine, Samples
from tuimon.text import code_place, ms_text

_MOVE, _RELEASING = "move that work to a process", "code that releases the GIL (NumPy, torch, C)"


def gil_contention(evidence: Evidence) -> Finding | None:
    """Other threads of the training process hold the GIL while the training thread could run.

    Without the work of those threads a step takes 1 - share of its time.
    """
    found, waits = evidence.threads.contention, of_loop(evidence).where(via="gil")
    lost, queued = waits.cpu, waits.where(via="batch").cpu
    if found is None or evidence.gpu.is_used is not False or lost - queued < REPORTED:
        return None  # or the training thread mainly waits at its queue: see input_bound
    place, others = found.place, evidence.threads.others.values()
    known = known_of(place, *others, native=found.culprit.native)
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
            **figures(found.culprit.native),
        },
    )


def _fixes(evidence: Evidence, found: Contention, lost: float, queued: float, known: Known | None) -> tuple[Fix, ...]:
    """The fixes: without that work; or with it in a process, which may set the pace by what the training needs of it.

    Worked example: the training thread waits 70 % of the time for a thread that makes its batches and is on a core for
    80 % of the time. Without that work a step takes 30 % of its time; with the work in a process, 80 %.
    """
    first = f"{known.action}; or " if known is not None else ""
    model = host_model(evidence)._replace(claimed=Interval.around(lost))
    part = Interval.around(lost, min(float(UNSURE), (lost - queued) / 2))
    making = found.culprit.cpu_ratio if found.culprit.cpu_ratio is not None else found.others_hold
    if not (queued or found.feeds) or making <= 1.0 - lost:
        return (model.fix(f"{first}{_MOVE}, or to {_RELEASING}", Change("gil", 0.0), part),)
    fewer = model.fix(f"{first}make that work cheaper, or move it to {_RELEASING}", Change("gil", 0.0), part)
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


# -- Python's garbage collector


def gc_pauses(evidence: Evidence) -> Finding | None:
    """Python's garbage collector stops the training, on any thread; without collections of the compiler's garbage.

    If markers do not report how long collections take, samples show those that the loop calls itself.
    """
    totals, every = evidence.steps.totals, ""
    figures = dict.fromkeys(("pauses", "longest_ms", "gc_ms_per_step"), None)
    share = sum(cell.cpu for cell in of_loop(evidence).where(doing={"gc"}) if not cell.via)
    if (pauses := int(totals.sums.gc_count)) and totals.steps and totals.sums.span_s > 0:
        every_s, longest_ms = totals.sums.span_s / pauses, totals.sums.gc_longest_ns / 1e6
        pace = f"{every_s:.2g} s" if every_s >= 1 else f"{1e3 * every_s:.0f} ms"
        every = f": every {pace}, up to {ms_text(longest_ms)}"
        figures = {
            "pauses": pauses,
            "longest_ms": longest_ms,
            "gc_ms_per_step": totals.sums.gc_ns / totals.steps / 1e6,
        }
    if not is_sure(evidence, share, TRACE if pauses else REPORTED):
        return None
    call = collecting_line(evidence.samples)
    if call is None:
        action = (
            "call gc.freeze() after the set-up, or gc.disable() with a gc.collect() between epochs, and keep large data"
            " in arrays: the collector then scans less"
        )
    elif call.library is None:
        action = f"remove gc.collect() ({code_place(call.place.file, call.place.line)}), or call it once per epoch"
    else:
        action = f"call {at_hot(call)} less often, or not at all"
    model, part = host_model(evidence), Interval.around(share)
    return Finding(
        headline=f"garbage collection stops the training {percent(share)} of the time{every}{in_library(call)}",
        fixes=(model._replace(claimed=part).fix(action, Change("collections", 0.0), part),),
        share_of_step=share,
        where=(call.place,) if call else (),
        evidence={"gc_share": share, **figures},
    )


def collecting_line(samples: Samples) -> HotLine | None:
    """The line with most samples in ``gc.collect()``: the user's, with the library's that it leads to; else None."""
    counts: Counter[tuple[Place, Place | None]] = Counter()
    for row in samples.where(is_collecting).rows:
        leaf, own = row.node.frame, row.node.place
        line = Place(leaf.file, leaf.line, leaf.function, leaf.source)
        counts[(own, None if leaf.user else line) if own is not None else (line, None)] += row.count
    if not counts:
        return None
    (place, library), count = counts.most_common(1)[0]
    return HotLine(place, count / samples.total, count, library)


GC_PAUSES = Rule(
    title="Garbage collections",
    judge=gc_pauses,
    needs=(COLLECTIONS,),
    thresholds=(TRACE, REPORTED, *CONFIDENCE),
    takes=lambda cell, _: cell.doing == "gc" and not cell.via,
)
