"""Which steps of a loop are timed: as many as the token bucket pays for.

Where markers cost more than their share of the training's time, spells of timed steps take turns with gaps: whole
steps, whose boundaries the hooks only count. How long a gap is, is random: what a loop does every so many steps must
not always fall into one. A gap begins and ends where a step begins (``steps.py``), with a GAP_BEGIN marker and a
GAP_END marker that has the counts. Whatever else comes in its thread ends it at once: a fetch of another iterator, the
end of an epoch, a user range. If that comes long after the gap's last update, the gap has ended with that: an upload
after the loop is no part of it. Only one thread has gaps, the first that makes an update by an optimizer of torch's.
"""

from _thread import get_ident
from time import monotonic_ns
from typing import Any

from . import runtime
from .ring import layout
from .ring.layout import BACKWARD_BEGIN, FETCH_BEGIN, GAP_BEGIN, GAP_END, GAP_PAUSE, STEP
from .steps import BARE_UPDATES, StepCounter
from .thread_end import when_thread_ends
from .token_bucket import TokenBucket

#: Timing takes at most one part in this many of the time: 0.15 %. Counting takes up to 0.8 % of steps of 0.3 ms.
TIME_PARTS = 650
#: What a marker costs, and a turn from gap to spell and back beside its markers, in ns. Measured in steps of 5 ms,
#: whose code is cold for it; in steps of 0.3 ms it is less.
MARKER_NS, TURN_NS = 5000, 20_000
#: Updates before the first gap, by which the monitor knows what makes a step; of each later spell; of a gap at least.
FIRST, SPELL, SHORTEST = 64, 16, 4
#: A gap is planned to be no longer than this, and ends with the step after which the clock shows twice as much.
LONGEST_NS = 650_000_000
#: Gaps, with their spells, that the mean length of a step is of: the latest ones, of some ten seconds.
MEAN_ROUNDS = 64
#: A counted step that takes so many times as long as the others, and so long at least, has a marker of its own.
PAUSE_STEPS, PAUSE_NS = 8, 5_000_000
#: In a gap the clock is read at every so many updates: at steps of 0.3 ms that takes 0.2 us, in caches that are cold.
LOOK_UPDATES = 8
#: Markers that do not belong to a loop, and so do not end its gap.
_OF_NO_LOOP = layout.OF_LOADERS | layout.OF_NO_LOOP


