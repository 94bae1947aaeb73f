"""The offset between a GPU's clock and the CPU's, computed from bounds: nothing ever waits for the GPU.

The GPU reaches an event after it was recorded and after it was last seen pending, and before it was first seen done. If
the stream was idle, it reaches the event immediately. Each of these is a point that the line ``offset + rate * time``
runs above or below. Two clocks drift by up to 100 ppm, a millisecond in ten seconds: so all bounds of the last minute
count. Each cuts a half plane off the possible offsets and rates; a polygon is left.

With the offset, a launch lead is known as well: the time at which the GPU reached a boundary, by the CPU's clock, minus
the time at which the CPU reached it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import fmean, median
from typing import NamedTuple

from msgspec import Struct, field

from tuimon.agent.ring.layout import EventTime
from tuimon.bounds import MANY_HELD
from tuimon.records import Lead
from tuimon.sources.loop.step import MarkedStretch

#: From the end of recording until an idle GPU reaches the event (its latency, 2-5 us), and from the marker to
#: the beginning of recording (1-3 us). Longer if the thread is interrupted in between.
LAUNCH_NS = 10_000
#: Events tick every 0.5 us, gaps are given in whole us.
ROUNDING_NS = 1_500
#: ``elapsed_time`` is a float32 of ms: rounded by up to this part of it (0.6 us at 10 s, 4 us at a minute).
FLOAT_ROUNDING = 2.0**-24
#: Crystals differ by less than this, with the slewing of the system's clock.
MAX_RATE = 200e-6
#: Rates change with temperature: an old bound of the offset loosens by 0.5 us a second, an old bound of the rate by
#: 0.05 ppm a second.
WANDER = 0.5e-6
RATE_WANDER = 0.05e-6
_HISTORY_NS = 60_000_000_000
_BLOCK_NS = 2_000_000_000

#: The moment of a bound of the rate, and the rate's limits, before anything is known.
_ANY_RATE = 0.0, -MAX_RATE, MAX_RATE
#: The possible offsets (ns) and rates: a convex polygon.
Polygon = list[tuple[float, float]]
ABOVE, BELOW = 1.0, -1.0


class Point(NamedTuple):
    """The offset is above, or below, ``offset_ns`` at a moment of the GPU's clock."""

    gpu_ns: float
    offset_ns: float


class _TwoSeconds(Struct):
    """The bounds that events of two seconds give; only those that may matter."""

    begin_ns: float
    slack_ns: float  # rounding error of the events' times at the beginning of this block
    lower: list[Point] = field(default_factory=list)
    upper: list[Point] = field(default_factory=list)
    prompt: list[Point] = field(default_factory=list)  # upper bounds from events that found the GPU idle
    idle: int = 0  # number of these events
    wrong: int = 0  # how many of them were left out, because they were seen to be late


