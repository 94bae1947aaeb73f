"""Which of the batches that a thread fetches it trains on, and which it evaluates; those that are steps themselves."""

from __future__ import annotations

from typing import NamedTuple

from tuimon.agent.ring.layout import LOADER_SHIFT, Passed
from tuimon.records import BETWEEN
from tuimon.sources.loop.step import Step

#: Stretches remembered since the last backward or update; of a longer evaluation the rest is not taken back.
_STRETCHES = 4096
#: Iterators remembered since then; a program that only evaluates makes one each time.
_ITERATORS = 64

#: Stretches of time: label and ns.
Times = list[tuple[str, int]]


class EvaluationFinder:
    """Remembers the time since the last backward or update, and finds out how much of it was evaluation.

    A second fetch of one iterator without a backward shows that all time since its first fetch was evaluation.
    """

    def __init__(self) -> None:
        self._times: Times = []
        self._fetched: dict[int, int] = {}  # iterator -> index into the times where its last fetch began
        self._iter_at: int | None = None  # index into the times where the open iter() began
        self._started: dict[int, int] = {}  # that of iterators without a fetch yet
        self._begun: int | None = None  # iterator whose first fetch is the latest of all
        self._latest: int | None = None  # iterator of the latest fetch, until one is exhausted
        self.evaluating: int | None = None  # iterator whose last iteration was evaluation

    def add_time(self, label: str, duration_ns: int) -> None:
        """The next stretch."""
        if len(self._times) < _STRETCHES:
            self._times.append((label, duration_ns))

    def begin_iter(self) -> None:
        """Workers are being started."""
        self._iter_at = len(self._times)

    def end_iter(self, iterator: int) -> None:
        """Starting its workers belongs to the iterator's first fetch, should that turn out to be evaluation."""
        at, self._iter_at = self._iter_at, None
        if at is not None and iterator:
            _keep(self._started, iterator, at)

    def turns_from_evaluation(self, iterator: int) -> bool:
        """True if the last iteration was evaluation, and this fetch is of another iterator."""
        return self.evaluating is not None and self.evaluating != iterator

    def is_second_fetch(self, iterator: int) -> bool:
        """True if the latest fetch of all was this iterator's first."""
        return self._begun == iterator

    def latest_batch(self, iterator: int) -> tuple[int, int]:
        """How long (ns) the iterator's latest batch was fetched, and how long it has been in use since."""
        times = self._times[self._fetched.get(iterator, len(self._times)) :]
        fetched_ns = sum(duration_ns for label, duration_ns in times if label == "data")
        return fetched_ns, sum(duration_ns for _, duration_ns in times) - fetched_ns

    def begin_fetch(self, iterator: int, *, may_train: bool = False) -> Times | None:
        """The time that turns out to be evaluation; None where this fetch proves nothing.

        ``may_train``: the batch before may have been fetched to train later.
        """
        self._begun, self._latest = (iterator if self._latest != iterator else None), iterator
        previous = self._fetched.pop(iterator, None)
        evaluated = None if previous is None else self._pop_times(previous)
        self.evaluating = None if previous is None or may_train else iterator
        _keep(self._fetched, iterator, self._started.pop(iterator, len(self._times)))
        return evaluated

    def turn_to(self, iterator: int) -> None:
        """The batches of this iterator that were taken to train later were evaluated."""
        self.evaluating = iterator

    def take_last(self) -> Times:
        """The time since the last fetch of the iterator that evaluates; nothing where that is exhausted."""
        at = None if self.evaluating is None else self._fetched.pop(self.evaluating, None)
        return [] if at is None else self._pop_times(at)

    def exhaust(self) -> Times:
        """An iterator is exhausted: if it evaluated, its last wait was evaluation too."""
        at = None if self.evaluating is None else self._fetched.get(self.evaluating)
        self._begun = self._latest = None
        self._fetched.clear()
        return [] if at is None else self._pop_times(at)

    def forget_times(self) -> None:
        """Time until now can no longer turn out to be evaluation."""
        self._times.clear()
        self._started.clear()
        self._iter_at = None

    def forget_all(self) -> None:
        """A backward or an update: what was fetched until now trained."""
        self.forget_times()
        self._fetched.clear()

    def _pop_times(self, at: int) -> Times:
        popped = self._times[at:]
        del self._times[at:]
        return popped


