"""Which steps of a loop are timed: a token bucket for what timing costs.

Markers may take a fixed share of the training's time. Where they would cost more, spells of timed steps take turns with
gaps: whole steps, as many as pay for the spell, whose boundaries are only counted. A GAP_BEGIN marker and a GAP_END
marker with the counts stand around each. How long a gap is, is random: what a loop does every so many steps must not
always fall into one.

A gap begins and ends at a boundary: the first fetch or backward after an update, ``tuimon.step()``; in an evaluation
each fetch. Whatever else comes ends it at once: a fetch of another iterator, the end of an epoch, a user range, any
other marker of the loop's thread.

Only one thread has gaps, and only that thread touches them; the boundaries of others are always timed.
"""

from _thread import get_ident
from time import monotonic_ns
from typing import Any

from . import runtime
from .ring.layout import (
    BACKWARD_BEGIN,
    BATCH,
    EVALUATED,
    FETCH_BEGIN,
    FETCHED_IN_GAP,
    GAP_AFTER_UPDATE,
    GAP_BEGIN,
    GAP_END,
    GAP_IN_STEP,
    GAP_PAUSE,
    GC_PAUSE,
    MARK,
    OPTIMIZER_MADE,
    STEP,
    pack_gap,
)
from .ring.no_writer import NoWriter
from .thread_end import when_thread_ends

#: Timing takes at most one part in this many of the time: 0.25 %.
TIME_PARTS = 400
#: What a marker costs, in ns. Measured in steps of 5 ms, whose code is cold for it; in steps of 0.3 ms it is less.
MARKER_NS = 5000
#: The end of a spell and of the gap after it, in ns, beside their markers.
TURN_NS = 20_000
#: Boundaries of a spell: of three optimizers in turn, five whole steps.
SPELL = 16
#: Gaps, with their spells, that the mean length of a step is of: the latest ones, of some ten seconds.
MEAN_ROUNDS = 64
#: Boundaries before the first gap: the monitor knows by then what makes a step.
FIRST = 64
#: Fewer steps than this are no gap: timing goes on, and is paid for later.
SHORTEST = 4
#: A gap is planned to be no longer than this, and ends by itself after twice as long.
LONGEST_NS = 500_000_000
#: A counted step that takes so many times as long as the others, and so long at least, has a marker of its own.
PAUSE_STEPS, PAUSE_NS = 8, 5_000_000
#: Most steps of a gap, and most backwards: the counts fit into a marker.
MOST_STEPS = 8192
MOST_BACKWARDS = 60_000
#: Batches fetched in a row with no backward: from here on they are evaluated. Gradients are rarely accumulated so long.
EVALUATES = 64
#: After so many updates without a fetch, or a call of ``tuimon.step()``, the loop's steps no longer begin there.
BARE_UPDATES = 64
#: Updates between two checks of what seldom changes.
CHECK_UPDATES = 64
#: Kinds of markers that do not belong to a loop, and so do not end its gap.
_OF_NO_LOOP = frozenset((BATCH, GC_PAUSE, MARK, OPTIMIZER_MADE))


