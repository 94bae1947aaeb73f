"""Samples and tokens that a program passes to ``tuimon.step``."""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct

from tuimon.records import Steps
from tuimon.session.windows import Window


class Rates(NamedTuple):
    """A second; None where unknown."""

    samples: float | None = None
    tokens: float | None = None


class RatesOfRanks(NamedTuple):
    """The sums over so many ranks, as of ``t``."""

    t: float
    rates: Rates
    ranks: int


class _Size(Struct, gc=False):
    t: float
    steps: int
    samples: int | None
    tokens: int | None


class StepSizes:
    """The step sizes of one process."""

    def __init__(self) -> None:
        self._window: Window[_Size] = Window()
        self._run = _Size(0.0, 0, None, None)

    def add_steps(self, record: Steps) -> None:
        """Fold a window."""
        if record.samples is None and record.tokens is None and not self._run.steps:
            return
        size = _Size(record.t, record.count, record.samples, record.tokens)
        self._window.append(size)
        self._run = _joined([self._run, size])

    def rates(self, steps_per_s: float | None, *, whole_run: bool) -> Rates:
        """At this pace, by the mean step of the last 30 s, or of the whole run."""
        size = self._run if whole_run else _joined(self._window.records)
        if not size.steps or steps_per_s is None:
            return Rates()
        return Rates(
            *(None if each is None else each / size.steps * steps_per_s for each in (size.samples, size.tokens))
        )


def _joined(sizes: list[_Size]) -> _Size:
    samples = [each.samples for each in sizes if each.samples is not None]
    tokens = [each.tokens for each in sizes if each.tokens is not None]
    return _Size(
        sizes[-1].t if sizes else 0.0,
        sum(each.steps for each in sizes),
        sum(samples) if samples else None,
        sum(tokens) if tokens else None,
    )
