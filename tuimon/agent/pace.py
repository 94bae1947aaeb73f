"""Decides which steps of a loop are timed: as many as the token bucket pays for.

If markers cost more than their share of the training's time, spells of timed steps take turns with gaps: whole steps,
whose boundaries the hooks only count. The length of a gap is random, so that work that a loop does every n steps does
not always fall into one. A gap begins and ends where a step begins (``steps.py``), with a GAP_BEGIN marker and a
GAP_END marker that has the counts. Anything else in its thread ends the gap immediately: a fetch of another iterator,
the end of an epoch, a user range. Only one thread has gaps, the first that makes an update by a torch optimizer.
"""

import os
from _thread import get_ident, get_native_id
from time import monotonic_ns
from typing import Any

from . import runtime
from .ring import layout
from .ring.layout import BACKWARD_BEGIN, FETCH_BEGIN, GAP_BEGIN, GAP_END, STEP
from .steps import BACKWARD, StepCounter, TokenBucket

#: Timing takes at most one part in this many of the time: 0.15 %. Counting takes up to 0.8 % of steps of 0.3 ms.
TIME_PARTS = 650
#: Cost of a marker, and of a gap's beginning and end without their markers, in ns. Measured in steps of 5 ms, in which
#: our code is cold; in steps of 0.3 ms it is less.
MARKER_NS, GAP_NS = 5000, 20_000
#: Updates in the first spell, from which the monitor learns what a step is; in later spells; in a gap, at least.
FIRST, SPELL, SHORTEST = 64, 16, 4
#: A gap is planned to be no longer than this, and ends with the step after which the clock shows twice as much.
LONGEST_NS = 650_000_000
#: The mean step length is taken over this many of the latest gaps and their spells, some ten seconds.
MEAN_ROUNDS = 64
#: Updates between two readings of the clock in a gap: in steps of 0.3 ms one takes 0.2 us, because caches are cold.
CLOCK_UPDATES = 8