def _keep(held: dict[int, int], iterator: int, at: int) -> None:
    """Hold one more; without the oldest where there is no room."""
    if iterator not in held and len(held) >= _ITERATORS:
        del held[next(iter(held))]
    held[iterator] = at


#: A training may begin with an evaluation: so many batches, or so many ns of them, are held back until they are steps.
_HELD, _HELD_NS = 32, 20_000_000_000


class ForwardSteps:
    """Receives the batches that no backward has used, until the first backward shows that they were an evaluation.

    From the end of a fetch on nothing marks where the forward pass ends: that time is ``between``.
    """

    def __init__(self) -> None:
        self.total = 0  # batches until now
        self.has_told = False  # that they are steps
        self._steps: list[Step] = []  # since they were taken
        self._is_known = False

    def add_batch(self, times: Times, end_ns: int, taken_from: Step) -> None:
        """A batch, from its fetch to the one that followed; what a profiler of ours did to it, it takes along."""
        step = Step(end_ns=end_ns, slowed=taken_from.slowed, traced_ns=taken_from.traced_ns)
        taken_from.slowed, taken_from.traced_ns = False, 0
        for label, duration_ns in times:
            step.add_time(label, duration_ns)
        divide_forward(step)
        self.total += 1
        self._steps.append(step)
        first = self._steps[0]
        self._is_known |= len(self._steps) >= _HELD or end_ns - (first.end_ns - first.total_ns) >= _HELD_NS

    def finish(self) -> None:
        """The thread has ended, and has never trained."""
        self._is_known = True

    def take_ended(self) -> list[Step]:
        """Hand over the steps that have ended since the last call, once they are known to be some."""
        if not self._is_known:
            return []
        ended, self._steps = self._steps, []
        self.has_told |= bool(ended)
        return ended

    def take_evaluation(self) -> tuple[int, int]:
        """The time (ns) and the batches not handed over yet: they were an evaluation."""
        steps, self._steps = self._steps, []
        return sum(step.total_ns for step in steps), len(steps)

    def take_held(self) -> list[Step]:
        """The batches that were held back: they are parts of a step."""
        steps, self._steps = self._steps, []
        return steps


def divide_forward(step: Step) -> None:
    """Leave it to stack samples how the time of a step without backward divides, but for its fetches."""
    forward_ns = step.phases.pop("forward", 0)
    if forward_ns:
        step.phases[BETWEEN] = step.phases.get(BETWEEN, 0) + forward_ns


#: Most batches that the first update of all may take, fetched in a row: no step before it tells how many it takes.
_FIRST_GROUP = 16
#: ... and how long after a batch the next fetch begins if no model has seen it: so many ns, or this part of its fetch,
#: as both last longer where a thread waits for a core.
_UNUSED_NS, _UNUSED_PART = 5_000_000, 0.5


class _Batch(NamedTuple):
    times: Times  # from its fetch to the one that followed
    end_ns: int


