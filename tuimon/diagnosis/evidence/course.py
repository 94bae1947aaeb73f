"""The course of a run: stretches of its steps, how much longer later steps take than earlier ones, lasting jumps.

Growth is tested by the rank test of Mann and Kendall, which holds for any distribution.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import accumulate
from statistics import median, quantiles
from typing import NamedTuple

from msgspec import Struct

from tuimon.diagnosis.evidence.data import rollout_parts
from tuimon.records import BETWEEN, STEP_PHASES, Place
from tuimon.session.series import Span
from tuimon.session.session import ProcessView
from tuimon.session.stacks.samples import heaviest_place
from tuimon.session.steps import StepStretch
from tuimon.threshold import MOST, Threshold

#: Windows with a step that are left out at the beginning: caches and the loaders' queues fill.
WARMUP_WINDOWS = 2
#: Windows needed after that before the end of a run can be compared with its beginning.
COMPARABLE_WINDOWS = 16
GROWTH_SIGMAS = Threshold(
    4.0,
    "standard deviations by which the rank test must exceed its mean over series without a trend, to count as growth",
    "our choice, by simulation (test_drift): at most 1 % of courses of 300 s (noise, warm-up, jumps, sawteeth) count as"
    " growth when tested every second",
)
DRIFT_RATIO = Threshold(
    1.15,
    "least growth of the median step time that counts as drift",
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
    60, "windows after which a jump counts as lasting", "our choice: most evaluations and checkpoints are shorter"
)
#: Fewest windows before a jump, and windows on each side of it that must already differ.
_BEFORE, _NEAR = 20, 8
#: Fewest stretches in an hour for its quartiles to be used.
_HOUR_S, _MIN_HOUR_ROWS = 3600.0, 8


class TimeGrowth(NamedTuple):
    """The time per step of a kind of work, at the beginning and now, in ms."""

    before_ms: float
    now_ms: float

    @property
    def log_ratio(self) -> float:
        """The logarithm of its growth; 0 if one of the ends was not measured."""
        return math.log(self.now_ms / self.before_ms) if self.before_ms > 0.0 and self.now_ms > 0.0 else 0.0


def grow_together(one: TimeGrowth, other: TimeGrowth, update: TimeGrowth, step: TimeGrowth) -> bool:
    """True if two kinds of work grew equally, the update grew less, and they are most of the growth of a step.

    The update always has the same parameters: if it grows as well, the machine has become slower.
    """
    less, more = sorted((one.log_ratio, other.log_ratio))
    grown_ms = one.now_ms - one.before_ms + other.now_ms - other.before_ms
    are_alike = less > 0.0 and less >= MOST * more and update.log_ratio < MOST * less
    return are_alike and 2 * grown_ms >= step.now_ms - step.before_ms


class Level(NamedTuple):
    """Stretches of a run, each with a step; times are in ms, those of phases are medians over the stretches."""

    rows: Sequence[StepStretch]
    between_parts: Sequence[float]  # how samples divide the time that markers cannot

    @property
    def steps_ms(self) -> list[float]:
        """The mean step of each stretch."""
        return [row.mean_ms or 0.0 for row in self.rows]

    @property
    def works_ms(self) -> list[float]:
        """The mean step of each stretch without waits for a core, which vary with other programs."""
        return [row.work_ms or 0.0 for row in self.rows]

    @property
    def phases_ms(self) -> dict[str, float]:
        """The exclusive phases of a step."""
        return self.medians_ms(lambda row: row.stacked_ms(self.between_parts))

    def medians_ms(self, parts_ms: Callable[[StepStretch], tuple[float, ...] | None]) -> dict[str, float]:
        """The phases of a step, as ``parts_ms`` divides a stretch."""
        columns = zip(*(parts for row in self.rows if (parts := parts_ms(row)) is not None), strict=True)
        return dict(zip((*STEP_PHASES, BETWEEN), map(median, columns), strict=False))

    @property
    def span(self) -> Span:
        """The time that the stretches cover."""
        return Span(self.rows[0].begin_s, self.rows[-1].end_s)


class Grown(NamedTuple):
    """Two levels of a run, an earlier one and a later one."""

    before: Level
    now: Level

    @property
    def step(self) -> TimeGrowth:
        return TimeGrowth(median(self.before.steps_ms), median(self.now.steps_ms))

    @property
    def work(self) -> TimeGrowth:
        """The growth of a step without waits for a core."""
        return TimeGrowth(median(self.before.works_ms), median(self.now.works_ms))

    @property
    def phase(self) -> str:
        before = self.before.phases_ms
        return max(STEP_PHASES, key=lambda name: self.now.phases_ms[name] - before[name])

    def of(self, phase: str) -> TimeGrowth:
        return TimeGrowth(self.before.phases_ms[phase], self.now.phases_ms[phase])

    @property
    def passes(self) -> tuple[TimeGrowth, TimeGrowth, TimeGrowth]:
        """The growth of the time before backward, of backward and of the update, each without waits for a core.

        Longer sequences, larger batches and more steps of an environment make the first two longer. A kept graph
        lengthens backward alone; a list that is summed up again, only the time before it. An update may be too short to
        have its share of the waits, so the smaller growth counts, with them or without.
        """
        before, now = (level.medians_ms(lambda row: row.worked_ms) for level in self)
        ahead = TimeGrowth(*(ms["forward"] + ms[BETWEEN] for ms in (before, now)))
        update = TimeGrowth(before["optimizer"], now["optimizer"])
        with_waits = TimeGrowth(*(level.medians_ms(lambda row: row.marked_ms)["optimizer"] for level in self))
        backward = TimeGrowth(before["backward"], now["backward"])
        return ahead, backward, min(update, with_waits, key=lambda growth: growth.log_ratio)


class CourseEvidence(Struct, frozen=True, dict=True):
    """The steps of a process from the beginning of the run to now."""

    _own: ProcessView

    @cached_property
    def rows(self) -> list[StepStretch]:
        """Stretches of equal length with a step, oldest first, without warm-up."""
        stretches = self._own.stats.stretches()
        return [row for row in stretches if row.steps][WARMUP_WINDOWS:]

    @cached_property
    def grown(self) -> Grown | None:
        """The last quarter compared with the first; None if the run is too short."""
        quarter = len(self.rows) // 4
        return self._grown(self.rows[:quarter], self.rows[-quarter:]) if quarter else None

    @cached_property
    def jump(self) -> Grown | None:
        """The time since steps suddenly became longer for good, compared with the time before; None if they did not."""
        at = jump_in([row.work_ms or 0.0 for row in self.rows])
        return self._grown(self.rows[:at], self.rows[at:]) if at is not None else None

    @cached_property
    def slower_hour(self) -> Grown | None:
        """The last hour compared with the best one; None if there are fewer than two, or if it is hardly slower."""
        rows = self.rows
        if not rows or rows[-1].end_s - rows[0].begin_s < 2 * _HOUR_S:
            return None
        by_hour: dict[int, list[StepStretch]] = {}
        for row in rows:
            by_hour.setdefault(int((rows[-1].end_s - row.end_s) / _HOUR_S), []).append(row)
        works = {
            ago: median(row.work_ms or 0.0 for row in each)
            for ago, each in by_hour.items()
            if len(each) >= _MIN_HOUR_ROWS
        }
        if 0 not in works:
            return None
        found = self._grown(by_hour[min(works, key=works.__getitem__)], by_hour[0])
        return found if is_longer(found.before.works_ms, found.now.works_ms) else None

    def _grown(self, before: Sequence[StepStretch], now: Sequence[StepStretch]) -> Grown:
        between_parts = self._own.split.parts
        return Grown(Level(before, between_parts), Level(now, between_parts))

    def seconds_in(self, level: Level) -> float:
        """The time from the start of the run to a level's beginning, in seconds."""
        return level.span.begin_s - self._own.view.session.start_s

    def does_more_work(self, grown: Grown) -> str:
        """The work that has grown because each step does more of it; empty if nothing shows that.

        ``forward and backward``; or, in a rollout, ``environment and policy``.
        """
        (ahead, backward, update), work = grown.passes, grown.work
        if grow_together(ahead, backward, update, work):
            return "forward and backward"
        sampled = self._own.stacks
        early, late = (rollout_parts(sampled.over(level.span)) for level in grown)
        if early is None or late is None:
            return ""
        environment, policy = (
            TimeGrowth(before * work.before_ms, now * work.now_ms) for before, now in zip(early, late, strict=True)
        )
        return "environment and policy" if grow_together(environment, policy, update, work) else ""

    def place(self, grown: Grown) -> Place | None:
        """The line at which a step spends more time than before, in the phase that has grown most.

        None unless both levels have samples.
        """
        sampled, phase = self._own.stacks, grown.phase
        early, late = (sampled.over(level.span).without_imports.where(phase=phase).lines() for level in grown)
        if not early or not late:
            return None
        before_ms, now_ms = grown.of(phase)
        grown_ms = (
            (line.place, line.share * ms) for found, ms in ((early, -before_ms), (late, now_ms)) for line in found
        )
        place, more_ms = heaviest_place(grown_ms)
        return place if more_ms > 0.0 else None


