"""The rule about Python's garbage collector: it stops the training, by itself or because the loop calls for it."""

from __future__ import annotations

from collections import Counter

from tuimon.diagnosis.cells import LOOP, cells
from tuimon.diagnosis.claims import CONFIDENCE, is_sure
from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.lines import is_collecting
from tuimon.diagnosis.finding import Change, Finding
from tuimon.diagnosis.interval import Interval
from tuimon.diagnosis.rule import COLLECTIONS, Rule
from tuimon.diagnosis.step_model.measured import host_model
from tuimon.diagnosis.threshold import REPORTED, TRACE
from tuimon.diagnosis.words import at_hot, in_library, percent
from tuimon.records import Place
from tuimon.session.stacks.samples import HotLine, Samples
from tuimon.text import code_place, ms_text


def gc_pauses(evidence: Evidence) -> Finding | None:
    """Python's garbage collector stops the training, on whatever thread it runs; not what a compiler's garbage takes.

    Where no marker tells how long it takes, what the loop calls for is known by samples.
    """
    divided, totals, every = cells(evidence).where(phase=LOOP), evidence.steps.totals, ""
    figures = dict.fromkeys(("pauses", "longest_ms", "gc_ms_per_step"), None)
    share = sum(cell.cpu for cell in divided.where(doing={"gc"}) if not cell.via) / (divided.cpu or 1.0)
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
