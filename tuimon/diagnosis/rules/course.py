"""Rules about a run's course: steps that grow longer, and a step that never ends."""

from __future__ import annotations

from statistics import median, quantiles

from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.history import SPAN_WINDOWS, early_windows, late_windows, most_grown
from tuimon.diagnosis.finding import Finding
from tuimon.diagnosis.needs import BOUNDARIES, STEP_TIMES
from tuimon.diagnosis.rule import Rule
from tuimon.diagnosis.threshold import Threshold
from tuimon.diagnosis.words import at, percent
from tuimon.records import BETWEEN, Place

DRIFT_RATIO = Threshold(
    1.15,
    "growth of the median step time from which it is a drift",
    "our choice: 15 % over a run is worth a search; the middle halves of both minutes must not overlap either, which"
    " keeps noise out",
)
HANG_S = Threshold(
    10.0,
    "seconds in one phase, with every thread idle, from which a training may hang",
    "our choice: evaluation, compilation and the start of workers use the CPU, and what waits for a disk, the network"
    " or a person is given longer",
)
PATIENT_S = Threshold(
    60.0,
    "seconds in one phase from which a training may hang that waits for a file, the network or a prompt",
    "our choice: longer than checkpoints and downloads usually pause a loop",
)
HANG_RATIO = Threshold(
    10.0,
    "times the longest step so far that a step must be open to count as a hang",
    "our choice: it excuses loops that were this slow before; a hang is reported that much later",
)
IDLE_CPU = Threshold(
    0.05,
    "CPU of the trainer and of each worker up to which nothing moves",
    "our choice: room for heartbeat and watchdog threads, far below any work",
)


#: How many other threads a hang names: who holds what the training waits for is among the first.
MOST_OTHERS = 2


def step_time_drift(evidence: Evidence) -> Finding | None:
    """Steps take longer than they did at the beginning."""
    early, late = early_windows(evidence.step_history), late_windows(evidence.step_history)
    if min(len(early), len(late)) < SPAN_WINDOWS // 2:
        return None
    before, now = median(early), median(late)
    if now < DRIFT_RATIO * before or quantiles(late)[0] <= quantiles(early)[2]:
        return None
    phase, grown_ms = most_grown(evidence.phase_history) or (None, None)
    hot = evidence.hottest_in(phase) if phase else None
    cause = f", most of it in {phase}" if phase else ""
    return Finding(
        rule="step_time_drift",
        severity="warning",
        headline=f"steps take {percent(now / before - 1)} longer than at first: {before:.3g} -> {now:.3g} ms{cause}",
        action="look for what grows with the steps: lists of losses, kept graphs (detach), logs",
        share_of_step=1.0 - before / now,
        where=(hot.place,) if hot else (),
        evidence={"first_ms": before, "now_ms": now, "grown_phase": phase, "grown_ms": grown_ms},
        estimated_speedup=now / before,
        speedup_at_least=quantiles(late)[0] / quantiles(early)[2],
    )


def hang(evidence: Evidence) -> Finding | None:
    """Nothing has moved for far longer than the longest step: a lock, a dead peer, a stuck worker."""
    steps, threads = evidence.steps, evidence.threads
    if evidence.run.has_ended or steps is None or threads is None or threads.cpu_ratio is None:
        return None
    if steps.open_for_s is None or steps.open_for_s < HANG_S:
        return None
    still = evidence.standstill
    if still.longest_step_ms is None or steps.open_for_s < HANG_RATIO * still.longest_step_ms / 1e3:
        return None
    if max((threads.cpu_ratio, *still.worker_cpu_ratios)) > IDLE_CPU:
        return None
    if still.is_still is False or (still.waits_outside and steps.open_for_s < PATIENT_S):
        return None
    place, others = still.place, still.others[:MOST_OTHERS]
    return Finding(
        rule="hang",
        severity="critical",
        headline=(
            f"nothing has moved for {steps.open_for_s:.0f} s{_standing(steps.open_phase, place, others)};"
            f" the longest step before took {_seconds(still.longest_step_ms)}"
        ),
        action="look at that line: a lock, a queue, a dead rank or worker, storage that does not answer",
        where=tuple(dict.fromkeys((*((place,) if place else ()), *others))),
        evidence={
            "open_for_s": steps.open_for_s,
            "open_phase": steps.open_phase,
            "longest_step_ms": still.longest_step_ms,
        },
    )


def _standing(phase: str | None, place: Place | None, others: tuple[Place, ...]) -> str:
    """Where all threads stand: ``in backward: gather() train.py:9, and a thread at put() q.py:7``."""
    inside = f" in {phase}" if phase not in (None, BETWEEN) else ""
    at_once = ", and a thread at ".join(at(each) for each in (*((place,) if place else ()), *others))
    return f"{inside}: {at_once}" if at_once else inside


def _seconds(ms: float) -> str:
    return f"{ms / 1e3:.2g} s" if ms < 1e4 else f"{ms / 1e3:.0f} s"


RULES = (
    Rule(
        name="hang",
        title="Hang",
        order=10,
        judge=hang,
        explanation=(
            "The training has been in one phase for far longer than any step took before, and neither it nor its"
            " workers use the CPU, and its stack does not change: a lock, a dead rank or worker, or storage that does"
            " not answer. What waits for a file, the network, a sleep or a prompt is given a minute. It abstains"
            " without markers or thread figures, and once the run has ended."
        ),
        needs=(BOUNDARIES,),
        thresholds=(HANG_S, PATIENT_S, HANG_RATIO, IDLE_CPU),
        of_moment=True,
        is_harm=True,
        before_steps=True,
        contradicts_order=True,
    ),
    Rule(
        name="step_time_drift",
        title="Steps grow longer",
        order=130,
        judge=step_time_drift,
        explanation=(
            "Steps take longer than at the beginning: something grows with them. It compares the median step time of"
            " the latest minute with that of the first one after warm-up, and names the phase that has grown most."
        ),
        needs=(STEP_TIMES,),
        thresholds=(DRIFT_RATIO,),
    ),
)
