"""The rule about the GIL: another thread's Python code holds up the training thread."""

from __future__ import annotations

from tuimon.diagnosis.evidence.common import at, hottest_of, percent, uses_gpu
from tuimon.diagnosis.evidence.workers import MIN_SAMPLES
from tuimon.diagnosis.finding import Finding
from tuimon.session.rows import ThreadRow
from tuimon.session.samples.activity import activity_of
from tuimon.session.samples.classify import Sample
from tuimon.session.session import Session

#: Share of time in which others hold the GIL while the training thread is held up (proposal of the field notes).
WARN_SHARE = 0.10
CRITICAL_SHARE = 0.30
#: What a training thread waits for on its own account.
_WAITS = ("data", "idle", "io", "lock", "ranks", "sleep", "sync")


def gil_contention(session: Session, pid: int) -> Finding | None:
    """Other threads of the training process hold the GIL while the training thread could run.

    Evidence: the looks that say who holds the GIL, or the CPU of a thread while its samples show Python code; and time
    of the training thread that neither CPU nor the run queue nor a wait of its own explains. The smaller of both is
    told. Abstains without samples or schedstat, and with a GPU, whose waits look alike.
    """
    rows = session.threads_of(pid)
    main = next((row for row in rows if row.tid == pid), None)
    others = [(held, row) for row in rows if row.tid != pid and (held := _holds(session, row))]
    if main is None or main.cpu_ratio is None or main.delay_ratio is None or not others:
        return None
    waits = _waiting(session, pid)
    if waits is None or uses_gpu(session, pid) is not False:
        return None
    held = sum(ratio for ratio, _ in others)
    unexplained = 1.0 - main.cpu_ratio - main.delay_ratio - waits
    share = min(held, unexplained)
    if share < WARN_SHARE:
        return None
    culprit = max(others, key=lambda other: other[0])[1]
    hot = hottest_of((session.frames.user_place(s.stack), s.count) for s in _samples(session, culprit))
    place = hot.place if hot else culprit.place
    return Finding(
        rule="gil_contention",
        severity="critical" if share >= CRITICAL_SHARE else "warning",
        headline=(
            f"the training thread waits about {percent(share)} of the time for the GIL,"
            f" which {at(place) if place else culprit.name} holds in a thread"
        ),
        action="move that work to a process, or to code that releases the GIL (NumPy, torch, C)",
        share_of_step=share,
        where=(place,) if place else (),
        evidence={"others_hold_gil": held, "training_holds_gil": main.gil_ratio, "unexplained": unexplained},
        estimated_speedup=1.0 / (1.0 - share) if share < 1.0 else None,
    )


def _holds(session: Session, row: ThreadRow) -> float | None:
    """Share of time in which a thread holds the GIL: looked at, or running Python code; None where neither is known."""
    if row.gil_ratio is not None:
        return row.gil_ratio
    samples = _samples(session, row)
    total = sum(s.count for s in samples)
    if row.cpu_ratio is None or total < MIN_SAMPLES:
        return None
    python = sum(s.count for s in samples if activity_of([session.frames[n] for n in s.stack]) == "python")
    return row.cpu_ratio * python / total


def _samples(session: Session, row: ThreadRow) -> list[Sample]:
    hotspots = session.hotspots(row.pid)
    return hotspots.samples_of(row.tid) if hotspots and row.count == 1 else []


def _waiting(session: Session, pid: int) -> float | None:
    """Share of the training thread's samples in which it waits on its own account."""
    hotspots = session.hotspots(pid)
    samples = hotspots.samples_of(pid) if hotspots else []
    total = sum(s.count for s in samples)
    if total < MIN_SAMPLES:
        return None
    return sum(s.count for s in samples if activity_of([session.frames[n] for n in s.stack]) in _WAITS) / total
