"""Decides for each fetched batch whether it is trained on, evaluated, or itself a step."""

from __future__ import annotations

from tuimon.agent.ring.layout import LOADER_SHIFT, Passed
from tuimon.bounds import Latest
from tuimon.records import BETWEEN
from tuimon.sources.loop.step import Step

#: A training may begin with an evaluation: up to this many batches, or ns of batches, are held back until they count as
#: steps.
_HELD, _HELD_NS = 32, 20_000_000_000
#: Most batches that the very first update may take, fetched in a row: no earlier step shows how many it takes.
_FIRST_GROUP = 16
#: No model has used a batch if the next fetch begins within this many ns of it, or within this part of the time of its
#: own fetch: both are longer if the thread waits for a core.
_UNUSED_NS, _UNUSED_PART = 5_000_000, 0.5

#: Time by label, in ns.
Times = dict[str, int]


class Batches:
    """Follows batches from fetch to backward, and takes what turns out to be evaluation out of the step under way.

    A second fetch of one iterator without a backward shows that all time since its first fetch was evaluation. While
    nothing has trained, the batches are held back: they are steps themselves, unless a backward follows soon.
    """

    def __init__(self) -> None:
        self.times: Times = {}  # since the last backward or update, without what was evaluated
        self.eval_ns = self.eval_count = 0  # since these two were last taken
        self._batch_ns = 0  # of the batch that was evaluated last
        # time and end of each batch that was evaluated, unless it was fetched ahead, for the next update
        self._ahead: list[tuple[Times, int]] = []
        self._group = 0  # most batches that the next update may use, all fetched before its first backward
        self._in_a_row = 0  # batches fetched from one iterator since the latest backward
        self._begins = False  # True if the first of these is its iterator's first, or follows another iterator's
        self._taken = 0  # most batches in a row before a backward of the current update
        self._iterator = 0  # of the latest fetch
        self._trained_on = 0  # the latest iterator with a batch that was trained on for certain
        self._is_first = True  # no backward or update until now
        self.forward: list[Step] | None = []  # batches of a thread that has not trained, since they were taken
        self.forward_total = 0  # such batches since the beginning
        self.are_known = self.are_reported = False  # True if batches are steps; True if some were reported as steps
        self.are_of_program = False  # tuimon.step() says which batches make a step of a thread that has not trained
        self.leave_loop()

    def leave_loop(self) -> None:
        """Forget all fetched batches: the program has left its loop, and uses them no more."""
        self.is_waiting = False  # a batch was fetched that no backward has used yet
        self.returned = 0  # backwards since the latest fetch that only returned gradients, and may have evaluated
        # by iterator, of those since the last training: a program that only evaluates makes a new one each time
        self._fetched = Latest[int, Times]()  # the times when its last fetch began
        self._started = Latest[int, Times]()  # those when its iter() began, of iterators without a fetch yet
        self._begun: int | None = None  # iterator whose first fetch is the latest of all
        self._latest: int | None = None  # iterator of the latest fetch, until one is exhausted
        self._evaluating: int | None = None  # iterator whose last iteration was evaluation
        self.forget_times()

    def forget_times(self) -> None:
        """Leave all time until now in training: it can no longer turn out to be evaluation."""
        self.times.clear()
        self._started.clear()
        self._fetched.update({iterator: {} for iterator in self._fetched})
        self._iter_at: Times | None = None  # the times when the open iter() began

    def forget_unused(self) -> None:
        """Note that a backward or an update has used all batches: none of them was evaluated."""
        self._is_first, self._iter_at = False, None
        for held in (self._ahead, self._fetched, self._started, self.times):
            held.clear()

    # -- fetches

    def begin_iter(self) -> None:
        """Note when ``iter(loader)`` begins to start workers."""
        self._iter_at = dict(self.times)

    def end_iter(self, iterator: int) -> None:
        """Count the start of its workers with the iterator's first fetch, in case that turns out to be evaluation."""
        at, self._iter_at = self._iter_at, None
        if at is not None and iterator:
            self._started[iterator] = at

    def begin_fetch(self, iterator: int, step: Step, time_ns: int) -> bool:
        """Note a fetch in this step; True if it shows that the batch before was evaluated.

        If that batch was the first of its iterator, only the next boundary proves it: a loop that fetches one batch
        ahead (Accelerate's, a prefetcher's) begins with two fetches, and then trains. A loop that accumulates gradients
        may fetch all batches of an update before its first backward, as transformers' Trainer does.
        """
        if self.turns_from_evaluation(iterator):
            self._end_evaluation(step, time_ns)
        is_of_group = self._is_of_group(iterator)
        self._begins = self._begins or iterator != self._iterator
        self._in_a_row = self._in_a_row + 1 if iterator == self._iterator else 1
        self._iterator = iterator
        may_be_ahead = self._begun == iterator
        self._begun, self._latest = (iterator if self._latest != iterator else None), iterator
        previous = self._fetched.pop(iterator, None)
        evaluated = None if previous is None else self._pop_times(previous)
        self._evaluating = None if previous is None or is_of_group else iterator
        self._fetched[iterator] = self._started.pop(iterator, dict(self.times))
        if evaluated is None:
            return False
        self._ahead.append((evaluated, time_ns))
        self._batch_ns = sum(evaluated.values())
        if is_of_group:
            return False
        self.is_waiting, self.returned = False, 0
        if not may_be_ahead:
            self.evaluate_unused(step)
        return True

    def turns_from_evaluation(self, iterator: int) -> bool:
        """True if the latest batch was evaluated, and this fetch is from another iterator."""
        return self._evaluating is not None and self._evaluating != iterator

    def _end_evaluation(self, step: Step, time_ns: int) -> None:
        """End an evaluation that stopped before the end of its iterator, at a fetch from another one.

        Its last batch is assumed to have taken as long as the one before. The time after it is side work, such as a
        metric over all batches, or a checkpoint.
        """
        at = None if self._evaluating is None else self._fetched.pop(self._evaluating, None)
        last, left_ns = {} if at is None else self._pop_times(at), self._batch_ns
        if self.forward is not None:
            if last:
                self._evaluate(last, time_ns, step)
            return
        self.eval_count += bool(last)
        for label, duration_ns in last.items():
            evaluated_ns = min(left_ns, duration_ns)
            left_ns -= evaluated_ns
            self._move({label: evaluated_ns}, step)
            if label == "forward":
                step.add_time(label, evaluated_ns - duration_ns)
                step.add_time("other", duration_ns - evaluated_ns)

    def _is_of_group(self, iterator: int) -> bool:
        """True if the next update may use all batches fetched since the latest backward, as they are few enough."""
        if not self.is_waiting or iterator != self._iterator or iterator == self._evaluating:
            return False
        if self._is_first:  # if no model seems to have seen them
            times = self._times_since(self._fetched.get(iterator, self.times))
            fetched_ns = times.get("data", 0)
            used_ns = sum(times.values()) - fetched_ns
            return self._in_a_row < _FIRST_GROUP and used_ns <= max(_UNUSED_NS, _UNUSED_PART * fetched_ns)
        most = self._group + self._begins  # a loader that fetches one batch ahead begins with one more
        is_of_trained = iterator >> LOADER_SHIFT == self._trained_on >> LOADER_SHIFT != 0
        return self._in_a_row < most and (iterator == self._trained_on or is_of_trained)

    def end_fetch(self, exhausted: bool, step: Step) -> None:
        """Note that a fetch has ended; if it found the end of an evaluation, its time counts as evaluation."""
        if not exhausted:
            self.is_waiting = True
            return
        if not self.is_waiting:  # for the update that uses it
            self.evaluate_unused(step)
        at = None if self._evaluating is None else self._fetched.get(self._evaluating)
        self._begun = self._latest = None
        self._fetched.clear()
        if at is not None:
            last = self._pop_times(at)
            if self.forward is None:
                self._move(last, step)

    def evaluate_before_fetch(self, iterator: int, step: Step) -> None:
        """Count unused batches as evaluated, unless this fetch adds one more to those for the next update."""
        if self._ahead and not self._is_of_group(iterator):
            if self._is_first:
                self._evaluating = self._iterator
            self.evaluate_unused(step)

    def evaluate_unused(self, step: Step) -> None:
        """Count the batches that no backward has used as evaluated: none of them was fetched ahead."""
        for times, end_ns in self._ahead:
            self._evaluate(times, end_ns, step)
        self._ahead.clear()

    def _evaluate(self, times: Times, end_ns: int, step: Step) -> None:
        """Count a batch that no backward has used: as evaluated, or as a step if nothing trains."""
        if self.forward is None:
            self.eval_count += 1
            self._move(times, step)
            return
        if self.are_of_program:
            return
        # a profiler of ours slowed the open step: from here on it counts as having slowed this batch instead
        batch = Step(end_ns=end_ns, slowed=step.slowed, traced_ns=step.traced_ns)
        step.slowed, step.traced_ns = False, 0
        for label, duration_ns in times.items():
            step.add_time(label, -duration_ns)
            batch.add_time(label, duration_ns)
        divide_forward(batch)
        self.forward_total += 1
        self.forward.append(batch)
        first = self.forward[0]
        self.are_known |= len(self.forward) >= _HELD or end_ns - (first.end_ns - first.total_ns) >= _HELD_NS

    def _move(self, times: Times, step: Step) -> None:
        """Move these times of the step from training to evaluation."""
        for label, duration_ns in times.items():
            step.add_time(label, -duration_ns)
            self.eval_ns += duration_ns

    def _times_since(self, at: Times) -> Times:
        return {label: ns - at.get(label, 0) for label, ns in self.times.items() if ns > at.get(label, 0)}

    def _pop_times(self, at: Times) -> Times:
        popped = self._times_since(at)
        self.times = {label: ns - popped.get(label, 0) for label, ns in self.times.items()}
        return popped

    # -- batches of a thread that has not trained

    def take_forward(self) -> list[Step]:
        """Return and clear the batches of a thread that has not trained, once they are known to be steps."""
        if not self.forward or not self.are_known:
            return []
        ended, self.forward, self.are_reported = self.forward, [], True
        return ended

    def begin_training(self) -> bool:
        """Count all batches before the first backward or update as evaluated; True if some were reported as steps."""
        if self.forward is None:
            return False
        self.eval_ns += sum(step.total_ns for step in self.forward)
        self.eval_count += len(self.forward)
        self.forward = None
        return self.are_reported

    # -- what uses the batches

    def add_returned_backward(self) -> bool:
        """Note a backward that only returns gradients; True if it may be part of an evaluation.

        One example is an evaluation of forces, which are derivatives of an energy: the batch has not trained yet,
        unless one before it from the same iterator has.
        """
        if not self.is_waiting or self._iterator == self._trained_on:
            return False
        self.returned += 1
        return True

    def use_fetched(self, *, trains: bool) -> int:
        """Count all fetched batches as used; returns how many backwards that returned gradients were part of that.

        ``trains``: True if the latest iterator's batches are trained on for certain.
        """
        returned, self.returned = self.returned, 0
        self._taken = max(self._taken, self._in_a_row)
        self._in_a_row, self._begins = 0, False
        if trains:
            self._trained_on = self._iterator
        self.forget_unused()
        return returned

    def end_update(self, most_backwards: int) -> None:
        """Note an optimizer's step: the next update may use as many batches, or as many as any had backwards."""
        self._trained_on = self._iterator
        self._group, self._taken = max(most_backwards, self._taken), 0
        self.forget_unused()

    def pass_gap(self, passed: Passed, most_backwards: int, *, is_waiting: bool) -> None:
        """Note batches that were only counted; ``is_waiting``: no backward has used the latest yet."""
        self.use_fetched(trains=False)
        self.is_waiting = is_waiting
        if passed.updates:
            self._group, self._taken = max(most_backwards, -(-passed.fetches // passed.updates)), 0

    @property
    def are_evaluated(self) -> bool:
        """True if the latest fetch has shown that the batch before was evaluated, and its own batch is not used yet."""
        is_known = self._evaluating is not None and self._evaluating == self._iterator
        return is_known and self.is_waiting and not self._ahead and not self.returned


def divide_forward(step: Step) -> None:
    """Turn the forward pass of a step without backward into ``between``, which stack samples divide.

    In such a step no marker shows where the forward pass ends.
    """
    forward_ns = step.phases.pop("forward", 0)
    if forward_ns:
        step.phases[BETWEEN] = step.phases.get(BETWEEN, 0) + forward_ns
