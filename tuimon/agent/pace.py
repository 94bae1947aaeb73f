"""Which steps of a loop are timed: a token bucket for what timing costs.

Markers may take a fixed share of the training's time. Where they would cost more, spells of timed steps take turns with
gaps: whole steps, as many as pay for the spell, whose boundaries are only counted. A GAP_BEGIN marker and a GAP_END
marker with the counts stand around each. How long a gap is, is random: what a loop does every so many steps must not
always fall into one.

A gap begins and ends at a boundary: the first fetch or backward after an update, ``tuimon.step()``; in an evaluation
each fetch. Whatever else comes ends it at once: a fetch of another iterator, the end of an epoch, a user range, any
other marker of the loop's thread. If that comes long after the gap's last step, the gap has ended with that step: an
upload after the loop is no part of it.

In a training, whose caches are cold for it, a hook takes 0.5 to 1.5 us. So in a gap the backward has none; fetches and
optimizer steps are counted in their hooks, which read the clock at every eighth. Two facts then follow from the spells:
how many optimizer steps make an update, and how many backwards. Torch's own hooks are not exchanged: that would have a
compiled optimizer compiled anew.

Only one thread has gaps, and only that thread touches them. Another one that updates has the gap end.
"""

from _thread import get_ident
from time import monotonic_ns
from typing import Any, List, NamedTuple, Optional

from . import runtime
from .ring.layout import (
    BACKWARD_BEGIN,
    BACKWARD_END,
    BATCH,
    COMPILER,
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
    POSITION,
    STEP,
    STEP_SIZE,
    TOKENS,
    pack_gap,
)
from .thread_end import when_thread_ends
from .torch_compat.rebinding import Rebound

#: Timing takes at most one part in this many of the time: 0.25 %.
TIME_PARTS = 400
#: The cost of a marker, in ns. Measured in steps of 5 ms, whose code is cold for it; in steps of 0.3 ms it is less.
MARKER_NS = 5000
#: The end of a spell and of the gap after it, in ns, beside their markers.
TURN_NS = 20_000
#: Boundaries of a spell: of three optimizers in turn, five whole steps. The first step of a spell finds cold code.
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
#: Most optimizer steps of a gap, or evaluated batches: the counts fit into a marker.
MOST_STEPS = 8192
#: The clock is read at every so many optimizer steps of a gap: a power of two.
LOOK_STEPS = 8
#: Batches fetched in a row with no backward: from here on they are evaluated. Gradients are rarely accumulated so long.
EVALUATES = 64
#: After so many updates without a fetch, or a call of ``tuimon.step()``, the loop's steps no longer begin there.
BARE_UPDATES = 64
#: Updates between two checks of what seldom changes.
CHECK_UPDATES = 64
#: Kinds of markers that do not belong to a loop, and so do not end its gap.
_OF_NO_LOOP = frozenset((BATCH, COMPILER, GC_PAUSE, MARK, OPTIMIZER_MADE, POSITION, STEP_SIZE, TOKENS))


#: The hooks of the backward, which are off in a gap.
backward_hooks: List[Rebound] = []


class Pattern(NamedTuple):
    """The boundaries that so many timed steps had."""

    steps: int = 0
    backwards: int = 0
    fetches: int = 0
    updates: int = 0
    run: int = 1  # optimizer steps of each update

    def optimizer_steps(self, steps: int) -> int:
        """How many optimizer steps so many steps have."""
        return steps * self.run * self.updates // max(1, self.steps)

    def steps_with(self, optimizer_steps: int) -> int:
        """How many steps have so many optimizer steps."""
        return optimizer_steps * self.steps // max(1, self.run * self.updates)

    def backwards_with(self, updates: int) -> int:
        """How many backwards belong to so many updates."""
        return updates * self.backwards // max(1, self.updates)

    def backwards_of(self, batches: int) -> int:
        """How many backwards so many batches have; 0 where that is not a whole number."""
        return batches * self.backwards // self.fetches if self.fetches and self.backwards % self.fetches == 0 else 0


class NoWriter:
    """Stands in for a ring's writer where there is none: takes markers, and writes none."""

    def emit(self, kind: int, value: int = 0, flag: int = 0) -> None:
        """Nowhere to write."""


