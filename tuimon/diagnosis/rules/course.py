"""Rules about a run's course: steps that grow longer, and a step that never ends."""

from __future__ import annotations

from statistics import median, quantiles

from tuimon.diagnosis.evidence.common import at, hottest_function, percent
from tuimon.diagnosis.finding import Finding
from tuimon.session.session import Session
from tuimon.session.steps import STACKED

#: Windows compared: the first after warm-up, and the latest (about a minute each).
SPAN_WINDOWS = 60
WARMUP_WINDOWS = 10
#: Growth from which a drift is told (proposal); the two spans' middle halves must not overlap either.
DRIFT_RATIO = 1.15
#: A step is taken to hang after so long, and after so many times the longest step before (proposals).
HANG_S = 60.0
HANG_RATIO = 10.0
#: CPU of the trainer and of each worker up to which nothing moves.
IDLE_CPU = 0.05


def step_time_drift(session: Session, pid: int) -> Finding | None:
    """Steps take longer than they did at the beginning.

    Evidence: median step time of the last minute against that of the first after warm-up; quartiles that do not
    overlap.
    """
    history = session.step_history(pid)
    early = [ms for ms in history[WARMUP_WINDOWS : WARMUP_WINDOWS + SPAN_WINDOWS] if ms is not None]
    late = [ms for ms in history[WARMUP_WINDOWS + SPAN_WINDOWS :][-SPAN_WINDOWS:] if ms is not None]
    if min(len(early), len(late)) < SPAN_WINDOWS // 2:
        return None
    before, now = median(early), median(late)
    if now < DRIFT_RATIO * before or quantiles(late)[0] <= quantiles(early)[2]:
        return None
    phase, grown_ms = _grown(session, pid)
    hot = hottest_function(session.hot_lines(pid, phase)) if phase else None
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
    )


def _grown(session: Session, pid: int) -> tuple[str | None, float | None]:
    """The phase whose time a step has grown most."""
    history = session.phase_history(pid, len(session.step_history(pid)))
    early = [parts for parts in history[WARMUP_WINDOWS : WARMUP_WINDOWS + SPAN_WINDOWS] if parts]
    late = [parts for parts in history[-SPAN_WINDOWS:] if parts]
    if not early or not late:
        return None, None
    grown = [median(x) - median(y) for x, y in zip(zip(*late, strict=True), zip(*early, strict=True), strict=True)]
    most = max(range(len(grown)), key=grown.__getitem__)
    return (STACKED[most] if STACKED[most] != "between" else None), grown[most]


def _seconds(ms: float) -> str:
    return f"{ms / 1e3:.2g} s" if ms < 1e4 else f"{ms / 1e3:.0f} s"


def hang(session: Session, pid: int) -> Finding | None:
    """Nothing has moved for far longer than the longest step: a lock, a dead peer, a stuck worker.

    Evidence: how long the trainer has been in its phase, against the longest step before; no CPU time used by it or its
    workers, and the same stack in every sample of half a minute. Abstains without steps or thread figures, and when the
    run has ended.
    """
    summary, stats = session.steps(pid), session.step_stats(pid)
    threads = session.process_threads(pid)
    if session.exit is not None or summary is None or stats is None or threads is None or threads.cpu_ratio is None:
        return None
    open_s, longest_ms = summary.open_for_s, stats.run.quantile_ms(1.0)
    if open_s is None or longest_ms is None or open_s < max(HANG_S, HANG_RATIO * longest_ms / 1e3):
        return None
    around = [t.cpu_ratio for w in session.workers(pid) if (t := session.process_threads(w.pid)) and t.cpu_ratio]
    if max([threads.cpu_ratio, *around]) > IDLE_CPU:
        return None
    still_s = session.same_stack_s(pid, pid)
    if still_s is not None and still_s < 0.5 * HANG_S:
        return None
    hotspots = session.hotspots(pid)
    place = hotspots.place(pid) if hotspots else None
    return Finding(
        rule="hang",
        severity="critical",
        headline=(
            f"nothing has moved for {open_s:.0f} s in {summary.open_phase}{f': {at(place)}' if place else ''};"
            f" the longest step before took {_seconds(longest_ms)}"
        ),
        action="look at that line: a lock, a queue, a dead rank or worker, storage that does not answer",
        where=(place,) if place else (),
        evidence={"open_for_s": open_s, "open_phase": summary.open_phase, "longest_step_ms": longest_ms},
    )
