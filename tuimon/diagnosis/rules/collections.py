"""The rule about Python's garbage collector: it stops the training, by itself or because the loop calls for it."""

from __future__ import annotations

from collections.abc import Mapping

from tuimon.diagnosis.cells import cells
from tuimon.diagnosis.claims import CONFIDENCE, is_sure
from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.lines import collecting_line, sampled_collections
from tuimon.diagnosis.finding import Change, Finding, Fix
from tuimon.diagnosis.interval import Interval
from tuimon.diagnosis.rule import COLLECTIONS, Rule
from tuimon.diagnosis.step_model.measured import host_model
from tuimon.diagnosis.threshold import REPORTED, TRACE
from tuimon.diagnosis.words import at_hot, in_library, percent
from tuimon.session.rows import HotLine
from tuimon.text import code_place, ms_text


def gc_pauses(evidence: Evidence) -> Finding | None:
    """Python's garbage collector stops the training, on whatever thread it runs."""
    steps = evidence.steps
    collections = steps.collections if steps is not None else None
    if steps is None or collections is None:
        return _sampled(evidence)
    if not collections.pauses or not steps.recent or steps.window_s <= 0:
        return None
    found = cells(evidence).where(doing={"gc"})
    of_compiler = found.where(via="compile").cpu / (found.cpu or 1.0)  # which is its own affair
    share = min(1.0, (1.0 - of_compiler) * collections.total_ns / (steps.window_s * 1e9))
    if not is_sure(evidence, share, TRACE):
        return None
    call = collecting_line(evidence.samples)
    every_s = steps.window_s / collections.pauses
    every = f"{every_s:.2g} s" if every_s >= 1 else f"{1e3 * every_s:.0f} ms"
    longest_ms = collections.longest_ns / 1e6
    return _finding(
        evidence,
        share,
        call,
        f": every {every}, up to {ms_text(longest_ms)}",
        {
            "pauses": collections.pauses,
            "longest_ms": longest_ms,
            "gc_ms_per_step": collections.total_ns / steps.recent / 1e6,
        },
    )


def _sampled(evidence: Evidence) -> Finding | None:
    """Collections that the loop calls for, where no marker tells how long they take."""
    main = evidence.samples
    call, share = collecting_line(main.in_steps), sampled_collections(main)
    if call is None or share is None or not is_sure(evidence, share, 0.0):
        return None
    unknown = dict.fromkeys(("pauses", "longest_ms", "gc_ms_per_step"))
    return _finding(evidence, share, call, "", unknown)


def _finding(
    evidence: Evidence, share: float, call: HotLine | None, more: str, figures: Mapping[str, float | None]
) -> Finding:
    """The finding; ``more`` is added to its headline."""
    fix = _fewer_collections(evidence, call, share)
    return Finding(
        headline=f"garbage collection stops the training {percent(share)} of the time{more}{in_library(call)}",
        fixes=(fix,),
        share_of_step=share,
        where=(call.place,) if call else (),
        evidence={"gc_share": share, **figures},
    )


def _fewer_collections(evidence: Evidence, call: HotLine | None, share: float) -> Fix:
    if call is not None:
        action = f"call {at_hot(call)} less often, or not at all"
        if call.library is None:
            action = f"remove gc.collect() ({code_place(call.place.file, call.place.line)}), or call it once per epoch"
    else:
        action = (
            "call gc.freeze() after the set-up, or gc.disable() with a gc.collect() between epochs, and keep large data"
            " in arrays: the collector then scans less"
        )
    return (
        host_model(evidence)
        ._replace(claimed=Interval.around(share))
        .fix(action, Change("collections", 0.0), Interval.around(share))
    )


GC_PAUSES = Rule(
    title="Garbage collections",
    judge=gc_pauses,
    explanation=(
        "Python's garbage collector stops the training, on whatever thread it runs. It rests on the time in collections"
        " of half a millisecond and more, reported by gc.callbacks in the process; the line of an explicit gc.collect()"
        " comes from samples; without markers, its time as well."
    ),
    needs=(COLLECTIONS,),
    thresholds=(TRACE, REPORTED, *CONFIDENCE),
    takes=lambda cell, _: cell.doing == "gc" and not cell.via,
)
