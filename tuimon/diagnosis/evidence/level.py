"""The level of a part of a run: what its steps take; and the hours of a run compared."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median, quantiles
from typing import NamedTuple

from tuimon.diagnosis.evidence.course import (
    DRIFT_RATIO,
    WARMUP_WINDOWS,
    GrownPhase,
    Growth,
    grow_together,
    grown_between,
)
from tuimon.session.step_sums import STACKED, StepStretch

HOUR_S = 3600.0
#: Stretches of an hour that show its quartiles.
_LEAST = 8


class Level(NamedTuple):
    """Medians over stretches of a run, in ms."""

    step_ms: float  # without waits for a core
    phases_ms: tuple[float, ...]  # of ``STACKED``

    def grown_since(self, before: Level) -> GrownPhase:
        """The phase that has grown most."""
        return grown_between([before.phases_ms], [self.phases_ms])

    def does_more_work_than(self, before: Level) -> bool:
        """True if forward and backward have grown alike, as longer sequences and larger batches make them."""
        parts = {name: Growth(*ms) for name, *ms in zip(STACKED, before.phases_ms, self.phases_ms, strict=True)}
        step = Growth(before.step_ms, self.step_ms)
        return grow_together(parts["forward"], parts["backward"], parts["optimizer"], step)


def level_over(rows: Sequence[StepStretch], between_parts: Sequence[float]) -> Level:
    """The level of stretches with steps; ``between_parts``: how the time that markers cannot split is divided."""
    phases = zip(*(ms for row in rows if (ms := row.stacked_ms(between_parts)) is not None), strict=True)
    return Level(median(map(work_ms, rows)), tuple(median(each) for each in phases))


def work_ms(row: StepStretch) -> float:
    """The mean step of a stretch, without waits for a core."""
    return (row.total_ns - row.waited_ns) / row.steps / 1e6


class Hours(NamedTuple):
    """The fastest hour of a run, how long ago it ended, and the last hour, which is slower."""

    best: Level
    ago_s: float
    last: Level
    least: float  # how much longer steps take now, at least: by the quartiles that face each other


def slower_hours(stretches: Sequence[StepStretch], between_parts: Sequence[float]) -> Hours | None:
    """The last hour of a run and the best, counted from its end; None of fewer than two, or if it is hardly slower."""
    rows = stretches[WARMUP_WINDOWS:]
    if not rows or rows[-1].end_s - rows[0].begin_s < 2 * HOUR_S:
        return None
    end_s = rows[-1].end_s
    by_hour: dict[int, list[StepStretch]] = {}
    for row in rows:
        by_hour.setdefault(int((end_s - row.end_s) / HOUR_S), []).append(row)
    times = {ago: [work_ms(row) for row in each] for ago, each in by_hour.items() if len(each) >= _LEAST}
    if 0 not in times:
        return None
    medians = {ago: median(each) for ago, each in times.items()}
    best = min(medians, key=medians.__getitem__)
    if medians[0] < DRIFT_RATIO * medians[best]:
        return None
    least = quantiles(times[0])[0] / quantiles(times[best])[2]
    if least <= 1.0:
        return None
    ago_s = end_s - by_hour[best][-1].end_s
    return Hours(level_over(by_hour[best], between_parts), ago_s, level_over(by_hour[0], between_parts), least)