def grows(series: Sequence[float]) -> bool:
    """True if a series grows not only in one jump, but before and after its largest change as well.

    Two rank tests must agree: of the whole series, and of its two parts together. So (1, 1, 1, 3, 3, 3) does not grow
    (the parts are flat), as little as (1, 2, 3, 1, 2, 3); a long enough (1, 2, 3, ..., 20) does. Source: Mann (1945),
    Kendall (1975); the test of several parts is that of Hirsch and Slack (1984).
    """
    number = min(len(series), 48)  # which bounds the pairs to compare to a thousand
    points = [median(series[i * len(series) // number : (i + 1) * len(series) // number]) for i in range(number)]
    if len(points) < 2 or _sigmas(points) < GROWTH_SIGMAS:
        return False
    change = _change_point(points)
    return _sigmas(points[:change], points[change:]) >= GROWTH_SIGMAS


def _sigmas(*parts: Sequence[float]) -> float:
    """The excess of rising over falling pairs within each part, in standard deviations of series without a trend."""
    rising = sum((y > x) - (y < x) for points in parts for i, x in enumerate(points) for y in points[i + 1 :])
    variance = sum(number * (number - 1) * (2 * number + 5) / 18 for number in map(len, parts))
    return (rising - 1) / math.sqrt(variance) if variance else 0.0


def least_ratio(before: Sequence[float], now: Sequence[float]) -> float:
    """The least factor by which steps take longer now: the lower quartile now over the upper quartile before."""
    return quantiles(now)[0] / quantiles(before)[2]


def is_longer(before: Sequence[float], now: Sequence[float], n: int = 4) -> bool:
    """True if steps take longer by enough, and the outer quartiles (or the deciles with n = 10) do not overlap."""
    return median(now) >= DRIFT_RATIO * median(before) and quantiles(now, n=n)[0] > quantiles(before, n=n)[-1]


def jump_in(series: Sequence[float]) -> int | None:
    """The index of the window at which a series jumps and stays higher; None if there is no such jump.

    For 20 or more windows of about 100 ms, then 60 of about 200 ms, it is the first of the 60.
    """
    if len(series) < _BEFORE + JUMP_LASTS or min(series) <= 0.0:
        return None
    logs = [math.log(value) for value in series]
    at = _change_point(logs)
    if at < _BEFORE or len(series) - at < JUMP_LASTS:
        return None
    before, since = series[:at], series[at:]
    if not is_longer(before, since, 10) or median(since[-_NEAR:]) < DRIFT_RATIO * median(before):
        return None
    rise = math.log(median(since) / median(before))
    at_once = median(logs[at : at + _NEAR]) - median(logs[at - _NEAR : at])
    return at if at_once >= JUMP_AT_ONCE * rise else None


def _change_point(series: Sequence[float]) -> int:
    """The index that divides a series so that the means of both parts differ most, by least squares."""
    sums = list(accumulate(series, initial=0.0))
    whole, number = sums[-1], len(series)

    def between(part: int) -> float:
        difference = sums[part] / part - (whole - sums[part]) / (number - part)
        return difference * difference * part * (number - part)

    return max(range(1, number), key=between)