class Spell:
    """Counts what timed steps have, from a boundary on."""

    __slots__ = ("backwards", "fetches", "run", "runs", "steps", "updates", "varies")

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Count from the next boundary on."""
        self.steps = -1
        self.backwards = self.fetches = self.updates = 0
        self.run = self.runs = 0  # optimizer steps of this update; of each one before
        self.varies = False

    def begin_step(self) -> None:
        """A boundary."""
        if self.steps < 0:
            self.restart()
        self.steps += 1

    def end_update(self) -> None:
        """No further optimizer belongs to it."""
        self.varies = self.varies or (self.runs not in (0, self.run))
        self.updates += 1
        self.runs, self.run = self.run, 0

    def pattern(self) -> Optional[Pattern]:
        """None where its updates were of different optimizers, or there were none."""
        if self.varies or not self.updates or not self.runs:
            return None
        return Pattern(self.steps, self.backwards, self.fetches, self.updates, self.runs)


class Pace:
    """The pace of the one loop that may have gaps: what has come since its last boundary, its spell or its gap.

    Hooks of ``thread`` set and read the fields that are not private; the methods do the rest.
    """

    __slots__ = (
        "_debt_ns",
        "_evaluates",
        "_extra",
        "_extra_at",
        "_extra_open",
        "_fetched",
        "_looked_at",
        "_mixed",
        "_owed",
        "_passed",
        "_pattern",
        "_planned",
        "_planned_left",
        "_rounds",
        "_steps_at",
        "_updated",
        "_written",
        "began_ns",
        "by_fetch",
        "by_mark",
        "checks_due",
        "counting",
        "held",
        "inside",
        "is_due",
        "is_open",
        "iterator",
        "latest_ns",
        "left",
        "mean_ns",
        "overdue_ns",
        "pause_ns",
        "spell",
        "stepped",
        "steps",
        "thread",
        "unmarked",
        "unused",
        "usual_iterator",
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
        self.is_open = False  # a gap
        self.counting = 0  # ``thread`` while one is, unless that is of an evaluation
        self._bind_backward(on=True)
        self._updated = False  # an update has ended, and no step has begun since
        self.stepped = False  # ... nor a fetch or backward
        self.by_fetch = self.by_mark = 0  # updates until steps no longer begin with a fetch, ``tuimon.step()``; 0: now
        self.unused = 0  # fetches in a row without a backward; in a gap, only of an evaluation
        self.unmarked = 0  # ``thread`` if the next update may follow a backward that has no marker
        self.inside = False  # a timed backward is under way
        self.iterator = -1  # of the latest fetch
        self._fetched = self._mixed = False  # in this step; from another one than before
        self.spell = Spell()
        self._pattern = Pattern()  # of the latest spell that had one
        self.left = FIRST  # boundaries of this spell; of a gap, optimizer steps
        self._planned_left = 0  # of the gap, when it began
        self.steps = 0  # boundaries that the gap has passed, if these are not backwards
        self._extra = 0  # its fetches that were no boundaries
        self._extra_at = self._extra_open = 0  # boundaries passed before the latest of these, and how many since
        self._steps_at = 0  # the kind of boundary at which its steps begin
        self.usual_iterator = -1  # of the fetches with which they do
        self.is_due = False  # it ends at the next boundary
        self._evaluates = False  # its fetches are of an evaluation
        self._planned = FIRST  # boundaries of this spell, or gap
        self._passed = 0  # boundaries of the gap before it
        self._owed = 0  # boundaries by which that was cut short
        self.began_ns = monotonic_ns()  # when that gap began
        self.mean_ns = 0  # from one boundary to the next
        self._rounds = 0  # of a gap and a spell that it is the mean of, up to a limit
        self._debt_ns = 0
        self._written = 0  # markers until the spell began
        self.pause_ns = self.overdue_ns = 0  # of the gap: a long step; latest end, 0: now
        self.latest_ns = self._looked_at = 0  # when the clock was read, and what was left then

    def claim(self) -> bool:
        """True if the loop is this thread's, which has just updated; the first that does has it until it ends."""
        if not self.thread:
            self.leave()
            when_thread_ends(self._end_thread)  # first: where it replaces an earlier call, that is made
            self.thread = get_ident()
        return self.thread == get_ident()

    def begin_fetch(self, iterator: int) -> bool:
        """A fetch begins in the loop's thread; True if it is only counted."""
        evaluates = self.unused >= EVALUATES
        if self.counting:
            evaluates = self._extra_at == self.steps and self._extra_open >= EVALUATES
        if self.is_open:
            is_bare = self._steps_at == BACKWARD_BEGIN and (self.stepped or self._updated)
            if is_bare or iterator != self.iterator or evaluates != self._evaluates or not self.overdue_ns:
                self.end(unused=1 + self._extra_open if evaluates and self.counting else 0)
                self.unused = EVALUATES if evaluates else 0
        self._settle_update()
        is_boundary = self._updated and not self.by_mark
        if self._updated:
            self.by_fetch = BARE_UPDATES
        elif evaluates:
            is_boundary = True
            self.spell.restart()
        if is_boundary:
            self.begin_step(FETCH_BEGIN, iterator)
        self.unused += 1
        self.unmarked = 0
        if self.is_open:
            if not is_boundary:
                self._extra_open = self._extra_open + 1 if self._extra_at == self.steps else 1
                self._extra_at = self.steps
                self._extra += 1
            return True
        self.spell.fetches += 1
        self._mixed = self._mixed or (self._fetched and iterator != self.iterator)
        self._fetched = True
        self.iterator = iterator
        return False

    def end_failed_fetch(self, iterator: int) -> None:
        """A counted fetch has brought no batch: it ends the gap, and has begun within it."""
        if self.is_open:  # else what ended the gap meanwhile has counted the fetch
            self._extra -= 1
            self.end()
            self.unmarked = 0
            runtime.emit(FETCH_BEGIN, iterator, FETCHED_IN_GAP)

    def begin_backward(self) -> bool:
        """A backward begins in the loop's thread; True if it is of a gap."""
        if self.is_open and (self._evaluates or not self.overdue_ns):
            self.end()
        if self.counting and not self.is_due:  # its hook is not to be called, but somebody else has wrapped that
            return True
        self.unused = self.unmarked = 0
        self._settle_update()
        if self._updated and not (self.by_fetch or self.by_mark):
            self.begin_step(BACKWARD_BEGIN)
        self.spell.backwards += not self.inside  # a checkpoint's backward may run inside the backward
        return self.counting != 0

    def end_optimizer_step(self) -> None:
        """One that is timed has ended in the loop's thread; several in a row are one update."""
        self.spell.run += 1
        if not self.stepped:
            self.stepped = True
            if self.by_fetch:
                self.by_fetch -= 1
            if self.by_mark:
                self.by_mark -= 1

    def count_optimizer_step(self) -> None:
        """One of a gap has ended. The hook does the same by itself."""
        self.stepped = True
        self.left -= 1
        if self.left % LOOK_STEPS == 0:
            self.look()

    def mark_step(self) -> bool:
        """``tuimon.step()`` in the loop's thread; True if it is only counted."""
        self.by_mark = BARE_UPDATES
        if self.is_open and (self._steps_at != STEP or not self.overdue_ns):
            self.end()
        if not self.is_open:
            return False
        self.begin_step(STEP)
        return True

    def begin_step(self, kind: int, iterator: int = -1) -> None:
        """A step begins with this boundary, of a spell or a gap."""
        self._updated = False
        if self.is_open:
            self.steps += 1
            if self._evaluates and self.steps % LOOK_STEPS == 0:
                self.latest_ns = monotonic_ns()
                self.is_due = self.latest_ns > self.overdue_ns
            if self.is_due or (self._evaluates and self.steps >= self._planned):
                self.end(kind)
            return
        self.left -= 1
        if self.stepped and kind == STEP:
            self.spell.end_update()
            self.stepped = False
        self.spell.begin_step()
        if self.left <= 0:
            self._consider(kind, iterator)
        self._fetched = self._mixed = False

    def look(self) -> None:
        """Read the clock in a gap, after an optimizer step."""
        now_ns = monotonic_ns()
        long_ns = self._long_ns(now_ns, max(1, self.since_look()))
        if long_ns:
            self.writer.emit(GAP_PAUSE, long_ns)
        self.latest_ns, self._looked_at = now_ns, self.left
        if self.is_due and now_ns > self.overdue_ns:  # the loop's steps no longer begin as they did
            self.by_fetch = self.by_mark = 0
            self.end()
        elif self.left <= 0 or now_ns > self.overdue_ns:
            self.is_due, self.usual_iterator = True, -1
            self._bind_backward(on=True)

    def since_look(self) -> int:
        """How many whole steps have passed since the clock was read."""
        return self.steps % LOOK_STEPS if self._evaluates else self._pattern.steps_with(self._looked_at - self.left)

    def _long_ns(self, now_ns: int, steps: int) -> int:
        """How long one of so many latest steps took, if the others took as long as usual; 0 if it was no long one."""
        long_ns = now_ns - self.latest_ns - (steps - 1) * self.mean_ns
        return long_ns if long_ns > self.pause_ns else 0

    def end(self, kind: int = 0, *, unused: int = 0) -> None:
        """End the gap and mark what has passed; ``kind``: of the boundary at which it ends, 0 within a step.

        ``unused``: fetches whose batch has not been trained on.
        """
        if not self.is_open:
            return
        self.is_open = False
        self._bind_backward(on=True)
        now_ns = monotonic_ns()
        long_ns = self._long_ns(now_ns, 1 + self.since_look())
        if kind and long_ns:
            self.writer.emit(GAP_PAUSE, long_ns)
        counting, self.counting, self.usual_iterator = self.counting, 0, -1
        writer, flag = self.writer, kind or (GAP_AFTER_UPDATE if self.stepped else GAP_IN_STEP)
        if runtime.emit == self.wake:
            runtime.emit = writer.emit
        writer.hold()
        made = self._planned_left - self.left if counting else 0
        updates = -(-made // self._pattern.run)
        fetches = self._extra
        if self._steps_at == BACKWARD_BEGIN:
            steps, self._passed = 0, self._pattern.steps_with(made)
        else:
            steps, self._passed = self.steps if counting else 0, self.steps
        if self._steps_at == FETCH_BEGIN:
            fetches += self.steps + (kind == 0)  # the first has begun the gap
        backwards = self._pattern.backwards_with(updates)
        if self._steps_at != BACKWARD_BEGIN:  # the loop may have begun to accumulate more batches
            backwards = self._pattern.backwards_of(fetches - unused) or backwards
        backwards = backwards if counting else 0
        ended_ns = now_ns if kind else now_ns - long_ns
        writer.emit_of(ended_ns, self.thread, GAP_END, pack_gap(fetches, backwards, updates, steps), flag)
        self.unmarked = self.thread if counting and not kind and made % self._pattern.run == 0 else 0
        self._fetched = self._mixed = False
        self.spell.restart()
        owed = 0 if kind else self._planned - self._passed
        self._pay(self._passed)
        is_short = self._passed < SHORTEST  # as with a user range in every step
        self._owed = owed if owed >= SHORTEST and not is_short else 0
        self.left = self._planned = 1 if self._owed else long_spell(writer.drawn()) if is_short else SPELL

    def wake(self, kind: int, value: int = 0, flag: int = 0) -> None:
        """``runtime.emit`` in a gap."""
        if kind not in _OF_NO_LOOP:
            if self.thread == get_ident():
                self.end(unused=int(not self.stepped))
            else:  # that one's backward must have its hook, too
                self.overdue_ns, self.usual_iterator = 0, -1
                self._bind_backward(on=True)
        self.writer.emit(kind, value, flag)

    def mark_backward(self) -> None:
        """Mark the backward that may have passed in the step in which a gap was cut short: its update begins."""
        self.unmarked = 0
        runtime.emit(BACKWARD_BEGIN)
        runtime.emit(BACKWARD_END)

    def mend(self) -> None:
        """Bind the backward's hook again, if somebody has put back what was bound in a gap."""
        if not self.counting:
            self._bind_backward(on=True)

    def _settle_update(self) -> None:
        """A fetch or backward begins: no further optimizer belongs to the update before it."""
        if self.stepped:
            self._updated, self.stepped = True, False
            self.unused = 0
            if not self.is_open:
                self.spell.end_update()

    def _consider(self, kind: int, iterator: int) -> None:
        """The spell is over: begin a gap where one is due, or go on with one that was cut short; else another spell."""
        writer, now_ns = runtime.writer(), monotonic_ns()
        passed, rounds, owed = self._passed + self._planned, self._rounds, self._owed
        if rounds:  # the first is mostly warm-up
            self.mean_ns += ((now_ns - self.began_ns) // passed - self.mean_ns) // rounds
        self._rounds = min(rounds + 1, MEAN_ROUNDS)
        spell, self.left, self._planned = self._planned, SPELL, SPELL
        self._passed, self._owed, self.began_ns = 0, 0, now_ns
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
        steps = owed or steps_to_pay(self._debt_ns, self.mean_ns, writer.drawn())
        evaluates = kind == FETCH_BEGIN and self.unused >= EVALUATES
        is_known = evaluates or self._learn_pattern()
        if self._mixed or (kind == FETCH_BEGIN and iterator != self.iterator):
            self.left, self._owed = (1, owed) if owed else (SPELL, 0)
            self._planned = self.left
        elif is_known and steps >= SHORTEST:
            self.begin_gap(writer, kind, iterator, steps, now_ns, evaluates=evaluates)

    def _learn_pattern(self) -> bool:
        """Take over what the spell shows, if it was long enough; True if it does not contradict itself."""
        spell = self.spell
        if spell.steps < SHORTEST:
            return spell.varies is False and self._pattern.updates > 0
        found = spell.pattern()
        spell.restart()
        spell.begin_step()
        if found is not None:
            self._pattern = found
        return found is not None

    def begin_gap(self, writer: Any, kind: int, iterator: int, steps: int, now_ns: int, *, evaluates: bool) -> None:
        """Begin a gap of so many steps, whose markers are left out."""
        self.steps = self._extra = self._extra_at = self._extra_open = 0
        if kind != FETCH_BEGIN and not self._fetched:
            self.iterator = -1
        self._evaluates, self._steps_at, self.is_due = evaluates, kind, False
        writer.emit(GAP_BEGIN, kind, EVALUATED if evaluates else 0)
        writer.flush()  # it is all that is known until the gap ends
        self._written = writer.written()
        self._planned = steps
        self.left = self._planned_left = self._looked_at = max(1, self._pattern.optimizer_steps(steps))
        self.latest_ns, self.overdue_ns = now_ns, now_ns + 2 * LONGEST_NS
        self.pause_ns = max(PAUSE_NS, PAUSE_STEPS * self.mean_ns)
        runtime.emit = self.wake
        self.is_open = True
        if not evaluates:
            self._bind_backward(on=False)
            self.counting = self.thread
            self.usual_iterator = iterator if kind == FETCH_BEGIN else -1

    @staticmethod
    def _bind_backward(*, on: bool) -> None:
        for hook in backward_hooks:
            hook.on() if on else hook.off()

    def _pay(self, steps: int) -> None:
        """So many steps have paid their share, each as much: in a slow minute no more steps are timed than in another.

        What is saved is worth no more than the longest gap.
        """
        most_ns = LONGEST_NS // TIME_PARTS
        self._debt_ns = min(max(self._debt_ns - steps * self.mean_ns // TIME_PARTS, -most_ns), 2 * most_ns)

    def _end_thread(self) -> None:
        """The thread ends: mark what it has counted before another thread has its number."""
        if self.thread != get_ident():
            return
        self.end()
        self.thread = 0
        writer = runtime.writer()  # of this process: a forked child has its parent's threads' variables
        if writer is not None:
            writer.flush()


def long_spell(drawn: float) -> int:
    """Boundaries until the next try: were they as many as an epoch has, each gap would begin right before its end."""
    return int(FIRST * (0.5 + drawn))


def steps_to_pay(debt_ns: int, each_ns: int, drawn: float) -> int:
    """How many steps pay for this much: half as many to one and a half times as many."""
    longest = min(MOST_STEPS, LONGEST_NS // max(1, each_ns))
    return int(min(debt_ns * TIME_PARTS / max(1, each_ns), longest / 1.5) * (0.5 + drawn))


pace = Pace()
runtime.end_gap = pace.end
runtime.forget_loop = pace.leave
