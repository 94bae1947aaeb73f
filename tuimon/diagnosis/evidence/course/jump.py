"""Steps that take longer since one moment of the run."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from msgspec import Struct

from tuimon.diagnosis.evidence.course.history import WARMUP_WINDOWS, GrownPhase, grown_between, grown_line
from tuimon.diagnosis.evidence.course.trend import jump_in
from tuimon.records import Place
from tuimon.session.session import Session


class Jump(Struct, frozen=True, gc=False):
    """Since when, and what has grown."""

    since_s: float  # after the beginning of the run
    step: int  # the first of the window with which it begins
    before_ms: float  # median
    now_ms: float
    phase: GrownPhase
    place: Place | None  # the line of that phase that has grown most


def jump_at(work: Sequence[float | None]) -> tuple[list[int], list[int]] | None:
    """The windows with a step before and since a lasting jump in the steps' own work, in ms; None without one."""
    windows = [number for number, ms in enumerate(work) if ms is not None][WARMUP_WINDOWS:]
    at = jump_in([ms for number in windows if (ms := work[number]) is not None])
    return (windows[:at], windows[at:]) if at is not None else None


def jump_of(
    session: Session,
    pid: int,
    windows: tuple[list[int], list[int]],
    steps_ms: Sequence[float | None],
    parts: Sequence[tuple[float, ...] | None],
) -> Jump | None:
    """The phase and place that grew most between two windows; ``steps_ms``, ``parts``: step time and phases of all."""
    begun = session.begin_of_window(pid, windows[1][0])
    if begun is None or session.start_s is None:
        return None
    before_ms, now_ms = (median(ms for n in some if (ms := steps_ms[n]) is not None) for some in windows)
    phase = grown_between(*([row for n in some if (row := parts[n]) is not None] for some in windows))
    samples = session.before_and_since(pid, begun.begin_s)
    before, since = (end.hot_lines(phase.name) for end in samples) if samples is not None else ([], [])
    place = grown_line(before, since, phase)
    return Jump(begun.begin_s - session.start_s, begun.step, before_ms, now_ms, phase, place)
