"""Launch leads: when the GPU reached a boundary, by the CPU's clock, less when the CPU did."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import fmean, median

from msgspec import Struct, field

from tuimon.agent.ring.layout import EventTime
from tuimon.records import Lead
from tuimon.sources.gpu_clock.offset import FLOAT_ROUNDING, LAUNCH_NS, ROUNDING_NS, Bounds, ClockOffset

#: A lead is unknown where half the width of its interval is more than both of these: us, and share of the lead.
LEAD_ERROR_US = 100.0
LEAD_ERROR_RATIO = 0.2
#: Most events that wait for an estimate of the offset; further ones are left out.
_WAITING = 4096


class LeadEstimate(Struct, frozen=True, gc=False):
    """The lead at one boundary in us, with half the width of its interval."""

    lead_us: float
    error_us: float
    stream_idle: bool

    @property
    def known(self) -> bool:
        """True if it is certain enough to be reported."""
        return _is_certain(self.lead_us, self.error_us)


class SeenEvent(Struct, eq=False):
    """The GPU reached a boundary at ``gpu_ns`` of its clock; on the CPU's between ``earliest_ns`` and ``latest_ns``."""

    kind: int
    marked_ns: int
    gpu_ns: int
    earliest_ns: int
    latest_ns: int
    stream_idle: bool
    lead: LeadEstimate | None = None  # once the offset of the clocks was estimated

    @property
    def reached_ns(self) -> float | None:
        """When the GPU reached the boundary, by the CPU's clock; None while the offset of the clocks is unknown."""
        return None if self.lead is None else self.marked_ns + 1000 * self.lead.lead_us

    @property
    def reached_from_ns(self) -> float:
        """The earliest moment of the CPU's clock at which the GPU may have reached the boundary."""
        if self.lead is None:
            return self.earliest_ns
        return self.marked_ns + 1000 * (self.lead.lead_us - self.lead.error_us)


class Chain(Struct, eq=False):
    """One count of a GPU's clock, from anchor to anchor, and the events seen in it."""

    device: int
    anchor_ns: int = 0  # of the latest anchor, from the first
    error_us: float | None = None  # half the width of the offset, as estimated last
    _offset: ClockOffset = field(default_factory=ClockOffset)
    _waiting: list[SeenEvent] = field(default_factory=list)

    def add_event(self, kind: int, marked_ns: int, seen_ns: int, time: EventTime) -> SeenEvent:
        """An event was seen done; its time is on this count."""
        gpu_ns = self.anchor_ns + time.elapsed_ns
        gap_ns = 1000 * (time.gap_us or 0)
        earliest_ns = marked_ns if not gap_ns or time.stream_idle else max(marked_ns, seen_ns - gap_ns - ROUNDING_NS)
        prompt_ns = marked_ns + gap_ns + LAUNCH_NS if time.stream_idle and time.gap_us is not None else None
        self._offset.add_event(gpu_ns, earliest_ns, seen_ns, prompt_ns, FLOAT_ROUNDING * time.elapsed_ns)
        event = SeenEvent(kind, marked_ns, gpu_ns, earliest_ns, seen_ns, time.stream_idle)
        if len(self._waiting) < _WAITING:
            self._waiting.append(event)
        return event

    def move_anchor(self, elapsed_ns: int) -> None:
        """Another event becomes the anchor, ``elapsed_ns`` after the one before."""
        self.anchor_ns += elapsed_ns
        self._offset.loosen(FLOAT_ROUNDING * elapsed_ns)

    def take_leads(self) -> list[tuple[int, LeadEstimate]]:
        """The leads at the boundaries seen since the last call, with their kinds."""
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return []
        # streams keep no order among themselves, and beyond both ends a straight line through bounds is none
        first_ns, last_ns = min(event.gpu_ns for event in waiting), max(event.gpu_ns for event in waiting)
        ends = self._offset.bounds_at((first_ns, last_ns))
        if ends is None:
            return []
        first, last = ends
        self.error_us = (last.highest - last.lowest) / 2000
        length_ns = max(1, last_ns - first_ns)
        for event in waiting:
            event.lead = lead_at(event, _between(first, last, (event.gpu_ns - first_ns) / length_ns))
        return [(event.kind, event.lead) for event in waiting if event.lead is not None]


def _between(first: Bounds, last: Bounds, part: float) -> Bounds:
    return Bounds(
        first.lowest + part * (last.lowest - first.lowest), first.highest + part * (last.highest - first.highest)
    )


def lead_at(event: SeenEvent, offset: Bounds) -> LeadEstimate:
    """The lead at one boundary, from its event and the bounds of the clocks' offset.

    It was reached before it was seen done: an offset by which it was not is that of other events.
    """
    latest_ns = max(event.earliest_ns, event.latest_ns)
    low_ns = min(max(float(event.earliest_ns), event.gpu_ns + offset.lowest), float(latest_ns))
    high_ns = max(low_ns, min(float(latest_ns), event.gpu_ns + offset.highest))
    return LeadEstimate(((low_ns + high_ns) / 2 - event.marked_ns) / 1000, (high_ns - low_ns) / 2000, event.stream_idle)


def lead_record(boundary: str, estimates: Iterable[LeadEstimate]) -> Lead:
    """The leads at one kind of boundary; without times where most of them are unknown."""
    estimates = list(estimates)
    stream_idle = sum(estimate.stream_idle for estimate in estimates)
    mean_us, error_us = fmean(e.lead_us for e in estimates), fmean(e.error_us for e in estimates)
    mean = round(mean_us, 1) if _is_certain(mean_us, error_us) else None
    least_us = max(0.0, round(min(estimate.lead_us - estimate.error_us for estimate in estimates), 1))
    known = [estimate.lead_us for estimate in estimates if estimate.known]
    if 2 * len(known) <= len(estimates):
        return Lead(boundary, len(estimates), None, None, None, stream_idle, mean, least_us)
    lowest, middle, highest = (round(value, 1) for value in (min(known), median(known), max(known)))
    return Lead(boundary, len(estimates), lowest, middle, highest, stream_idle, mean, least_us)


def _is_certain(lead_us: float, error_us: float) -> bool:
    return error_us <= max(LEAD_ERROR_US, LEAD_ERROR_RATIO * lead_us)
