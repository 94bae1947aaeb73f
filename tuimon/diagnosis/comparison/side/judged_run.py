"""One run made ready for estimates: its batches without warm-up and trend, resampled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

from msgspec import Struct
from msgspec.structs import replace

from tuimon.diagnosis.comparison.course.batches import Batches, batches, step_ms
from tuimon.diagnosis.comparison.course.changes import Shift, has_trend, line_through, shift_in
from tuimon.diagnosis.comparison.course.warmup import warmup_length
from tuimon.diagnosis.comparison.side.figures import RunFigures
from tuimon.diagnosis.comparison.statistics.bootstrap import Resampled, resample
from tuimon.diagnosis.comparison.statistics.correlation import lasting_variance
from tuimon.diagnosis.comparison.statistics.estimate import Estimate
from tuimon.session.course import StepStretch

#: Fewer batches do not show how they depend on each other.
LEAST_BATCHES = 8

#: A figure of a stretch: of the run itself or of a resampled one.
Figure = Callable[[StepStretch], float]


class JudgedRun(Struct, frozen=True, dict=True):
    """The part of a run that is compared."""

    figures: RunFigures
    steady: Batches
    warmup_s: float
    trend: tuple[float, ...] | None = None  # of the mean step, in ms by batch
    is_part: bool = False  # what it is compared with is of the same process

    @property
    def begin_s(self) -> float:
        """When it begins, on the clock of its records."""
        return self.steady.rows[0].begin_s

    @property
    def is_long_enough(self) -> bool:
        """Whether it has batches enough for an interval."""
        return len(self.steady.rows) >= LEAST_BATCHES

    @cached_property
    def shift(self) -> Shift | None:
        """Where the step time changed for good, and not because others came or went."""
        return shift_in(self._without_others()) if self.trend is None else None

    @cached_property
    def level(self) -> StepStretch:
        """All of it as one stretch."""
        return _stretch([sum(column) for column in zip(*self.steady.rows, strict=True)])

    def estimate(self, figure: Figure) -> Estimate:
        """A figure of the run."""
        return self._resampled.estimate(figure)

    @cached_property
    def lasting_variance(self) -> float:
        """Variance of its step time from run to run that comes from slow changes, as a ratio squared.

        What others took of the cores is left out: it is allowed for separately.
        """
        own_ms = self._without_others()
        return lasting_variance(
            [own / line for own, line in zip(own_ms, self.trend or [1.0] * len(own_ms), strict=True)]
        )

    @cached_property
    def on_cores(self) -> float:
        """Share (0..1) of its time that computing on CPU cores takes, as far as no GPU computes meanwhile.

        A wait for worker processes counts as theirs.
        """
        busy_ns = self.level.cpu_ns + (self.level.data_ns if self.figures.facts.workers else 0.0)
        gpu_busy = (self.figures.gpu_percent or 0.0) / 100
        return min(1.0, busy_ns / self.level.total_ns) * (1.0 - gpu_busy)

    @cached_property
    def _resampled(self) -> Resampled[StepStretch]:
        return resample(self._level_batches.rows, self._level_batches.step_ms(), _stretch)

    @cached_property
    def _level_batches(self) -> Batches:
        """The batches without their trend line."""
        if self.trend is None:
            return self.steady
        middle = sum(self.trend) / len(self.trend)
        return Batches(
            tuple(_scaled(row, middle / line) for row, line in zip(self.steady.rows, self.trend, strict=True))
        )

    def levels(self) -> list[JudgedRun]:
        """Two runs: as if all steps had been as before its shift, and as since; without a shift, the run itself."""
        if self.shift is None:
            return [self]
        rows, at, ratio = self.steady.rows, self.shift.at, self.shift.ratio
        early = (*rows[:at], *(_scaled(row, 1 / ratio) for row in rows[at:]))
        late = (*(_scaled(row, ratio) for row in rows[:at]), *rows[at:])
        return [replace(self, steady=Batches(some), trend=None) for some in (early, late)]

    def _without_others(self) -> list[float]:
        """The mean step of each batch in ms, without the time that it waited for cores that others had."""
        part = self.figures.starved.part
        return [step_ms(row) * (1 - min(part * row.waited_ns / row.total_ns, 0.99)) for row in self.steady.rows]

    def within_steps(self, first: float, last: float) -> JudgedRun:
        """The batches whose steps lie between two numbers of steps, without the line through them."""
        rows = [row for row in self.steady.rows if row.first_step >= first and row.first_step + row.steps <= last]
        steady = Batches(tuple(rows))
        return replace(self, steady=steady, trend=_line(steady) if rows else None)


def judged(figures: RunFigures, *, is_part: bool = False) -> JudgedRun:
    """A run without its warm-up; ``is_part``: what it is compared with is of the same process."""
    whole = batches(figures.stretches)
    warmup = warmup_length(whole.step_ms())
    warmup_s = sum(row.span_s for row in whole.rows[:warmup])
    steady = Batches(whole.rows[warmup:])
    trend = _line(steady) if len(steady.rows) >= LEAST_BATCHES and has_trend(steady.step_ms()) else None
    return JudgedRun(figures, steady, warmup_s, trend, is_part)


def _line(steady: Batches) -> tuple[float, ...] | None:
    line = line_through(steady.step_ms())
    return tuple(line) if min(line) > 0 else None


def _stretch(sums: Sequence[float]) -> StepStretch:
    return StepStretch(*sums)


def _scaled(row: StepStretch, factor: float) -> StepStretch:
    """A stretch whose steps take so many times as long."""
    times = {name: value * factor for name, value in row._asdict().items() if name.endswith("_ns")}
    return row._replace(**times)