class Batches:
    """Follows batches from fetch to backward, and takes what turns out to be evaluation out of the step under way."""

    def __init__(self) -> None:
        self.is_waiting = False  # a batch was fetched that no backward has used yet
        self._eval_ns = 0
        self._eval_count = 0
        self._batch_ns = 0  # of the batch that was evaluated last
        self.evaluation = EvaluationFinder()
        self._ahead: list[_Batch] = []  # evaluated, unless they were fetched ahead of the one that trains next
        self._group = 0  # most batches that the next update may take, all fetched before its first backward
        self._in_a_row = 0  # batches of one iterator since the latest backward
        self._begins = False  # the first of those is the iterator's first, or the first after another one's
        self._taken = 0  # most of them before a backward of the update under way
        self._returned = 0  # backwards since the latest fetch that only returned gradients, and may have evaluated
        self._iterator = 0  # of the latest fetch
        self._trained_on = 0  # the latest iterator of a batch that has trained for sure
        self._is_first = True  # no backward or update until now
        self.forward: ForwardSteps | None = ForwardSteps()  # until the thread trains
        self.are_of_program = False  # tuimon.step() says which batches make a step of a thread that has not trained

    def take_evaluation(self) -> tuple[int, int]:
        """The time (ns) and the batches evaluated since the last call."""
        taken = self._eval_ns, self._eval_count
        self._eval_ns, self._eval_count = 0, 0
        return taken

    def begin_training(self) -> bool:
        """The first backward or update: batches before it were evaluated; whether some were told to be steps."""
        if self.forward is None:
            return False
        eval_ns, eval_count = self.forward.take_evaluation()
        has_told, self.forward = self.forward.has_told, None
        self._eval_ns += eval_ns
        self._eval_count += eval_count
        return has_told

    def leave_loop(self) -> None:
        """The program has left its loop: what was fetched in it is used no more."""
        self.is_waiting = False
        self._returned = 0
        self.evaluation = EvaluationFinder()

    # -- fetches

    def begin_fetch(self, iterator: int, step: Step, time_ns: int) -> bool:
        """A fetch in this step; returns whether it shows that the batch before was evaluated.

        If that was the first of its iterator, only the next boundary proves it: a loop that fetches one batch ahead
        (Accelerate's, a prefetcher's) begins with two fetches, and then trains. A loop may fetch all batches of an
        update before the first of its backwards: transformers' Trainer does, where it accumulates gradients.
        """
        if self.evaluation.turns_from_evaluation(iterator):
            self._end_evaluation(step, time_ns)
        is_of_group = self._is_of_group(iterator)
        self._begins = self._begins or iterator != self._iterator
        self._in_a_row = self._in_a_row + 1 if iterator == self._iterator else 1
        self._iterator = iterator
        may_be_ahead = self.evaluation.is_second_fetch(iterator)
        evaluated = self.evaluation.begin_fetch(iterator, may_train=is_of_group)
        if evaluated is None:
            return False
        self._ahead.append(_Batch(evaluated, time_ns))
        self._batch_ns = sum(duration_ns for _, duration_ns in evaluated)
        if is_of_group:
            return False
        self.is_waiting = False
        self._returned = 0
        if not may_be_ahead:
            self.settle(step)
        return True

    def _end_evaluation(self, step: Step, time_ns: int) -> None:
        """A fetch from another iterator has ended the evaluation, which did not go on to the end of its own.

        Its last batch is taken to have lasted as long as the one before. Later work is side work, such as a metric over
        all batches, or a checkpoint.
        """
        last, left_ns = self.evaluation.take_last(), self._batch_ns
        if self.forward is not None:
            if last:
                self._evaluate(_Batch(last, time_ns), step)
            return
        self._eval_count += bool(last)
        for label, duration_ns in last:
            evaluated_ns = min(left_ns, duration_ns)
            left_ns -= evaluated_ns
            self._move([(label, evaluated_ns)], step)
            if label == "forward":
                step.add_time(label, evaluated_ns - duration_ns)
                step.add_time("other", duration_ns - evaluated_ns)

    def _is_of_group(self, iterator: int) -> bool:
        """True if the batches fetched since the latest backward are so few that the next update may take them all."""
        if not self.is_waiting or iterator != self._iterator or iterator == self.evaluation.evaluating:
            return False
        if self._is_first:
            return self._is_of_first_group(iterator)
        most = self._group + self._begins  # a loader that fetches one batch ahead begins with one more
        return self._in_a_row < most and self._has_trained(iterator)

    def _is_of_first_group(self, iterator: int) -> bool:
        """True if the first update of all may take them, which no model seems to have seen yet."""
        fetched_ns, used_ns = self.evaluation.latest_batch(iterator)
        return self._in_a_row < _FIRST_GROUP and used_ns <= max(_UNUSED_NS, _UNUSED_PART * fetched_ns)

    def _has_trained(self, iterator: int) -> bool:
        """True if it is the latest iterator that has trained, or of the same loader."""
        return iterator == self._trained_on or iterator >> LOADER_SHIFT == self._trained_on >> LOADER_SHIFT != 0

    def end_fetch(self, exhausted: bool, step: Step) -> None:
        """A batch may train; an exhausted iterator that evaluated takes its last wait with it."""
        if exhausted:
            if not self.is_waiting:  # for the update that takes it
                self.settle(step)
            last = self.evaluation.exhaust()
            if self.forward is None:
                self._move(last, step)
        else:
            self.is_waiting = True

    def settle_before(self, iterator: int, step: Step) -> None:
        """A fetch follows, which may be one more of the batches that the next update takes."""
        if self._is_of_group(iterator):
            return
        if self._ahead and self._is_first:
            self.evaluation.turn_to(self._iterator)
        self.settle(step)

    def settle(self, step: Step) -> None:
        """No batch was fetched ahead: those that no backward has used were evaluated."""
        for batch in self._ahead:
            self._evaluate(batch, step)
        self._ahead = []

    def _evaluate(self, batch: _Batch, step: Step) -> None:
        """No backward has used a batch: it was evaluated, or is a step where nothing trains."""
        if self.forward is None:
            self._eval_count += 1
            self._move(batch.times, step)
        elif not self.are_of_program:
            for label, duration_ns in batch.times:
                step.add_time(label, -duration_ns)
            self.forward.add_batch(batch.times, batch.end_ns, step)

    def _move(self, times: Times, step: Step) -> None:
        """This much of the step was evaluation, not training."""
        for label, duration_ns in times:
            step.add_time(label, -duration_ns)
            self._eval_ns += duration_ns

    # -- what uses them

    def return_gradients(self) -> bool:
        """A backward that only returns gradients; whether it may be part of an evaluation.

        One example is an evaluation of forces, which are derivatives of an energy: the batch has not trained yet,
        unless one before it from the same iterator has.
        """
        if not self.is_waiting or self._iterator == self._trained_on:
            return False
        self._returned += 1
        return True

    @property
    def may_evaluate(self) -> bool:
        """True if all backwards since the latest fetch have only returned gradients, and may have evaluated."""
        return self._returned > 0

    def use(self) -> int:
        """Count what was fetched until now as trained on; returns the backwards that had waited to be part of that."""
        returned, self._returned = self._returned, 0
        self._taken = max(self._taken, self._in_a_row)
        self._in_a_row, self._begins = 0, False
        self.end_update()
        return returned

    def note_update(self, most_backwards: int) -> None:
        """An update has ended: the next may take as many batches at once as this one, or as any had backwards."""
        self._group, self._taken = max(most_backwards, self._taken), 0

    def note_training(self) -> None:
        """The batches of the latest iterator train for sure."""
        self._trained_on = self._iterator

    def end_update(self) -> None:
        """Nothing until now was evaluated."""
        self._is_first = False
        self._ahead = []
        self.evaluation.forget_all()

    # -- many at once

    def pass_gap(self, passed: Passed, most_backwards: int, *, is_waiting: bool) -> None:
        """Batches were only counted; ``is_waiting``: whether no backward has used the latest."""
        self.use()
        self._returned = 0
        self.is_waiting = is_waiting
        if passed.updates:
            self._taken = -(-passed.fetches // passed.updates)
            self.note_update(most_backwards)

    @property
    def are_evaluated(self) -> bool:
        """True if the latest fetch has shown that the batch before it was evaluated, and nothing has used its own."""
        is_known = self.evaluation.evaluating is not None and self.evaluation.evaluating == self._iterator
        return is_known and self.is_waiting and not self._ahead and not self.may_evaluate
