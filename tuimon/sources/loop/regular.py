"""Whole steps that are alike to one before: taken at once, with the result that they would have marker by marker.

What a loop's boundaries do depends on what stands before them (``LoopMachine.standing``) and on their kinds, but not on
their times, so long as these rise. So where the markers from one update to the next have left the machine as they found
it, the same markers do the same again: a step ends, its time divides in the same way, the counters rise by as much.
That is learned from one step that was fed marker by marker, and kept only if it gives the result which that step had.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from operator import sub

from msgspec import Struct, field

from tuimon.agent.ring import layout
from tuimon.agent.ring.columns import NO_FLAG, Columns, head_of
from tuimon.agent.ring.layout import Marker
from tuimon.sources.loop.ended import StepCounts
from tuimon.sources.loop.machine import LoopMachine, Standing
from tuimon.sources.loop.rounds import Optimizers
from tuimon.sources.loop.step import Step, StepFlags, StepRun
from tuimon.sources.loop.stretch import Stretch

#: Markers of a step at most.
_LONGEST = 64
#: Steps taken at once: where not all are alike, half as many are tried, and so on.
_AT_ONCE = 64
#: Kinds of step known at once: of several models, or optimizers, in turn.
_KNOWN = 4
#: Updates between two attempts to learn where all have failed.
_RAREST = 64
#: What may end an update.
_ENDS = (layout.OPTIMIZER_END, layout.BACKWARD_END)


class StepPattern(Struct, frozen=True):
    """The markers from one update to the next, and what they do."""

    heads: list[int]  # without the flags of fetches' begins, which hold how many batches were ready
    values: list[int]
    fetches: tuple[int, ...]  # where fetches begin; each ends with the next marker
    batches: tuple[tuple[int, bool], ...]  # where a fetch (True) or a backward begins
    standing: Standing  # before them, and after them
    counts: StepCounts  # by how much they raise the counters
    labels: tuple[str, ...]  # of the time before each marker
    late: int  # so many of the first ones belong to the step that ends
    ended_at: int | None  # the marker at which that ends; None: with the update before them
    ended_flags: StepFlags
    piece_flags: StepFlags  # of the step that follows, so far
    optimizers: Optimizers  # of the last update

    def fits(self, columns: Columns, at: int, times: int = 1) -> bool:
        """True if these are the next markers, so many times."""
        length = len(self.heads)
        end = at + times * length
        if columns.values[at:end] != self.values * times:
            return False
        heads = columns.heads[at:end]
        for begin in self.fetches:
            heads[begin::length] = [head & NO_FLAG for head in heads[begin::length]]
        return heads == self.heads * times

    def may_fit(self, columns: Columns, at: int) -> bool:
        """True if its markers may not all have come yet."""
        return at + len(self.heads) > len(columns.heads)

    def end_step(self, piece: Step, times_ns: Sequence[int], gaps_ns: Sequence[int]) -> Step:
        """End the step of ``piece``; returns the piece that follows. ``gaps_ns``: the time before each marker."""
        late = self.late
        if late:
            for label, gap_ns in zip(self.labels[:late], gaps_ns, strict=False):
                piece.add_time(label, gap_ns)
            piece.set_flags(self.ended_flags)
        if self.ended_at is not None:
            piece.end_ns = times_ns[self.ended_at]
        phases: dict[str, int] = {}
        for label, gap_ns in zip(self.labels[late:], gaps_ns[late:], strict=True):
            phases[label] = phases.get(label, 0) + gap_ns
        return Step(times_ns[-1], sum(gaps_ns[late:]), phases, *self.piece_flags)

    def run(self, ends_ns: Sequence[int], gaps_ns: Sequence[int]) -> StepRun:
        """The steps between the first end and the last. ``gaps_ns``: the time before each of their markers."""
        late, length = self.late, len(self.heads)
        steps = len(ends_ns) // length - 1
        return StepRun(
            ends_ns=ends_ns[late::length][: steps + 1],
            gaps_ns=gaps_ns[late : late + steps * length],
            labels=self.labels[late:] + self.labels[:late],
            flags=self.ended_flags,
        )


class RegularSteps:
    """Learns the steps of one thread's loop, and takes those that follow."""

    def __init__(self, machine: LoopMachine) -> None:
        self.is_ready = False  # an update has just ended
        self._machine = machine
        self._known: list[StepPattern] = []  # the latest first
        self._attempt: _Attempt | None = None
        self._wait = 0  # updates to let pass until the next attempt
        self._next_wait = 1

    def feed_marker(self, marker: Marker) -> Stretch:
        """Feed one marker to the machine, and learn from it."""
        machine, attempt = self._machine, self._attempt
        stretch = machine.feed_marker(marker) if attempt is None else attempt.feed_marker(machine, marker)
        self.is_ready = machine.has_updated
        if attempt is not None:
            if self.is_ready and machine.standing() == attempt.standing:
                self._end_attempt(attempt)
            elif not attempt.may_go_on:
                self._attempt = None
        return stretch

    def interrupt(self) -> None:
        """What follows is not the continuation of what was fed before."""
        self._attempt = None
        self.is_ready = False

    def take(self, columns: Columns, at: int, end_ns: int) -> tuple[StepPattern, int] | None:
        """Take the steps from ``at`` on whose markers are all before ``end_ns``; how many markers they had."""
        self.is_ready = False
        standing = self._machine.standing()
        found = next((pattern for pattern in self._known if pattern.fits(columns, at)), None)
        if found is None or found.standing != standing:
            if not any(pattern.may_fit(columns, at) for pattern in self._known):
                self._begin_attempt(standing)
            return None
        taken = self._take(found, columns, at, end_ns)
        if not taken:
            return None
        self.is_ready = True
        self._next_wait = 1
        if self._known[0] is not found:
            self._known.remove(found)
            self._known.insert(0, found)
        return found, taken

    def _take(self, pattern: StepPattern, columns: Columns, at: int, end_ns: int) -> int:
        begin, length, piece = at, len(pattern.heads), self._machine.steps.updated
        while piece is not None:
            steps = min((bisect_left(columns.times_ns, end_ns, at) - at) // length, _AT_ONCE)
            piece = None
            while steps and piece is None:
                times_ns = columns.times_ns[at : at + steps * length]
                piece = self._take_steps(pattern, times_ns, end_ns) if pattern.fits(columns, at, steps) else None
                at += steps * length if piece is not None else 0
                steps //= 2
        return at - begin

    def _take_steps(self, pattern: StepPattern, times_ns: list[int], end_ns: int) -> Step | None:
        """Take the steps with these times; returns the piece that follows, None where the times do not rise."""
        length, piece = len(pattern.heads), self._machine.steps.updated
        marks_ns = [self._machine.last_ns, *times_ns]
        gaps_ns = list(map(sub, times_ns, marks_ns))
        if piece is None or times_ns[-1] >= end_ns or min(gaps_ns) <= 0:
            return None
        ended: list[Step | StepRun] = [piece]
        updated = pattern.end_step(piece, times_ns[:length], gaps_ns[:length])
        if len(times_ns) > length:
            ended.append(pattern.run(marks_ns, gaps_ns))
            updated = pattern.end_step(updated, times_ns[-length:], gaps_ns[-length:])
        self._machine.pass_steps(ended, len(times_ns) // length, updated, pattern.counts, pattern.optimizers)
        return updated

    def _begin_attempt(self, standing: Standing | None) -> None:
        self._wait -= 1
        piece = self._machine.steps.updated
        if standing is None or piece is None or self._wait > 0:
            return
        self._wait, self._next_wait = self._next_wait, min(2 * self._next_wait, _RAREST)
        self._attempt = _Attempt(standing, self._machine.steps.counts(), piece.copy(), self._machine.last_ns)

    def _end_attempt(self, attempt: _Attempt) -> None:
        self._attempt = None
        pattern = attempt.pattern(self._machine)
        if pattern is not None:
            self._known = [pattern, *self._known[: _KNOWN - 1]]


class _Attempt(Struct):
    """Markers from one update on, fed one by one, and what they did."""

    standing: Standing
    counts: StepCounts
    piece: Step
    last_ns: int
    markers: list[Marker] = field(default_factory=list)
    stretches: list[Stretch] = field(default_factory=list)
    ended: list[tuple[int, Step]] = field(default_factory=list)  # at which marker, and the step

    @property
    def may_go_on(self) -> bool:
        """True if it may still become a pattern."""
        return len(self.markers) < _LONGEST and len(self.ended) <= 1

    def feed_marker(self, machine: LoopMachine, marker: Marker) -> Stretch:
        """Feed one marker, and see what comes of it."""
        ended = machine.steps.pieces.ended
        before = len(ended)
        stretch = machine.feed_marker(marker)
        self.ended += [(len(self.markers), step) for step in ended[before:] if isinstance(step, Step)]
        self.markers.append(marker)
        self.stretches.append(stretch)
        return stretch

    def pattern(self, machine: LoopMachine) -> StepPattern | None:
        """What the markers have shown; None where they make no pattern."""
        piece = machine.steps.updated
        if len(self.ended) != 1 or piece is None or not self._is_plain():
            return None
        at, ended = self.ended[0]
        kinds = [marker.kind for marker in self.markers]
        if kinds[at] == layout.BACKWARD_BEGIN:  # the step had ended with the update before it
            at = max((i for i, kind in enumerate(kinds[:at]) if kind in _ENDS), default=-1)
        begins = (layout.FETCH_BEGIN, layout.BACKWARD_BEGIN)
        found = StepPattern(
            heads=[_head(marker) for marker in self.markers],
            values=[marker.value for marker in self.markers],
            fetches=tuple(i for i, kind in enumerate(kinds) if kind == layout.FETCH_BEGIN),
            batches=tuple((i, kind == layout.FETCH_BEGIN) for i, kind in enumerate(kinds) if kind in begins),
            standing=self.standing,
            counts=StepCounts(*map(sub, machine.steps.counts(), self.counts)),
            labels=tuple(stretch.label for stretch in self.stretches),
            late=at + 1,
            ended_at=None if at < 0 else at,
            ended_flags=ended.flags,
            piece_flags=piece.flags,
            optimizers=machine.steps.optimizers,
        )
        return found if self._has_given(found, ended, piece) else None

    def _is_plain(self) -> bool:
        """True if all of it were batches, backwards, updates and steps of one thread, without an event."""
        fetched = False  # whether a fetch has just begun
        for marker, stretch in zip(self.markers, self.stretches, strict=True):
            kind = marker.kind
            if kind in (layout.ITER_BEGIN, layout.ITER_END) or marker.tid != self.markers[0].tid or stretch.evaluated:
                return False
            if kind != layout.FETCH_BEGIN and marker.flag != layout.NO_EVENT:
                return False
            if fetched != (kind == layout.FETCH_END and stretch.opened is not None):
                return False
            if fetched and stretch.opened is not None and stretch.opened.value != marker.value:
                return False
            fetched = kind == layout.FETCH_BEGIN
        return not fetched

    def _has_given(self, pattern: StepPattern, ended: Step, piece: Step) -> bool:
        """True if the pattern gives the result that its markers have had."""
        times_ns = [marker.time_ns for marker in self.markers]
        gaps_ns = list(map(sub, times_ns, [self.last_ns, *times_ns]))
        return min(gaps_ns) > 0 and pattern.end_step(self.piece, times_ns, gaps_ns) == piece and self.piece == ended


def _head(marker: Marker) -> int:
    return head_of(marker) & (NO_FLAG if marker.kind == layout.FETCH_BEGIN else -1)