class Pace(StepCounter):
    """The pace of the only loop that may have gaps, and the counts of the hooks in its thread.

    While a gap goes on, a hook counts the usual boundaries itself, without a call, in the fields that are not private.
    """

    def __init__(self) -> None:
        self.leave()

    def leave(self) -> None:
        """Forget the loop: the next thread that makes an update has it from then on."""
        super().__init__()
        self.held = False  # every step must be timed
        self.thread = self._tid = 0  # of the loop: ident and OS id
        self.counting_thread = 0  # ident of the thread in a gap, else 0
        self.open_gap_thread = 0  # the same while the next step does not end the gap
        self.usual_iterator = -1  # whose fetches are then counted
        self.is_inside = False  # a backward is under way
        self.fetches = self.backwards = self.steps = 0  # counted in the gap
        self.begun = 0  # further fetches, which have begun a step each
        self._until = FIRST  # updates at which this spell or gap is over
        self.clock_read_ns = 0  # when it was last read in a gap
        self._written = 0  # markers that are paid for
        self._iterator = -1  # of the latest fetch
        self._kind = 0  # kind of the boundary with which the gap's steps begin
        self.bucket = TokenBucket(TIME_PARTS, MEAN_ROUNDS, LONGEST_NS * 2 // 3 // TIME_PARTS)
        self._writer: Any = None

    def claim(self) -> bool:
        """True if this thread, which has just made an update, has the loop: the first to do so has it until it ends."""
        if not os.access("/proc/self/task/%d" % self._tid, os.F_OK):
            self.end()
            self.leave()
            self.thread, self._tid = get_ident(), get_native_id()
        return self.thread == get_ident()

    def passes_fetch(self, iterator: int) -> bool:
        """A fetch begins in the loop's thread; True if it is only counted."""
        if iterator != self._iterator:  # an evaluation may begin
            self.end()
            self._iterator = iterator
            self.begin_fetch()
        elif self.begin_fetch():
            self._begin_step(FETCH_BEGIN)
        self.fetches += 1
        return self.counting_thread != 0

    def fail_fetch(self, iterator: int) -> None:
        """Handle a counted fetch that brought no batch: it began within the gap, and ends it."""
        if self.counting_thread:  # otherwise the end of the gap has counted the fetch
            self.fetches -= 1
            self.last = BACKWARD
            runtime.emit(FETCH_BEGIN, iterator, layout.FETCHED_IN_GAP)

    def passes_backward(self) -> bool:
        """A backward begins in the loop's thread; True if it is only counted. It may run inside another."""
        if not self.is_inside:
            if self.begin_backward():
                self._begin_step(BACKWARD_BEGIN)
            self.backwards += 1
        return self.counting_thread != 0

    def mark(self) -> None:
        """``tuimon.step()`` in the loop's thread."""
        self.mark_step()
        if not self.counting_thread or self._kind != STEP:
            runtime.emit(STEP)
        self._begin_step(STEP)

    def check_length(self) -> None:
        """Read the clock in a gap; if the gap has been long enough, the next step ends it."""
        self.clock_read_ns = monotonic_ns()
        if self.updates >= self._until or self.clock_read_ns > self.bucket.now_ns + 2 * LONGEST_NS:
            self.open_gap_thread, self.usual_iterator = 0, -1

    def end(self, kind: int = 0) -> None:
        """End the gap, and write its counts; ``kind``: of the boundary at which it ends, 0 within a step."""
        self.open_gap_thread, self.usual_iterator = 0, -1
        thread, self.counting_thread = self.counting_thread, 0
        if not thread:
            return
        writer, ended_ns, passed = self._writer, monotonic_ns(), self.updates - self.bucket.steps
        if not kind:  # time after the loop, such as an upload, does not belong to the gap
            ended_ns = min(ended_ns, self.clock_read_ns + 2 * CLOCK_UPDATES * self.bucket.mean_ns)
        if runtime.emit == self.emit_in_gap:
            runtime.emit = writer.emit
        writer.hold()
        counts = layout.pack_gap(self.fetches + self.begun, self.backwards, passed, self.steps + self.begun)
        writer.emit_of(ended_ns, thread, GAP_END, counts, kind or layout.GAP_IN_STEP[self.last + 1])
        # A gap may have been cut short by something that happens in every step, such as a user range; otherwise it
        # resumes with the next step. A long spell has a random length: if it were as long as an epoch, each gap would
        # begin right before an epoch's end.
        short = int(FIRST * (0.5 + writer.random())) if passed < SHORTEST else 0
        self._until = self.updates + (SPELL if kind else short)

    def emit_in_gap(self, kind: int, value: int = 0, flag: int = 0) -> None:
        """``runtime.emit`` while there is a gap, which a marker of its thread ends."""
        if kind not in layout.NO_LOOP_KINDS and self.thread == get_ident():
            self.end()
        self._writer.emit(kind, value, flag)

    def _begin_step(self, kind: int) -> None:
        """Begin a step at this boundary; begin a gap too, if a spell is over and timing has cost too much."""
        if self.counting_thread:
            self.steps += kind == self._kind != BACKWARD_BEGIN
            if not self.open_gap_thread or kind != self._kind:
                self.end(kind)
        if self.counting_thread or self.updates < self._until:
            return
        writer, bucket, self._until = runtime.writer(), self.bucket, self.updates + SPELL
        if writer is None or runtime.emit not in (writer.emit, self.emit_in_gap) or runtime.has_clock():
            return
        writer.flush()
        bucket.spend((writer.written() - self._written) * MARKER_NS + GAP_NS)
        bucket.pass_steps(self.updates, monotonic_ns())
        self._written = writer.written()
        updates = int(bucket.steps_owed() * (0.5 + writer.random()))
        if updates < SHORTEST or runtime.facts_due or self.held:
            return
        writer.emit(GAP_BEGIN, kind)
        writer.flush()  # the monitor learns no more until the gap ends
        self.fetches = self.backwards = self.steps = self.begun = 0
        self._writer, self._kind, self.clock_read_ns, self._until = writer, kind, bucket.now_ns, self.updates + updates
        runtime.emit, self.counting_thread = self.emit_in_gap, self.thread
        self.open_gap_thread, self.usual_iterator = self.thread, self._iterator if kind == FETCH_BEGIN else -1


pace = Pace()
runtime.end_gap = pace.end
runtime.in_child.append(pace.leave)
