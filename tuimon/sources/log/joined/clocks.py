"""The clocks of the nodes of a run, held against each other by its steps: all ranks of a job pass one together."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable
from statistics import median
from typing import NamedTuple

from tuimon.records import Process, Record, Steps

#: Latest windows of a rank that are kept, and how many pairs a comparison needs.
_POINTS, _LEAST = 64, 5
#: Two windows of the reference are at most this far apart where a moment between them is interpolated.
_GAP_S = 30.0
#: A wall clock is corrected when steps show it to be off by more than a step and so many residuals: what is less may be
#: the lag of the rank itself, which a correction would hide.
_RESIDUALS = 4.0


class Comparison(NamedTuple):
    """A clock against the reference's: seconds it is ahead, half the pairs lie within ``residual_s`` of that."""

    ahead_s: float
    residual_s: float
    is_wrong: bool  # beyond what a lag of the rank would explain


class _Track:
    """When one rank had made how many steps, by its node's wall clock."""

    def __init__(self, rank: int, world_size: int) -> None:
        self.rank = rank
        self.world_size = world_size
        self.points: deque[tuple[int, float]] = deque(maxlen=_POINTS)  # (steps, seconds)
        self.step_s = 0.0

    def add_window(self, record: Steps, t: float) -> None:
        steps = record.first_index + record.count
        if self.points and steps < self.points[-1][0]:
            self.points.clear()
        self.points.append((steps, t))
        self.step_s = record.total_ns / record.count / 1e9

    def time_of(self, steps: int) -> float | None:
        """When it had made so many steps, between two windows interpolated."""
        at = bisect_left(self.points, (steps, 0.0))
        if not 0 < at < len(self.points):
            return None
        (before, from_s), (after, to_s) = self.points[at - 1], self.points[at]
        if after == before or to_s - from_s > _GAP_S:
            return None
        return from_s + (to_s - from_s) * (steps - before) / (after - before)


class LogClock:
    """The steps of the lowest rank of one log."""

    def __init__(self) -> None:
        self._ranks: dict[int, tuple[int, int]] = {}  # pid -> rank, world size
        self._pid = -1
        self.track: _Track | None = None

    def add_records(self, records: Iterable[Record], wall_s: float) -> None:
        """Note records of the log; ``wall_s`` makes their moments those of its node's wall clock."""
        for record in records:
            kind = type(record)
            if kind is Steps:
                self._add_steps(record, wall_s)  # type: ignore[arg-type]  # it is one
            elif kind is Process:
                self._add_process(record)  # type: ignore[arg-type]  # it is one

    def _add_steps(self, record: Steps, wall_s: float) -> None:
        if record.count and record.pid in self._ranks:
            rank, world_size = self._ranks[record.pid]
            if self.track is None or rank < self.track.rank or (rank == self.track.rank and record.pid != self._pid):
                self.track, self._pid = _Track(rank, world_size), record.pid
            if record.pid == self._pid:
                self.track.add_window(record, record.t + wall_s)

    def _add_process(self, record: Process) -> None:
        if record.ended or record.rank is None or (record.world_size or 1) < 2:
            self._ranks.pop(record.pid, None)
        else:
            self._ranks[record.pid] = (record.rank, record.world_size or 1)


def compare(clock: LogClock, reference: LogClock) -> Comparison | None:
    """How far a node's wall clock is ahead of the reference's; None without steps of one job on both."""
    track, other = clock.track, reference.track
    if track is None or other is None or track.world_size != other.world_size:
        return None
    pairs = ((t, other.time_of(steps)) for steps, t in track.points)
    found = [t - reference_t for t, reference_t in pairs if reference_t is not None]
    if len(found) < _LEAST:
        return None
    ahead_s = median(found)
    residual_s = median(abs(each - ahead_s) for each in found)
    allowed_s = max(track.step_s, other.step_s) + _RESIDUALS * residual_s
    return Comparison(ahead_s, residual_s, abs(ahead_s) > allowed_s)