class Pace:
    """The pace of the one loop that may have gaps: what has come since its last boundary, its spell or its gap.

    Hooks of ``thread`` set and read the fields that are not private; ``begin_step`` and ``end`` do the rest.
    """

    __slots__ = (
        "_began_ns",
        "_debt_ns",
        "_evaluates",
        "_fetched",
        "_latest_ns",
        "_mean_ns",
        "_mixed",
        "_overdue_ns",
        "_owed",
        "_passed",
        "_pause_ns",
        "_planned",
        "_rounds",
        "_written",
        "backwards",
        "by_fetch",
        "by_mark",
        "checks_due",
        "counting",
        "depth",
        "fetches",
        "held",
        "iterator",
        "left",
        "stepped",
        "steps",
        "thread",
        "unused",
        "updated",
        "updates",
        "writer",
    )

    def __init__(self) -> None:
        self.held = False  # every step must be timed
        self.checks_due = CHECK_UPDATES
        self.leave()

    def leave(self) -> None:
        """There is no loop any more: the next thread that updates has it."""
        self.thread = 0
        self.writer: Any = NoWriter()
        self.counting = False  # a gap is open
        self.updated = False  # an update has ended, and no step has begun since
        self.stepped = False  # ... nor a fetch or backward
        self.by_fetch = self.by_mark = 0  # updates until steps no longer begin with a fetch, ``tuimon.step()``; 0: now
        self.unused = 0  # fetches in a row without a backward
        self.depth = 0  # of counted backwards that are under way
        self.iterator = -1  # of the latest fetch
        self._fetched = self._mixed = False  # in this step; from another one than before
        self.left = FIRST  # boundaries of this spell, or gap
        self.fetches = self.backwards = self.updates = self.steps = 0  # in this gap
        self._evaluates = False  # its fetches are of an evaluation
        self._planned = FIRST  # boundaries of this spell
        self._passed = 0  # boundaries of the gap before it
        self._owed = 0  # boundaries by which that was cut short
        self._began_ns = monotonic_ns()  # when that gap began
        self._mean_ns = 0  # from one boundary to the next
        self._rounds = 0  # of a gap and a spell that it is the mean of, up to a limit
        self._debt_ns = 0
        self._written = 0  # markers until the spell began
        self._latest_ns = self._pause_ns = self._overdue_ns = 0  # of the gap: latest boundary, a long step, latest end

    def claim(self) -> bool:
        """True if the loop is this thread's, which has just updated; the first that does has it until it ends."""
        if not self.thread:
            self.leave()
            when_thread_ends(self._end_thread)  # first: where it replaces an earlier call, that is made
            self.thread = get_ident()
        return self.thread == get_ident()

    def begin_fetch(self, iterator: int) -> bool:
        """A fetch begins in the loop's thread; whether it is only counted."""
        evaluates = self.unused >= EVALUATES
        if self.counting and (iterator != self.iterator or evaluates != self._evaluates):
            self.end()
        if self.updated:
            self.by_fetch = BARE_UPDATES
            if not self.by_mark:
                self.begin_step(FETCH_BEGIN, iterator)
        elif evaluates:
            self.begin_step(FETCH_BEGIN, iterator)
        self.unused += 1
        self.stepped = False
        if self.counting:
            self.fetches += 1
            return True
        self._mixed = self._mixed or (self._fetched and iterator != self.iterator)
        self._fetched = True
        self.iterator = iterator
        return False

    def end_failed_fetch(self, iterator: int) -> None:
        """A counted fetch has brought no batch: it ends the gap, and has begun within it."""
        if self.counting:  # else what ended the gap meanwhile has counted the fetch
            self.fetches -= 1
            self.end()
            runtime.emit(FETCH_BEGIN, iterator, FETCHED_IN_GAP)

    def begin_backward(self) -> bool:
        """A backward begins in the loop's thread; whether it is only counted."""
        self.unused = 0
        if self.updated and not (self.by_fetch or self.by_mark):
            self.begin_step(BACKWARD_BEGIN)
        if self.counting and (self._evaluates or self._is_stuck()):
            self.end()
        self.stepped = False
        if self.counting:
            self.backwards += not self.depth  # a checkpoint's backward may run inside the backward
        return self.counting

    def end_optimizer_step(self) -> None:
        """One has ended in the loop's thread; several in a row are one update."""
        self.updated = True
        if not self.stepped:
            self.stepped = True
            self.updates += 1
            if self.by_fetch:
                self.by_fetch -= 1
            if self.by_mark:
                self.by_mark -= 1

    def mark_step(self) -> bool:
        """``tuimon.step()`` in the loop's thread; whether it is only counted."""
        self.by_mark = BARE_UPDATES
        if self.counting:
            self.begin_step(STEP)
            return True
        return False

    def begin_step(self, kind: int, iterator: int = -1) -> None:
        """A step begins with this boundary, of a spell or a gap."""
        self.updated = False
        self.left -= 1
        if self.counting:
            self.steps += kind != BACKWARD_BEGIN and not self._evaluates
            now_ns = monotonic_ns()
            if now_ns - self._latest_ns > self._pause_ns and not self._evaluates:
                self.writer.emit(GAP_PAUSE, now_ns - self._latest_ns)
            self._latest_ns = now_ns
            if self.left <= 0 or now_ns > self._overdue_ns:
                self.end(kind)
            return
        if self.left <= 0:
            self._consider(kind, iterator)
        self._fetched = self._mixed = False

    def end(self, kind: int = 0) -> None:
        """End the gap and mark what has passed; ``kind``: of the boundary at which it ends, 0 within a step."""
        if not self.counting:
            return
        self.counting = False
        writer, flag = self.writer, kind or (GAP_AFTER_UPDATE if self.stepped else GAP_IN_STEP)
        if runtime.emit == self.wake:
            runtime.emit = writer.emit
        writer.hold()
        writer.emit_of(self.thread, GAP_END, pack_gap(self.fetches, self.backwards, self.updates, self.steps), flag)
        self._fetched = self._mixed = False
        owed = 0 if kind else self.left
        self._passed -= self.left
        self._pay(self._passed)
        is_short = self._passed < SHORTEST  # as with a user range in every step
        self._owed = owed if owed >= SHORTEST and not is_short else 0
        self.left = self._planned = 1 if self._owed else FIRST if is_short else SPELL

    def wake(self, kind: int, value: int = 0, flag: int = 0) -> None:
        """``runtime.emit`` in a gap."""
        if kind not in _OF_NO_LOOP and self.thread == get_ident():
            self.end()
        self.writer.emit(kind, value, flag)

    def _consider(self, kind: int, iterator: int) -> None:
        """The spell is over: begin a gap where one is due, or go on with one that was cut short; else another spell."""
        writer, now_ns = runtime.writer(), monotonic_ns()
        passed, rounds, owed = self._passed + self._planned, self._rounds, self._owed
        if rounds:  # the first is mostly warm-up
            self._mean_ns += ((now_ns - self._began_ns) // passed - self._mean_ns) // rounds
        self._rounds = min(rounds + 1, MEAN_ROUNDS)
        spell, self.left, self._planned = self._planned, SPELL, SPELL
        self._passed, self._owed, self._began_ns = 0, 0, now_ns
        if self.writer is not writer:
            self.writer, self._written = writer or NoWriter(), 0 if writer is None else writer.written()
        if writer is None or runtime.emit not in (writer.emit, self.wake) or runtime.has_clock():
            return
        writer.flush()
        written, self._written = self._written, writer.written()
        if not rounds:
            return
        self._debt_ns += (self._written - written) * MARKER_NS + TURN_NS
        self._pay(spell)
        if runtime.facts_due or self.held:
            return
        steps = owed or _steps_to_pay(self._debt_ns, self._mean_ns, writer.drawn())
        if self._mixed or (kind == FETCH_BEGIN and iterator != self.iterator):
            self.left, self._owed = (1, owed) if owed else (SPELL, 0)
        elif steps >= SHORTEST:
            self._begin(writer, kind, steps, now_ns)

    def _begin(self, writer: Any, kind: int, steps: int, now_ns: int) -> None:
        self.fetches = self.backwards = self.updates = self.steps = 0
        self.stepped = False
        if kind != FETCH_BEGIN and not self._fetched:
            self.iterator = -1
        self._evaluates = kind == FETCH_BEGIN and self.unused >= EVALUATES
        writer.emit(GAP_BEGIN, kind, EVALUATED if self._evaluates else 0)
        writer.flush()  # it is all that is known until the gap ends
        self._written = writer.written()
        self.left = self._passed = steps
        self._latest_ns, self._overdue_ns = now_ns, now_ns + 2 * LONGEST_NS
        self._pause_ns = max(PAUSE_NS, PAUSE_STEPS * self._mean_ns)
        runtime.emit = self.wake
        self.counting = True

    def _is_stuck(self) -> bool:
        """True if backwards come for long, and no step: the loop has changed its ways."""
        if (self.backwards + 1) % EVALUATES:
            return False
        return self.backwards > MOST_BACKWARDS or monotonic_ns() > self._overdue_ns

    def _pay(self, steps: int) -> None:
        """So many steps have paid their share, each as much: in a slow minute no more steps are timed than in another.

        What is saved is worth no more than the longest gap.
        """
        most_ns = LONGEST_NS // TIME_PARTS
        self._debt_ns = min(max(self._debt_ns - steps * self._mean_ns // TIME_PARTS, -most_ns), 2 * most_ns)

    def _end_thread(self) -> None:
        """The thread ends: mark what it has counted before another thread has its number."""
        if self.thread != get_ident():
            return
        self.end()
        self.thread = 0
        writer = runtime.writer()  # of this process: a forked child has its parent's threads' variables
        if writer is not None:
            writer.flush()


def _steps_to_pay(debt_ns: int, each_ns: int, drawn: float) -> int:
    """How many steps pay for this much: half as many to one and a half times as many."""
    longest = min(MOST_STEPS, LONGEST_NS // max(1, each_ns))
    return int(min(debt_ns * TIME_PARTS / max(1, each_ns), longest / 1.5) * (0.5 + drawn))


pace = Pace()
runtime.end_gap = pace.end
runtime.forget_loop = pace.leave
