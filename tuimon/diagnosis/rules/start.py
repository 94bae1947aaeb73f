"""Rules about the beginning of a run."""

from __future__ import annotations

from tuimon.diagnosis.finding import Finding
from tuimon.session.session import Session

#: First steps slower than this many medians are warm-up: compilation, autotuning, caches (proposal).
SLOW_RATIO = 3.0
#: Until so many steps have ended, the figures are those of the start.
FIRST_STEPS = 3
#: For how long after the first step a slow start is worth the verdict line.
FRESH_S = 3.0


def warmup(session: Session, pid: int) -> Finding | None:
    """The run has only just begun: the first steps compile, tune and fill caches.

    Evidence: the slowest of the first five steps against the median, or a first step that is still going.
    """
    stats = session.step_stats(pid)
    if stats is None or stats.latest is None or session.exit is not None:
        return None
    summary = session.steps(pid)
    if stats.first_step_s is None or summary is None:
        return Finding(
            rule="warmup",
            severity="info",
            headline="the first step has not ended yet: loading, compiling or filling caches",
            action="wait: figures follow with the first steps",
            evidence={"open_phase": stats.latest.open_phase, "open_for_s": stats.latest.open_for_s},
        )
    median, first = summary.median_ms, stats.first_slow_ms
    if median is None or session.now_s - stats.first_step_s > FRESH_S:
        return None
    slow = first is not None and first > SLOW_RATIO * median
    if not slow and stats.total >= FIRST_STEPS:
        return None
    ratio = f", {first / median:.0f} times the median" if slow and first is not None else ""
    return Finding(
        rule="warmup",
        severity="info",
        headline=f"the run has just begun: the slowest of the first steps took {first or median:.0f} ms{ratio}",
        action="wait: the first steps compile, tune and fill caches",
        evidence={"first_slowest_ms": first, "median_ms": median, "steps": stats.total},
    )
