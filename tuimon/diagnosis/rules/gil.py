"""The rule about the GIL: another thread's Python code holds up the training thread."""

from __future__ import annotations

from typing import NamedTuple

from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.lines import hottest_place
from tuimon.diagnosis.evidence.samples import MIN_SAMPLES, ThreadSamples
from tuimon.diagnosis.finding import Finding
from tuimon.diagnosis.needs import SAMPLES
from tuimon.diagnosis.rule import Rule
from tuimon.diagnosis.step_model.measured import host_model
from tuimon.diagnosis.step_model.model import Part
from tuimon.diagnosis.threshold import Threshold
from tuimon.diagnosis.words import at, percent
from tuimon.records import Place
from tuimon.session.rows import ThreadRow

WARN_SHARE = Threshold(
    0.10,
    "share of time in which others hold the GIL while the training thread waits, from which it is a warning",
    "our choice, as for input; measured in tests/scenarios: 0.86 of the time in busy_thread, 0.00 elsewhere",
)
HELD_ERROR = Threshold(
    0.10,
    "share of time by which the share in which others hold the GIL may be off, at most half of it",
    "our choice: one window of 37 looks finds 0.19 to 0.46 where five find 0.28 (a thread that prepares batches)",
)
#: What a thread waits for on its own account, and holds no GIL meanwhile.
_WAITS = ("data", "idle", "io", "lock", "ranks", "sleep", "sync")


class _Contention(NamedTuple):
    """Who holds the GIL while the training thread could run; shares are of the time."""

    share: float
    others_hold: float
    training_holds: float | None
    unexplained: float  # time of the training thread
    culprit: ThreadRow  # the thread that holds it for longest
    place: Place | None  # what it does


def gil_contention(evidence: Evidence) -> Finding | None:
    """Other threads of the training process hold the GIL while the training thread could run.

    Without that work a step takes 1 - share of its time.
    """
    found = _contention(evidence) if evidence.uses_gpu is False else None
    if found is None:
        return None
    place = found.place
    best, *more = host_model(evidence).less(
        "move that work to a process, or to code that releases the GIL (NumPy, torch, C)",
        "do half as much of it",
        "gil",
        Part(found.share, min(float(HELD_ERROR), found.share / 2)),
    )
    return Finding(
        rule="gil_contention",
        severity="warning",
        headline=(
            f"the training thread waits about {percent(found.share)} of the time for the GIL,"
            f" which {at(place) if place else found.culprit.name} holds in a thread"
        ),
        action=best.action,
        share_of_step=found.share,
        where=(place,) if place else (),
        evidence={
            "others_hold_gil": found.others_hold,
            "training_holds_gil": found.training_holds,
            "unexplained": found.unexplained,
        },
        estimated_speedup=best.estimated_speedup,
        speedup_at_least=best.low,
        speedup_at_most=best.high,
        change=best.change,
        other_fixes=tuple(more),
    )


def _contention(evidence: Evidence) -> _Contention | None:
    """How much of the time it takes, where that is enough for a warning.

    That is the smaller of two: time in which others hold the GIL, and time of the training thread that neither CPU nor
    the run queue nor a wait of its own explains.
    """
    main = next((row for row in evidence.thread_rows if row.tid == evidence.training_tid), None)
    if main is None or main.cpu_ratio is None or main.delay_ratio is None:
        return None
    waits = evidence.stacks.main.share_where(lambda sample: sample.activity in _WAITS)
    if waits is None:
        return None
    others = [(held, row) for row in evidence.thread_rows if row is not main and (held := _held(evidence, row))]
    held = sum(ratio for ratio, _ in others)
    unexplained = 1.0 - main.cpu_ratio - main.delay_ratio - waits
    share = min(held, unexplained)
    if not others or share < WARN_SHARE:
        return None
    culprit = max(others, key=lambda other: other[0])[1]
    working = (sample for sample in _samples(evidence, culprit).stacks if sample.activity not in _WAITS)
    hot = hottest_place((sample.place, sample.count) for sample in working)
    return _Contention(share, held, main.gil_ratio, unexplained, culprit, hot.place if hot else culprit.place)


def _held(evidence: Evidence, row: ThreadRow) -> float | None:
    """Share of time in which a thread holds the GIL: as dumps show, or while it runs Python; None where unknown."""
    if row.gil_ratio is not None:
        return row.gil_ratio
    samples = _samples(evidence, row)
    if row.cpu_ratio is None or samples.total < MIN_SAMPLES:
        return None
    return row.cpu_ratio * samples.activities["python"] / samples.total


def _samples(evidence: Evidence, row: ThreadRow) -> ThreadSamples:
    return evidence.stacks.other_threads.get(row.tid, ThreadSamples()) if row.count == 1 else ThreadSamples()


RULES = (
    Rule(
        name="gil_contention",
        title="Waits for the GIL",
        order=100,
        judge=gil_contention,
        explanation=(
            "Another thread of the training process holds the GIL while the training thread could run. It rests on"
            " dumps that show who holds the GIL, or on a thread's CPU while its samples show Python code, and on time"
            " of the training thread that nothing else explains; the smaller of both counts. It abstains without"
            " samples or schedstat, and with a GPU, whose waits look alike."
        ),
        needs=(SAMPLES,),
        thresholds=(WARN_SHARE, HELD_ERROR, MIN_SAMPLES),
        contradicts_order=True,
    ),
)
