"""Finds where the steps of one thread's loop begin, by its boundaries, and limits how many of them are timed.

The markers, the GPU clock and a trace count steps; the first two have a token bucket each.

A step begins with ``tuimon.step()``; else with the first fetch after an update; in a loop that fetches nothing with the
first backward after an update. An update is a run of optimizer steps. Without an optimizer each backward is one.

The monitor cuts the loop exactly (``tuimon.sources.loop``), from the markers. This is the part that cannot wait for the
monitor: it labels no time, delays nothing, and forgets each step with the next.
"""

from .ring.layout import BACKWARD_BEGIN, BACKWARD_END, BARE_UPDATES, FETCH_BEGIN, OPTIMIZER_END, STEP

#: After this many backwards without an update, the optimizer that was seen is not the loop's, or is compiled by now.
_MAX_BACKWARDS = 1000
#: The latest boundary of a loop.
FETCH, BACKWARD, UPDATE = -1, 0, 1


class StepCounter:
    """Finds where the steps of a thread begin."""

    def __init__(self) -> None:
        self.updates = 0
        self.updated = False  # since the step began
        self.last = BACKWARD
        self.has_optimizer = False
        self.without_update = 0  # backwards since an update
        # for this many further updates, fetches (calls of ``tuimon.step()``) begin the steps
        self.by_fetch = self.by_mark = 0

    def begins_step(self, kind: int) -> bool:
        if kind == FETCH_BEGIN:
            return self.begin_fetch()
        if kind == BACKWARD_BEGIN:
            return self.begin_backward()
        if kind == STEP:
            self.mark_step()
        elif kind == BACKWARD_END:
            self.end_backward()
        elif kind == OPTIMIZER_END:
            self.end_optimizer_step()
        return kind == STEP

    def begin_fetch(self) -> bool:
        self.last = FETCH
        if not self.updated:
            return False
        self.by_fetch = BARE_UPDATES
        self.updated = bool(self.by_mark)
        return not self.updated

    def begin_backward(self) -> bool:
        self.last = BACKWARD
        if self.by_fetch or self.by_mark or not self.updated:
            return False
        self.updated = False
        return True

    def end_backward(self) -> None:
        self.without_update += 1
        if self.without_update >= _MAX_BACKWARDS or not self.has_optimizer:
            self.updated = True

    def end_optimizer_step(self) -> None:
        """An optimizer step has ended, the first of an update or one more."""
        if self.last == UPDATE:
            return
        self.updates += 1
        self.last, self.updated, self.has_optimizer = UPDATE, True, True
        self.without_update = 0
        self.by_fetch -= self.by_fetch > 0
        self.by_mark -= self.by_mark > 0

    def mark_step(self) -> None:
        """``tuimon.step()``: a step begins."""
        self.last, self.updated = BACKWARD, False
        self.by_mark = BARE_UPDATES


class TokenBucket:
    """Steps pay for timing: each pays one part in ``parts`` of the mean step.

    A step of 4 ms pays 4 us if that is a thousandth: ten such steps pay for a cost of 40 us. Steps pay by their mean: a
    slow minute has no larger share of timed steps than any other, and the debt of a short step does not keep a long one
    from being timed.
    """

    def __init__(self, parts: int, rounds: int, owed_ns: int) -> None:
        """``rounds``: calls of ``pass_steps`` that the mean covers; ``owed_ns``: most debt. Nothing is saved up."""
        self.mean_ns = 0  # how long a step takes
        self.steps = self.now_ns = 0  # by the latest call of ``pass_steps``
        self._parts, self._most_rounds = parts, rounds
        self._owed_ns = owed_ns
        self._tokens_ns = 0  # below 0: what is owed
        self._rounds = -1  # the first round is mostly warm-up

    @property
    def is_paid(self) -> bool:
        """True if no more is owed than a step pays."""
        return self._tokens_ns >= -(self.mean_ns // self._parts)

    def pass_steps(self, steps: int, now_ns: int) -> None:
        """Advance to the step of this number at ``now_ns``; the steps since the last call were counted, not timed."""
        count, took_ns = steps - self.steps, now_ns - self.now_ns
        self.steps, self.now_ns = steps, now_ns
        self._rounds = min(self._rounds + 1, self._most_rounds)
        if self._rounds:
            self.mean_ns += (took_ns // max(1, count) - self.mean_ns) // self._rounds
        tokens_ns = self._tokens_ns + count * self.mean_ns // self._parts
        self._tokens_ns = min(0, max(tokens_ns, -self._owed_ns))

    def spend(self, cost_ns: int) -> None:
        self._tokens_ns -= cost_ns

    def steps_owed(self) -> int:
        """The number of steps until all is paid; 0 before their mean is known."""
        return -self._tokens_ns * self._parts // self.mean_ns if self.mean_ns > 0 else 0
