"""What a day under tuimon must be like, whether it was, and its table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tests.day.counted import Logged, Rank
from tests.day.readings import INTERVAL_S, MB, RANKS, SPEED, Reading, second_half, simulated_hours, slope, window_hours

#: Lines of the course of memory.
_COURSE = 12


@dataclass(frozen=True, slots=True)
class Day:
    """All that a run of the day came to."""

    minutes: float
    readings: Sequence[Reading]
    made: dict[int, Rank]
    events: Counter[str]
    logged: Logged
    left_behind: Sequence[str]  # rings
    exit_code: int | None  # None: it did not end

    @property
    def real_s(self) -> float:
        """Real time that the readings cover."""
        return self.readings[-1].at_s - self.readings[0].at_s if self.readings else 0.0


def promises(day: Day) -> list[Promise]:
    """Every figure that is judged, and some beside them."""
    out = [Promise("exit code of the run", day.exit_code, 0, exact=True)]
    out.append(Promise("exit code in the log", day.logged.exit_code, 0, exact=True))
    for rank, own in sorted(day.made.items()):
        out.append(Promise(f"steps of rank {rank}", day.logged.steps[own.pid], own.steps, exact=True))
        out.append(Promise("number of its last step", day.logged.last_index.get(own.pid), own.steps, exact=True))
        out.append(Promise("its updates", day.logged.updates[own.pid], own.steps, exact=True))
    out.append(Promise("ranks that noted what they did", len(day.made), RANKS, exact=True))
    out.append(Promise("markers lost", day.logged.lost_markers, 0))
    for name, field, less in (("monitor's", "monitor_mb", 0), ("training's", "training_mb", 2)):
        by_event, by_window = _rise(day, field, less)
        out.append(Promise(f"{name} memory grows, in an hour of events", *by_event, "MB"))
        out.append(Promise(f"{name} memory grows, in 3,600 windows", *by_window, "MB"))
    for field in ("monitor_files", "monitor_threads", "training_files"):
        out.append(Promise(f"more {field.replace('_', ' ')}", *_rise(day, field)[0], "an hour"))
    out += _log(day)
    out.append(Promise("rings left behind", len(day.left_behind), 0))
    out.append(Promise("monitor's CPU, py-spy's with it, ten windows a second", _cpu_percent(day), unit="% of a core"))
    out.append(Promise("monitor's memory, highest", max((r.monitor_mb for r in day.readings), default=None), unit="MB"))
    out.append(Promise("py-spy windows", day.logged.sampled_windows))
    out.append(Promise("  of them lost", day.logged.lost_samples))
    return out


def _rise(day: Day, field: str, less: int = 0) -> list[tuple[float | None, float | None]]:
    """By how much a reading rises in the second half, in an hour of events and of windows, each with its limit.

    ``less``: so many readings at the end do not count. There is no limit if too few hours have passed.
    """
    points = [(reading.at_s, getattr(reading, field)) for reading in day.readings]
    points = [point for point in points if point[1] is not None]
    late = second_half(points[: len(points) - less])
    rise, passed_s = slope(late), late[-1][0] - late[0][0] if late else 0.0
    most = GROWTH_LIMIT_MB if field.endswith("_mb") else HANDLES_LIMIT
    return [
        (None if rise is None else rise / hours(1.0), most if hours(passed_s) >= least else None)
        for hours, least in ((simulated_hours, MIN_HOURS), (window_hours, MIN_WINDOW_HOURS))
    ]


def _log(day: Day) -> list[Promise]:
    """Windows and events pass at different speeds: each by its own hours, then added."""
    if not day.real_s:
        return [Promise("log", None, LOG_LIMIT_MB, "MB")]
    by_window = day.logged.window_bytes / MB / window_hours(day.real_s) / RANKS
    by_event = day.logged.event_bytes / MB / simulated_hours(day.real_s) / RANKS
    return [
        Promise("log, per rank and hour", by_window + by_event, LOG_LIMIT_MB, "MB"),
        Promise("  of it by events", by_event, unit="MB"),
        Promise("log written in all", sum(day.logged.by_type.values()) / MB, unit="MB"),
    ]


def _cpu_percent(day: Day) -> float | None:
    """While the training ran: what it used is its parent's once it has ended."""
    during = [reading for reading in day.readings if reading.training_mb is not None]
    if len(during) < 2:
        return None
    return (during[-1].monitor_cpu_s - during[0].monitor_cpu_s) / (during[-1].at_s - during[0].at_s) * 100


def table(day: Day) -> str:
    """Plain text, for a terminal and for an issue."""
    hours = simulated_hours(day.minutes * 60)
    lines = [f"{day.minutes:g} minutes for {hours:.1f} hours: events {SPEED} times as fast, windows of {INTERVAL_S} s."]
    steps = {f"steps of rank {rank}": own.steps for rank, own in day.made.items()}
    happened = sorted({**day.events, **steps}.items())
    lines += ["", "events", *(f"  {name:22} {count:>10,}" for name, count in happened)]
    lines += ["", "  min   hour   monitor MB   training MB   log MB   monitor's files, threads   training's files"]
    every = max(1, len(day.readings) // _COURSE)
    for reading in day.readings[::every]:
        training = "–" if reading.training_mb is None else f"{reading.training_mb:.1f}"
        lines.append(
            f"{reading.at_s / 60:5.1f} {simulated_hours(reading.at_s):6.1f} {reading.monitor_mb:12.1f} "
            f"{training:>13} {reading.log_mb:8.2f} "
            f"{reading.monitor_files:17} {reading.monitor_threads:8} {number(reading.training_files):>18}"
        )
    if day.logged.notices:
        lines += ["", "notices"]
        lines += [
            f"  {n:5} {source}, {level}: {text}" for (source, level, text), n in day.logged.notices.most_common(20)
        ]
    by_type = ", ".join(f"{kind} {size / MB:.2f}" for kind, size in day.logged.by_type.most_common(8))
    lines += ["", f"log by type, MB: {by_type}", ""]
    lines += [promise.line() for promise in promises(day)]
    return "\n".join(lines)


#: MB an hour: of monitor and of training, over the second half.
GROWTH_LIMIT_MB = 1.0
#: An hour, over the second half: two a day would take a year to matter.
HANDLES_LIMIT = 0.1
#: MB per rank and hour, with workers and a GPU.
LOG_LIMIT_MB = 5.0
#: Slopes over less are not judged: a monitor fills its tables and histories, all bounded, in its first hours.
MIN_HOURS = 2.0
MIN_WINDOW_HOURS = 1.0


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