class ClockOffset:
    """The offset of one GPU's clock. Add events in order; estimates are good near the latest."""

    def __init__(self) -> None:
        self._blocks: deque[_TwoSeconds] = deque()
        self._base_ns = 0  # offsets are counted from here, to keep floats exact
        self._latest_ns = 0.0
        self._slack_ns = 0.0
        self._rates = _ANY_RATE

    def add_event(
        self, gpu_ns: int, earliest_ns: int, latest_ns: int, prompt_ns: int | None = None, rounding_ns: float = 0.0
    ) -> None:
        """The GPU reached an event at about ``gpu_ns`` of its clock, between two moments of the CPU's clock.

        ``prompt_ns``: it reached the event no later than this, unless the thread was interrupted.
        """
        if not self._blocks:
            self._base_ns = earliest_ns - gpu_ns
        elif gpu_ns <= self._latest_ns:
            return
        self._latest_ns = at = float(gpu_ns)
        if not self._blocks or at - self._blocks[-1].begin_ns > _BLOCK_NS:
            self._begin_block(at)
        block, zero_ns = self._blocks[-1], self._base_ns + gpu_ns
        rounding_ns += ROUNDING_NS
        _keep(block.lower, Point(at, earliest_ns - zero_ns - rounding_ns), ABOVE)
        _keep(block.upper, Point(at, latest_ns - zero_ns + rounding_ns), BELOW)
        if prompt_ns is not None:
            block.prompt.append(Point(at, prompt_ns - zero_ns + rounding_ns))
            block.idle += 1

    def loosen(self, rounding_ns: float) -> None:
        """Note that the GPU's time has a new anchor, which adds ``rounding_ns`` to its error from now on."""
        self._slack_ns += rounding_ns
        if self._blocks:
            self._begin_block(self._latest_ns)

    def bounds_at(self, moments: Iterable[int]) -> list[tuple[float, float]] | None:
        """The lowest and highest offset (CPU's clock - GPU's, ns) at moments of the GPU's clock, near the latest event.

        None when nothing is known. Between two moments a straight line through their bounds is a bound as well.
        """
        while self._blocks:
            polygon = self._possible()
            if polygon:
                rates = [rate for _, rate in polygon]
                self._rates = self._latest_ns, min(rates), max(rates)
                ages_ns = [moment - self._latest_ns for moment in moments]
                possible = ([offset + rate * age_ns for offset, rate in polygon] for age_ns in ages_ns)
                return [(self._base_ns + min(offsets), self._base_ns + max(offsets)) for offsets in possible]
            # no line fits: the system's clock was slewed, and old bounds no longer hold
            self._rates = _ANY_RATE
            for _ in range((len(self._blocks) + 1) // 2):
                self._blocks.popleft()
        return None

    def _possible(self) -> Polygon:
        """The possible offsets at the latest event, and rates; empty if the bounds exclude each other."""
        at_ns, slowest, fastest = self._rates
        change = RATE_WANDER * (self._latest_ns - at_ns) / 1e9
        slow, fast = max(slowest - change, -MAX_RATE), min(fastest + change, MAX_RATE)
        anything = 1e13
        polygon: Polygon = [(-anything, slow), (anything, slow), (anything, fast), (-anything, fast)]
        for block in self._blocks:
            slack_ns = self._slack_ns - block.slack_ns
            for point in block.lower:
                polygon = self._cut(polygon, point, ABOVE, slack_ns)
            for point in block.upper:
                polygon = self._cut(polygon, point, BELOW, slack_ns)
        return self._cut_by_prompt(polygon) if polygon else polygon

    def _cut_by_prompt(self, polygon: Polygon) -> Polygon:
        """Cut the polygon by the upper bounds of events that found the GPU idle; leave it if most of these are wrong.

        They are wrong if the thread is interrupted whenever it records: other threads of the program hold the GIL.
        """
        left, wrong = polygon, sum(block.wrong for block in self._blocks)
        points = [(point, self._slack_ns - block.slack_ns) for block in self._blocks for point in block.prompt]
        # those at the ends last: between others a wrong one shows
        for point, slack_ns in (*points[-2:0:-1], *points[-1:], *points[: len(points) > 1]):
            smaller = self._cut(left, point, BELOW, slack_ns)
            wrong += not smaller
            left = smaller or left
        return left if 2 * wrong <= sum(block.idle for block in self._blocks) else polygon

    def _cut(self, polygon: Polygon, point: Point, side: float, slack_ns: float) -> Polygon:
        """The part of the polygon above or below a point."""
        if not polygon:
            return polygon
        since_ns = point.gpu_ns - self._latest_ns
        bound = point.offset_ns + side * (WANDER * since_ns - slack_ns)
        rooms = [side * (offset + rate * since_ns - bound) for offset, rate in polygon]
        return polygon if min(rooms) >= 0 else _corners(polygon, rooms)

    def _begin_block(self, at: float) -> None:
        if self._blocks:
            newest = self._blocks[-1]
            prompt, newest.prompt = newest.prompt, []
            for point in prompt:
                if point.offset_ns >= _chord(newest.lower, point.gpu_ns):
                    _keep(newest.prompt, point, BELOW)
                else:
                    newest.wrong += 1
        self._blocks.append(_TwoSeconds(at, self._slack_ns))
        while self._blocks[0].begin_ns < at - _HISTORY_NS:
            self._blocks.popleft()


def _corners(polygon: Polygon, rooms: Sequence[float]) -> Polygon:
    """The part of a convex polygon in which ``rooms``, given at its corners, is not negative (Sutherland-Hodgman)."""
    out: Polygon = []
    before, room_before = polygon[-1], rooms[-1]
    for corner, room in zip(polygon, rooms, strict=True):
        if (room >= 0) != (room_before >= 0):
            part = room_before / (room_before - room)
            out.append((before[0] + part * (corner[0] - before[0]), before[1] + part * (corner[1] - before[1])))
        if room >= 0:
            out.append(corner)
        before, room_before = corner, room
    return out


def _keep(hull: list[Point], point: Point, side: float) -> None:
    """Append a point to the upper (ABOVE) or lower convex hull, which a straight line must not cross."""
    while len(hull) >= 2:
        (x1, y1), (x2, y2) = hull[-2:]
        if side * ((y2 - y1) * (point.gpu_ns - x1) - (point.offset_ns - y1) * (x2 - x1)) > 0:
            break
        hull.pop()
    hull.append(point)


def _chord(hull: list[Point], at: float) -> float:
    """The height of a hull at a moment within it."""
    for left, right in pairwise(hull):
        if at <= right.gpu_ns:
            part = (at - left.gpu_ns) / (right.gpu_ns - left.gpu_ns)
            return left.offset_ns + part * (right.offset_ns - left.offset_ns)
    return hull[-1].offset_ns


#: A lead is unknown if half the width of its interval is more than both of these: us, and share of the lead.
LEAD_ERROR_US = 100.0
LEAD_ERROR_RATIO = 0.2


class TimedBoundary(Struct, eq=False):
    """A boundary with an event; once the event was seen done, also the time at which the GPU reached it."""

    stretch: MarkedStretch  # the stretch that ends at it
    evaluated: bool = False  # the batch before it was evaluated
    chain: Chain | None = None  # the events that its time is counted with
    gpu_ns: int = 0  # the time when the GPU reached it, by its clock; by the CPU's clock it is between the next two
    earliest_ns: float = 0
    latest_ns: float = 0
    is_estimated: bool = False  # the offset of the clocks was estimated, and has narrowed those two
    stream_idle: bool = False  # a query proved that nothing was queued when the event was recorded

    @property
    def kind(self) -> int:
        """One of the boundaries that have events."""
        return self.stretch.kind

    @property
    def time_ns(self) -> int:
        """When the CPU reached it."""
        return self.stretch.end_ns

    @property
    def reached_ns(self) -> float:
        """When the GPU reached it, by the CPU's clock."""
        return (self.earliest_ns + self.latest_ns) / 2

    @property
    def lead_us(self) -> float:
        """How far launches ran ahead of the GPU at this boundary."""
        return (self.reached_ns - self.time_ns) / 1000

    @property
    def error_us(self) -> float:
        """Half the width of the lead's interval."""
        return (self.latest_ns - self.earliest_ns) / 2000

    def narrow(self, lowest: float, highest: float) -> None:
        """The offset of the clocks is between these.

        The GPU reached it before it was seen done; an offset that contradicts this belongs to other events.
        """
        seen_ns = max(self.earliest_ns, self.latest_ns)
        self.earliest_ns = min(max(self.earliest_ns, self.gpu_ns + lowest), seen_ns)
        self.latest_ns = max(self.earliest_ns, min(seen_ns, self.gpu_ns + highest))
        self.is_estimated = True


class Chain(Struct, eq=False):
    """Events of a GPU whose times count from one origin: each anchor's time is known from the anchor before."""

    device: int
    anchor_ns: int = 0  # time of the latest anchor, from the first
    error_us: float | None = None  # half the width of the offset, as estimated last
    _offset: ClockOffset = field(default_factory=ClockOffset)
    _waiting: list[TimedBoundary] = field(default_factory=list)

    def add_event(self, boundary: TimedBoundary, seen_ns: int, time: EventTime) -> None:
        """Add the time of a boundary's event, which was seen done."""
        gpu_ns, marked_ns = self.anchor_ns + time.elapsed_ns, boundary.time_ns
        gap_ns = 1000 * (time.gap_us or 0)
        earliest_ns = marked_ns if not gap_ns or time.stream_idle else max(marked_ns, seen_ns - gap_ns - ROUNDING_NS)
        prompt_ns = marked_ns + gap_ns + LAUNCH_NS if time.stream_idle and time.gap_us is not None else None
        self._offset.add_event(gpu_ns, earliest_ns, seen_ns, prompt_ns, FLOAT_ROUNDING * time.elapsed_ns)
        boundary.chain, boundary.gpu_ns, boundary.stream_idle = self, gpu_ns, time.stream_idle
        boundary.earliest_ns, boundary.latest_ns = earliest_ns, seen_ns
        if len(self._waiting) < MANY_HELD:
            self._waiting.append(boundary)

    def move_anchor(self, elapsed_ns: int) -> None:
        """Make another event the anchor, ``elapsed_ns`` after the one before."""
        self.anchor_ns += elapsed_ns
        self._offset.loosen(FLOAT_ROUNDING * elapsed_ns)

    def take_estimated(self) -> list[TimedBoundary]:
        """Return and clear the boundaries added since the last call, now with their leads."""
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return []
        # streams keep no order among themselves, and beyond both ends a straight line through bounds is no bound
        first_ns, last_ns = min(each.gpu_ns for each in waiting), max(each.gpu_ns for each in waiting)
        ends = self._offset.bounds_at((first_ns, last_ns))
        if ends is None:
            return []
        (lowest, highest), (last_lowest, last_highest) = ends
        self.error_us = (last_highest - last_lowest) / 2000
        length_ns = max(1, last_ns - first_ns)
        for boundary in waiting:
            part = (boundary.gpu_ns - first_ns) / length_ns
            boundary.narrow(lowest + part * (last_lowest - lowest), highest + part * (last_highest - highest))
        return waiting


def lead_record(name: str, boundaries: Sequence[TimedBoundary]) -> Lead:
    """The leads at one kind of boundary; without times if most of them are unknown."""
    stream_idle = sum(each.stream_idle for each in boundaries)
    mean_us, error_us = fmean(each.lead_us for each in boundaries), fmean(each.error_us for each in boundaries)
    mean = round(mean_us, 1) if _is_certain(mean_us, error_us) else None
    least_us = max(0.0, round(min(each.lead_us - each.error_us for each in boundaries), 1))
    known = [each.lead_us for each in boundaries if _is_certain(each.lead_us, each.error_us)]
    if 2 * len(known) <= len(boundaries):
        return Lead(name, len(boundaries), None, None, None, stream_idle, mean, least_us)
    lowest, middle, highest = (round(value, 1) for value in (min(known), median(known), max(known)))
    return Lead(name, len(boundaries), lowest, middle, highest, stream_idle, mean, least_us)


def _is_certain(lead_us: float, error_us: float) -> bool:
    return error_us <= max(LEAD_ERROR_US, LEAD_ERROR_RATIO * lead_us)
