"""What a day under tuimon must be like, and whether it was."""

from __future__ import annotations

from typing import NamedTuple

from tests.day.rates import simulated_hours, window_hours

#: MB an hour: of monitor and of training, over the second half.
GROWTH_LIMIT_MB = 1.0
#: An hour, over the second half: two a day would take a year to matter.
HANDLES_LIMIT = 0.1
#: MB per rank and hour, with workers and a GPU.
LOG_LIMIT_MB = 5.0
#: Slopes over less are not judged: a monitor fills its tables and histories, all bounded, in its first hours.
LEAST_HOURS = 2.0
LEAST_WINDOW_HOURS = 1.0


class Promise(NamedTuple):
    """A line of the table. ``limit`` None: a figure beside the promises, not judged."""

    name: str
    measured: float | None
    limit: float | None = None
    unit: str = ""
    exact: bool = False  # the limit is the one right value

    @property
    def kept(self) -> bool | None:
        """None where nothing is promised. What could not be measured is not kept."""
        if self.limit is None:
            return None
        if self.measured is None:
            return False
        return self.measured == self.limit if self.exact else self.measured <= self.limit

    def line(self) -> str:
        """``ok      monitor's memory grows        0.12 MB/h   (at most 1)``."""
        verdict = {True: "ok", False: "BROKEN", None: ""}[self.kept]
        bound = "" if self.limit is None else f"({'exactly' if self.exact else 'at most'} {number(self.limit)})"
        return f"{verdict:7} {self.name:44} {number(self.measured):>12} {self.unit:12} {bound}".rstrip()


def number(value: float | None) -> str:
    """Counts in full, measurements with two digits behind the point."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.2f}"


def growth(name: str, mb_per_s: float | None, real_s: float) -> list[Promise]:
    """Of a slope in MB a real second, seen over ``real_s``: by hours of events, and by hours of windows."""
    by_event = None if mb_per_s is None else mb_per_s / simulated_hours(1.0)
    by_window = None if mb_per_s is None else mb_per_s / window_hours(1.0)
    event_limit = GROWTH_LIMIT_MB if simulated_hours(real_s) >= LEAST_HOURS else None
    window_limit = GROWTH_LIMIT_MB if window_hours(real_s) >= LEAST_WINDOW_HOURS else None
    return [
        Promise(f"{name}, in an hour of events", by_event, event_limit, "MB"),
        Promise(f"{name}, in 3,600 windows", by_window, window_limit, "MB"),
    ]
