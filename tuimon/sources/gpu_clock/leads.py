"""How far launches run ahead: what the CPU's clock showed when the GPU came to a boundary, less when the CPU did."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple

from tuimon.agent.ring.layout import EventTime
from tuimon.records import Lead
from tuimon.sources.gpu_clock.offset import FLOAT_ROUNDING, LAUNCH_NS, ROUNDING_NS, Bounds, ClockOffset

#: A lead whose half width is more than both of these is not known: us, and share of the lead.
LEAD_ERROR_US = 100.0
LEAD_ERROR_RATIO = 0.2
#: So many events wait for the offset to be asked for; of more the rest is left out.
_WAITING = 4096


class Met(NamedTuple):
    """The GPU came to a boundary at ``gpu_ns`` of its clock; on the CPU's between ``earliest_ns`` and ``latest_ns``."""

    kind: int
    marked_ns: int
    gpu_ns: int
    earliest_ns: int
    latest_ns: int
    drained: bool


class Reach(NamedTuple):
    """The lead at one boundary in us, with half its width."""

    lead_us: float
    error_us: float
    drained: bool

    @property
    def known(self) -> bool:
        """Whether it is told."""
        return self.error_us <= max(LEAD_ERROR_US, LEAD_ERROR_RATIO * self.lead_us)


@dataclass(eq=False, slots=True)
class Chain:
    """One count of a GPU's clock, from anchor to anchor, and the events met in it."""

    device: int
    anchor_ns: int = 0  # of the latest anchor, from the first
    error_us: float | None = None  # half the width of the offset, when it was last asked for
    _offset: ClockOffset = field(default_factory=ClockOffset)
    _waiting: list[Met] = field(default_factory=list)

    def meet(self, kind: int, marked_ns: int, seen_ns: int, time: EventTime) -> int:
        """An event has happened; returns when on this count."""
        gpu_ns = self.anchor_ns + time.elapsed_ns
        gap_ns = 1000 * (time.gap_us or 0)
        earliest_ns = marked_ns if not gap_ns or time.stream_idle else max(marked_ns, seen_ns - gap_ns - ROUNDING_NS)
        prompt_ns = marked_ns + gap_ns + LAUNCH_NS if time.stream_idle else None
        self._offset.add(gpu_ns, earliest_ns, seen_ns, prompt_ns, FLOAT_ROUNDING * time.elapsed_ns)
        if len(self._waiting) < _WAITING:
            self._waiting.append(Met(kind, marked_ns, gpu_ns, earliest_ns, seen_ns, time.stream_idle))
        return gpu_ns

    def move_anchor(self, elapsed_ns: int) -> None:
        """Another event is the anchor, so long after the one before."""
        self.anchor_ns += elapsed_ns
        self._offset.loosen(FLOAT_ROUNDING * elapsed_ns)

    def reaches(self) -> list[tuple[int, Reach]]:
        """The leads at the boundaries met since the last call, by kind."""
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return []
        first_ns, last_ns = waiting[0].gpu_ns, waiting[-1].gpu_ns
        ends = self._offset.at((first_ns, last_ns))
        if ends is None:
            return []
        first, last = ends
        self.error_us = (last.highest - last.lowest) / 2000
        length_ns = max(1, last_ns - first_ns)
        return [(met.kind, reach(met, _between(first, last, (met.gpu_ns - first_ns) / length_ns))) for met in waiting]


def _between(first: Bounds, last: Bounds, part: float) -> Bounds:
    return Bounds(
        first.lowest + part * (last.lowest - first.lowest), first.highest + part * (last.highest - first.highest)
    )


def reach(met: Met, offset: Bounds) -> Reach:
    """The lead at one boundary, from what its event tells and what the offset of the clocks can be."""
    low_ns = max(float(met.earliest_ns), met.gpu_ns + offset.lowest)
    high_ns = max(low_ns, min(float(met.latest_ns), met.gpu_ns + offset.highest))
    return Reach(((low_ns + high_ns) / 2 - met.marked_ns) / 1000, (high_ns - low_ns) / 2000, met.drained)


def lead(boundary: str, reaches: Iterable[Reach]) -> Lead:
    """The leads at one kind of boundary; without times where most of them are not known."""
    reaches = list(reaches)
    drained = sum(reach.drained for reach in reaches)
    known = [reach.lead_us for reach in reaches if reach.known]
    if 2 * len(known) <= len(reaches):
        return Lead(boundary, len(reaches), None, None, None, drained)
    lowest, middle, highest = (round(value, 1) for value in (min(known), median(known), max(known)))
    return Lead(boundary, len(reaches), lowest, middle, highest, drained)