class Pace(StepCounter):
    """The pace of the one loop that may have gaps, and what the hooks in its thread count.

    In a gap that goes on, a hook does the usual itself, without a call: see the fields that are not private.
    """

    def __init__(self) -> None:
        self.held = False  # every step must be timed
        self.leave()

    def leave(self) -> None:
        """There is no loop any more: the next thread that updates has it."""
        super().__init__()
        self.thread = self.counting = 0  # the loop's, and in a gap
        self._go_on(0, -1)
        self.is_inside = False  # a backward is under way
        self.fetches = self.backwards = self.steps = 0  # of the gap
        self.begun = 0  # beside these, fetches that have begun a step each
        self.left = self._planned = FIRST  # updates of this spell, or gap
        self.began_ns = self.looked_ns = monotonic_ns()  # this spell or gap; and when a gap's clock was read last
        self._looked_left = 0  # what was left then
        self._passed = self._written = 0  # updates since it was last decided if steps are timed; markers until then
        self._iterator = -1  # of the latest fetch
        self._kind = 0  # of boundary, with which the steps of the gap begin
        most_ns = LONGEST_NS // TIME_PARTS
        self._bucket = TokenBucket(TIME_PARTS, MEAN_ROUNDS, most_ns, 2 * most_ns)
        self._writer: Any = None

    def claim(self) -> bool:
        """True if the loop is this thread's, which has just updated; the first that does has it until it ends."""
        if not self.thread:
            self.leave()
            when_thread_ends(self._end_thread)  # first: where it replaces an earlier call, that is made
            self.thread = get_ident()
        return self.thread == get_ident()

    def passes_fetch(self, iterator: int) -> bool:
        """A fetch begins in the loop's thread; True if it is only counted."""
        is_usual = iterator == self._iterator
        if not is_usual:
            self.end()
            self._iterator = iterator
        if self.begin_fetch() and is_usual:  # else an evaluation may begin
            self._begin_step(FETCH_BEGIN)
        self.fetches += 1
        return self.counting != 0

    def fail_fetch(self, iterator: int) -> None:
        """A counted fetch has brought no batch: it ends the gap, and has begun within it."""
        if self.counting:  # else what ended the gap meanwhile has counted the fetch
            self.fetches -= 1
            self.run = 0
            self.end()
            runtime.emit(FETCH_BEGIN, iterator, layout.FETCHED_IN_GAP)

    def passes_backward(self) -> bool:
        """A backward begins in the loop's thread; True if it is only counted. It may run inside another."""
        if not self.is_inside:
            if self.begin_backward():
                self._begin_step(BACKWARD_BEGIN)
            self.backwards += 1
        return self.counting != 0

    def passes_optimizer(self) -> None:
        """An optimizer step has ended in the loop's thread."""
        if self.end_optimizer_step():
            self.left -= 1
            if self.counting and self.left % LOOK_UPDATES == 0:
                self.look()

    def mark(self) -> None:
        """``tuimon.step()`` in the loop's thread."""
        self.mark_step()
        if self._kind != STEP:
            self.end()
        if not self.counting:
            runtime.emit(STEP)
        self._begin_step(STEP)

    def look(self) -> int:
        """Read the clock in a gap: a step since the last reading may have been a long one, or the gap is to end."""
        now_ns, steps = monotonic_ns(), self._looked_left - self.left
        over_ns = now_ns - self.looked_ns - max(0, steps - 1) * self._bucket.mean_ns
        if over_ns > self.pause_ns():
            self._writer.emit(GAP_PAUSE, over_ns)
        self.looked_ns, self._looked_left = now_ns, self.left
        if self.left <= 0 or now_ns > self.began_ns + 2 * LONGEST_NS:
            self._go_on(0, -1)
        if self.left < -BARE_UPDATES:  # the loop's steps no longer begin as they did
            self.by_fetch = self.by_mark = 0
            self.end()
        return now_ns

    def end(self, kind: int = 0) -> None:
        """End the gap, and mark what it has counted; ``kind``: of the boundary at which it ends, 0 within a step."""
        self._go_on(0, -1)
        thread, self.counting = self.counting, 0
        if not thread:
            return
        writer, passed = self._writer, self._planned - self.left
        ended_ns = self.look() if kind else monotonic_ns()
        updated_ns = self.looked_ns + (self._looked_left - self.left) * self._bucket.mean_ns  # about the last update
        if ended_ns > updated_ns + self.pause_ns():
            ended_ns = updated_ns
        if runtime.emit == self.wake:
            runtime.emit = writer.emit
        writer.hold()
        counts = layout.pack_gap(self.fetches + self.begun, self.backwards, passed, self.steps + self.begun)
        writer.emit_of(ended_ns, thread, GAP_END, counts, kind or layout.GAP_IN_STEP[min(self.run, 1) + 1])
        self._passed += passed
        # What cut the gap short may come in every step, as a user range; else the gap goes on with the next. A long
        # spell is random: were it as long as an epoch, each gap would begin right before its end.
        short = int(FIRST * (0.5 + writer.drawn())) if passed < SHORTEST else 0
        self.left = self._planned = SPELL if kind else short

    def wake(self, kind: int, value: int = 0, flag: int = 0) -> None:
        """``runtime.emit`` in a gap."""
        if kind not in _OF_NO_LOOP and self.thread == get_ident():
            self.end()
        self._writer.emit(kind, value, flag)

    def _begin_step(self, kind: int) -> None:
        """A step begins with this boundary."""
        if self.counting:
            self.steps += kind == self._kind != BACKWARD_BEGIN
            if not self.going_on or kind != self._kind:
                self.end(kind)
        elif self.left <= 0:
            self._decide(kind)

    def _decide(self, kind: int) -> None:
        """The spell is over: begin a gap where timing has cost more than its share, else another spell."""
        writer, now_ns, bucket = runtime.writer(), monotonic_ns(), self._bucket
        passed, took_ns = self._passed + self._planned - self.left, now_ns - self.began_ns
        self.left = self._planned = SPELL
        self._passed, self.began_ns = 0, now_ns
        if writer is None or runtime.emit not in (writer.emit, self.wake) or runtime.has_clock():
            return
        writer.flush()
        bucket.pass_steps(max(1, passed), took_ns)
        if self._writer is writer:
            bucket.spend((writer.written() - self._written) * MARKER_NS + TURN_NS)
        self._writer, self._written = writer, writer.written()
        updates = updates_to_pay(bucket.steps_owed(), bucket.mean_ns, writer.drawn())
        if updates < SHORTEST or runtime.facts_due or self.held:
            return
        writer.emit(GAP_BEGIN, kind)
        writer.flush()  # it is all that is known until the gap ends
        self.fetches = self.backwards = self.steps = self.begun = 0
        self._kind, self.left, self._planned = kind, updates, updates
        self.looked_ns, self._looked_left = now_ns, updates
        runtime.emit = self.wake
        self.counting = self.thread
        self._go_on(self.thread, self._iterator if kind == FETCH_BEGIN else -1)

    def _go_on(self, thread: int, iterator: int) -> None:
        """The gap goes on where this thread's next step begins, and may with this iterator's fetch; or it does not."""
        self.going_on, self.usual_iterator = thread, iterator

    def pause_ns(self) -> int:
        """From how long on a step of the gap is a long one."""
        return max(PAUSE_NS, PAUSE_STEPS * self._bucket.mean_ns)

    def _end_thread(self) -> None:
        """The thread ends: mark what it has counted before another thread has its number."""
        if self.thread == get_ident():
            self.end()
            self.thread = 0
            writer = runtime.writer()  # of this process: a forked child has its parent's threads' variables
            if writer is not None:
                writer.flush()


def updates_to_pay(owed: int, each_ns: int, drawn: float) -> int:
    """How long a gap is, in updates, that pays for so many: half as many to one and a half times as many."""
    return int(min(owed, LONGEST_NS / 1.5 / max(each_ns, MARKER_NS)) * (0.5 + drawn))


pace = Pace()
runtime.end_gap = pace.end
runtime.forget_loop = pace.leave
