"""How a run has gone: its beginning and its latest part, growth, and lasting jumps of its steps.

Growth is tested by Mann and Kendall's rank test, which holds for any distribution.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from statistics import median, quantiles
from typing import NamedTuple, TypeVar

from msgspec import Struct

from tuimon.diagnosis.threshold import MOST, Threshold
from tuimon.records import BETWEEN, Place
from tuimon.session.series import Span
from tuimon.session.session import Session
from tuimon.session.stacks.process import ProcessStacks
from tuimon.session.step_sums import STACKED, StepStretch, joined

#: Windows with a step that are left out at the beginning: caches and the loaders' queues fill.
WARMUP_WINDOWS = 2
#: Windows with a step below which a run is too short to compare its end with its beginning.
COMPARABLE_WINDOWS = WARMUP_WINDOWS + 16
T = TypeVar("T")
GROWTH_SIGMAS = Threshold(
    4.0,
    "standard deviations by which the rank test must exceed what a series without a trend gives, to count as growth",
    "our choice, by simulation (test_drift): at most 1 % of courses of 300 s (noise, warm-up, jumps, sawteeth) count as"
    " growth when tested every second",
)
DRIFT_RATIO = Threshold(
    1.15,
    "growth of the median step time from which it is a drift",
    "our choice: 15 % over a run is worth a search; the middle halves of both ends must not overlap either, which"
    " keeps noise out",
)
JUMP_AT_ONCE = Threshold(
    0.75,
    "part of a jump (of its logarithm) that lies between the eight windows before it and the eight after it",
    "our choice, by simulation (test_jump): at most 1 % of courses of 300 s (noise, slopes, sawteeth) count as a jump"
    " when tested every third second",
)
JUMP_LASTS = Threshold(
    60, "windows since a jump, from which it is lasting", "our choice: most evaluations and checkpoints are shorter"
)
#: Windows before a jump at least, and those beside it that must differ already.
_BEFORE, _NEAR = 20, 8
#: Points that are tested: a longer series is reduced to medians, which bounds the pairs to compare to a thousand.
_MOST_POINTS = 48


class GrownPhase(Struct, frozen=True, gc=False):
    """The phase whose time a step has grown most, in ms per step."""

    name: str
    before_ms: float
    now_ms: float


def steady_windows(history: Sequence[T | None]) -> list[T]:
    """The values of the windows with a step, after warm-up."""
    return [value for value in history if value is not None][WARMUP_WINDOWS:]


def first_and_last(values: Sequence[T]) -> tuple[Sequence[T], Sequence[T]]:
    """The first and the last quarter."""
    quarter = len(values) // 4
    return values[:quarter], values[len(values) - quarter :]


def course(rows: Sequence[StepStretch], number: int) -> list[StepStretch]:
    """At most so many stretches of about equal time, each with a step that was timed; none without any.

    None is shorter than the longest row. The rest at the end is part of the last.
    """
    least_s = 0.95 * max((sum(row.span_s for row in rows) / number, *(row.span_s for row in rows)))  # some ms vary
    found: list[StepStretch] = []
    for row in rows:
        if found and not (_is_timed(found[-1]) and found[-1].span_s >= least_s):
            found[-1] = joined((found[-1], row))
        else:
            found.append(row)
    if len(found) > 1 and (found[-1].span_s < 0.5 * least_s or not _is_timed(found[-1])):
        found[-2:] = [joined(found[-2:])]
    return [row for row in found if _is_timed(row)]


def _is_timed(row: StepStretch) -> bool:
    return row.steps > 0 and row.total_ns > 0


def most_grown(phase_history: Sequence[tuple[float, ...] | None]) -> GrownPhase | None:
    """The phase that has grown most from the first to the last quarter of the run; None without these."""
    early, late = first_and_last(steady_windows(phase_history))
    return grown_between(early, late) if early else None


def grown_between(early: Sequence[tuple[float, ...]], late: Sequence[tuple[float, ...]]) -> GrownPhase:
    """The phase whose median differs most."""
    before = [median(parts) for parts in zip(*early, strict=True)]
    now = [median(parts) for parts in zip(*late, strict=True)]
    most = max(range(len(now)), key=lambda part: now[part] - before[part])
    return GrownPhase(STACKED[most], before[most], now[most])


class Growth(NamedTuple):
    """The time of a kind of work in a step at the beginning and now, in ms."""

    before_ms: float
    now_ms: float

    @property
    def log_ratio(self) -> float:
        """The logarithm of its growth; 0 where nothing was measured at either end."""
        return math.log(self.now_ms / self.before_ms) if self.before_ms > 0.0 and self.now_ms > 0.0 else 0.0


def grow_together(one: Growth, other: Growth, update: Growth, step: Growth) -> bool:
    """True if two kinds of work have grown alike, the update less, and they are most of what steps have grown by.

    The update has the same parameters as ever: where it grows as well, the machine has become slower.
    """
    less, more = sorted((one.log_ratio, other.log_ratio))
    grown_ms = one.now_ms - one.before_ms + other.now_ms - other.before_ms
    are_alike = less > 0.0 and less >= MOST * more and update.log_ratio < MOST * less
    return are_alike and 2 * grown_ms >= step.now_ms - step.before_ms


class Passes(NamedTuple):
    """How the parts of steps have grown."""

    ahead: Growth  # what comes before backward
    backward: Growth
    update: Growth


def passes(marked: Sequence[tuple[float, ...] | None], worked: Sequence[tuple[float, ...] | None]) -> Passes | None:
    """How a step's passes have grown; None in too short a run.

    ``marked``, ``worked``: of ``StepStretch``, with and without waits for a core. Longer sequences, larger batches and
    more steps of an environment make both longer. A kept graph lengthens backward alone, and a list that is summed up
    anew what comes before it. An update may be too short to wait as often as the rest of the step does: it has grown
    by what is left either way.
    """
    ends = first_and_last(steady_windows(worked))
    if not ends[0]:
        return None
    forward, between, backward, update = (_growth(ends, name) for name in ("forward", BETWEEN, "backward", "optimizer"))
    ahead = Growth(forward.before_ms + between.before_ms, forward.now_ms + between.now_ms)
    with_waits = _growth(first_and_last(steady_windows(marked)), "optimizer")
    return Passes(ahead, backward, min(update, with_waits, key=lambda growth: growth.log_ratio))


def more_work_ms(found: Passes) -> float:
    """What steps have grown by as both passes have: each by no less than the other, and the update by less.

    Worked example: forward 10 -> 20 ms and backward 20 -> 100 ms are twice the work, 30 ms more, and 60 ms by which
    backward alone takes longer.
    """
    less = min(found.ahead.log_ratio, found.backward.log_ratio)
    if less <= 0.0 or found.update.log_ratio >= MOST * less:
        return 0.0
    return math.expm1(less) * (found.ahead.before_ms + found.backward.before_ms)


def _growth(ends: tuple[Sequence[tuple[float, ...]], Sequence[tuple[float, ...]]], name: str) -> Growth:
    at = (*STACKED, BETWEEN).index(name)
    return Growth(*(median(row[at] for row in end) for end in ends))


def grown_place(session: Session, pid: int, phase: GrownPhase) -> Place | None:
    """The line that has grown most from the first to the last quarter of the steady span; None without samples."""
    ends = quarters(session.steady_span(pid))
    return _grown_line(session.stacks.get(pid), ends, phase) if ends is not None else None


def quarters(steady: Span) -> tuple[Span, Span] | None:
    """The first and the last quarter of the steady span; None without its end."""
    quarter_s = (steady.end_s - steady.begin_s) / 4
    if math.isinf(quarter_s):
        return None
    return steady._replace(end_s=steady.begin_s + quarter_s), steady._replace(begin_s=steady.end_s - quarter_s)


def _grown_line(sampled: ProcessStacks | None, ends: tuple[Span, Span], phase: GrownPhase) -> Place | None:
    """The line that a step spends more time at than before, more than at any other; None without samples of both ends.

    Most of the function's growth is at a line whose number may be any of a loop's, so functions are compared first.
    """
    early, late = (
        sampled.over(end).without_imports.where(phase=phase.name).lines() if sampled is not None else [] for end in ends
    )
    if not early or not late:
        return None
    grown: dict[Place, float] = {}
    for lines, ms in ((early, -phase.before_ms), (late, phase.now_ms)):
        for line in lines:
            grown[line.place] = grown.get(line.place, 0.0) + line.share * ms
    functions: dict[tuple[str, str], float] = {}
    for place, ms in grown.items():
        functions[place.file, place.function] = functions.get((place.file, place.function), 0.0) + ms
    most = max(functions, key=functions.__getitem__)
    if functions[most] <= 0.0:
        return None
    return max((p for p in grown if (p.file, p.function) == most), key=grown.__getitem__)


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
    steps: Sequence[StepStretch],
    parts: Sequence[tuple[float, ...] | None],
) -> Jump | None:
    """The phase and place that grew most between two windows; ``steps``, ``parts``: all windows, and their phases."""
    if session.start_s is None:
        return None
    begun = steps[windows[1][0]]
    before_ms, now_ms = (median(ms for n in some if (ms := steps[n].mean_ms) is not None) for some in windows)
    phase = grown_between(*([row for n in some if (row := parts[n]) is not None] for some in windows))
    steady, sampled = session.steady_span(pid), session.stacks.get(pid)
    ends = steady._replace(end_s=begun.begin_s), steady._replace(begin_s=begun.begin_s)
    place = _grown_line(sampled, ends, phase)
    return Jump(begun.begin_s - session.start_s, int(begun.first_step), before_ms, now_ms, phase, place)


class _Rank(Struct, frozen=True, gc=False):
    """Pairs of a series that rise less those that fall, and the variance of that count without a trend."""

    rising: int
    variance: float


def grows(series: Sequence[float]) -> bool:
    """True if a series grows, not in one jump but before and after its largest change as well.

    Two rank tests must agree: of the whole series, and of its two parts together. So (1, 1, 1, 3, 3, 3) does not grow
    (the parts are flat), as little as (1, 2, 3, 1, 2, 3); a long enough (1, 2, 3, ..., 20) does. Source: Mann (1945),
    Kendall (1975); the test of several parts is that of Hirsch and Slack (1984).
    """
    points = _reduced(series)
    if len(points) < 2 or _sigmas(_rank(points)) < GROWTH_SIGMAS:
        return False
    change = _change_point(points)
    before, after = _rank(points[:change]), _rank(points[change:])
    return _sigmas(_Rank(before.rising + after.rising, before.variance + after.variance)) >= GROWTH_SIGMAS


def _reduced(series: Sequence[float]) -> list[float]:
    number = min(len(series), _MOST_POINTS)
    return [median(series[i * len(series) // number : (i + 1) * len(series) // number]) for i in range(number)]


def _rank(points: Sequence[float]) -> _Rank:
    number = len(points)
    rising = sum((y > x) - (y < x) for i, x in enumerate(points) for y in points[i + 1 :])
    return _Rank(rising, number * (number - 1) * (2 * number + 5) / 18)


def _sigmas(rank: _Rank) -> float:
    return (rank.rising - 1) / math.sqrt(rank.variance) if rank.variance else 0.0


def jump_in(series: Sequence[float]) -> int | None:
    """The first window after which a series has risen at once and for good; None where it has not.

    In 20 and more windows of about 100 ms, and 60 of about 200 ms, it is the first of the latter.
    """
    if len(series) < _BEFORE + JUMP_LASTS or min(series) <= 0.0:
        return None
    logs = [math.log(value) for value in series]
    at = _change_point(logs)
    if at < _BEFORE or len(series) - at < JUMP_LASTS:
        return None
    before, since = series[:at], series[at:]
    rise = math.log(median(since) / median(before))
    if rise < math.log(DRIFT_RATIO) or median(since[-_NEAR:]) < DRIFT_RATIO * median(before):
        return None
    if median(logs[at : at + _NEAR]) - median(logs[at - _NEAR : at]) < JUMP_AT_ONCE * rise:
        return None
    return at if quantiles(since, n=10)[0] > quantiles(before, n=10)[-1] else None


def _change_point(series: Sequence[float]) -> int:
    """The index that divides a series so that the means of both parts differ most, by least squares."""
    sums = list(accumulate(series, initial=0.0))
    whole, number = sums[-1], len(series)

    def between(part: int) -> float:
        difference = sums[part] / part - (whole - sums[part]) / (number - part)
        return difference * difference * part * (number - part)

    return max(range(1, number), key=between)
