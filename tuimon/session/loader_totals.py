"""Sums over the windows of a DataLoader, for the whole run within bounds: no window is left out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy

from msgspec import Struct

from tuimon.records import Loader
from tuimon.session.windows import Span, weighted_median

#: Stretches that a run is kept as: of a whole run, the first half of a percent to three percent may be left out.
_STRETCHES = 64


class LoaderTotals(Struct, gc=False):  # one a second and loader: not for the garbage collector to go through
    """Windows that follow one another, as one."""

    t: float  # when the last one ended
    begin_s: float
    used_s: float = 0.0  # windows in which it was used
    fetches: int = 0  # that were timed
    counted: int = 0  # beside these
    wait_ns: int = 0
    p95_ns: float | None = None  # mean of the fetches whose window has it
    p95_fetches: int = 0
    ready_fetches: int = 0
    ready_total: int = 0
    ready_none: int = 0

    @property
    def window_s(self) -> float:
        """Seconds from its beginning to its end."""
        return self.t - self.begin_s

    def add_totals(self, later: LoaderTotals) -> None:
        """Add what followed."""
        self.t = later.t
        self.used_s += later.used_s
        self.fetches += later.fetches
        self.counted += later.counted
        self.wait_ns += later.wait_ns
        self.ready_fetches += later.ready_fetches
        self.ready_total += later.ready_total
        self.ready_none += later.ready_none
        if later.p95_ns is not None:
            weight = self.p95_fetches + later.p95_fetches
            of_both = (self.p95_ns or 0.0) * self.p95_fetches + later.p95_ns * later.p95_fetches
            self.p95_ns, self.p95_fetches = of_both / weight if weight else later.p95_ns, weight


def totals_of(record: Loader) -> LoaderTotals:
    """One window."""
    return LoaderTotals(
        t=record.t,
        begin_s=record.t - record.window_s,
        used_s=record.window_s,
        fetches=record.fetches,
        counted=record.counted,
        wait_ns=record.wait_ns,
        p95_ns=record.p95_ns,
        p95_fetches=record.fetches if record.p95_ns is not None else 0,
        ready_fetches=record.ready_fetches,
        ready_total=record.ready_total,
        ready_none=record.ready_none,
    )


def typical_p95_ns(stretches: Iterable[LoaderTotals]) -> float | None:
    """The p95 of most fetches; None where no window has it."""
    return weighted_median((each.p95_ns, each.p95_fetches) for each in stretches if each.p95_ns is not None)


class LoaderRun:
    """All windows of a run, in at most so many stretches of equally many; each time these are full they are paired."""

    def __init__(self, limit: int = _STRETCHES) -> None:
        self._limit = limit
        self._windows_each = 1
        self._windows_open = 0  # in the last stretch
        self._stretches: list[LoaderTotals] = []

    def add_totals(self, window: LoaderTotals) -> None:
        """Add one window."""
        if self._windows_open % self._windows_each == 0:
            self._make_room()
            self._stretches.append(copy(window))
            self._windows_open = 1
        else:
            self._stretches[-1].add_totals(window)
            self._windows_open += 1

    def _make_room(self) -> None:
        if len(self._stretches) < self._limit:
            return
        for earlier, later in zip(self._stretches[::2], self._stretches[1::2], strict=True):
            earlier.add_totals(later)
        del self._stretches[1::2]
        self._windows_each *= 2

    def between(self, span: Span) -> Sequence[LoaderTotals]:
        """The stretches that begin in a span."""
        return [stretch for stretch in self._stretches if span.holds(stretch)]
