"""Which of the batches that a thread fetches it trains on, and which it evaluates."""

from __future__ import annotations

from tuimon.sources.loop.evaluation import EvaluationFinder, Times
from tuimon.sources.loop.fetched_ahead import FetchedAhead
from tuimon.sources.loop.step import Step


class Batches:
    """Follows them from fetch to backward; what turns out to be evaluation it takes out of the step under way."""

    def __init__(self) -> None:
        self.is_waiting = False  # a batch was fetched that no backward has used yet
        self._eval_ns = 0
        self._eval_count = 0
        self._evaluation = EvaluationFinder()
        self._ahead = FetchedAhead()  # evaluation, unless they were fetched ahead of the one that trains next
        self._returned = 0  # backwards since the latest fetch that only returned gradients, and may have evaluated
        self._iterator = 0  # of the latest fetch
        self._trained_on = 0  # the latest iterator of a batch that has trained for sure

    def take_evaluation(self) -> tuple[int, int]:
        """The time (ns) and the batches evaluated since the last call."""
        taken = self._eval_ns, self._eval_count
        self._eval_ns, self._eval_count = 0, 0
        return taken

    def add_time(self, label: str, duration_ns: int) -> None:
        """The next stretch, which may turn out to be evaluation."""
        self._evaluation.add_time(label, duration_ns)

    def forget_times(self) -> None:
        """Time until now can no longer turn out to be evaluation."""
        self._ahead.forget()
        self._evaluation.forget_times()

    def leave_loop(self) -> None:
        """The program has left its loop: what was fetched in it is used no more."""
        self.is_waiting = False
        self._returned = 0
        self._ahead.forget()
        self._evaluation = EvaluationFinder()

    # -- fetches

    def begin_iter(self) -> None:
        """Workers are being started."""
        self._evaluation.begin_iter()

    def end_iter(self, iterator: int) -> None:
        """This iterator is ready to be fetched from; 0: there is none."""
        self._evaluation.end_iter(iterator)

    def turn_from_evaluation(self, iterator: int) -> bool:
        """Whether the last iteration was evaluation, and this fetch is of another iterator."""
        return self._evaluation.turns_from_evaluation(iterator)

    def begin_fetch(self, iterator: int, step: Step) -> bool:
        """A fetch in this step; returns whether it shows that the batch before was evaluated.

        Where that may have been fetched ahead, only a later boundary proves it. Of a loader that trains it is not even
        likely, then.
        """
        self._iterator = iterator
        is_first = self._evaluation.is_second_fetch(iterator)
        evaluated = self._evaluation.begin_fetch(iterator)
        if evaluated is None:
            return False
        self.is_waiting = False
        self._returned = 0
        if not self._ahead.hold(iterator, evaluated, is_first=is_first):
            self.settle(step)
        elif self._ahead.may_train_later:
            self._evaluation.evaluating = None
            return False
        return True

    def end_fetch(self, exhausted: bool, step: Step) -> None:
        """A batch may train; an exhausted iterator that evaluated takes its last wait with it."""
        if exhausted:
            if not self._ahead.may_train_later:
                self.settle(step)
            self._move(self._evaluation.exhaust(), step)
        else:
            self.is_waiting = True

    def settle_before(self, iterator: int, step: Step) -> None:
        """A fetch of this iterator follows: of another one, it shows that the batches before were evaluated."""
        if iterator != self._iterator and not self._ahead.may_train_later:
            self.settle(step)

    def settle(self, step: Step) -> None:
        """No batch was fetched ahead: all were evaluated."""
        for times in self._ahead.take():
            self._eval_count += 1
            self._move(times, step)

    def _move(self, times: Times, step: Step) -> None:
        """This much of the step was evaluation, not training."""
        for label, duration_ns in times:
            step.add_time(label, -duration_ns)
            self._eval_ns += duration_ns

    # -- what uses them

    def return_gradients(self) -> bool:
        """A backward that only returns gradients; whether it may be part of an evaluation.

        Such as of forces, which are derivatives of an energy: the batch has not trained yet, unless one before it from
        the same iterator has.
        """
        if not self.is_waiting or self._iterator == self._trained_on:
            return False
        self._returned += 1
        return True

    @property
    def may_evaluate(self) -> bool:
        """Whether all backwards since the latest fetch have only returned gradients, and may have evaluated."""
        return self._returned > 0

    def use(self, step: Step) -> int:
        """What was fetched until now has been trained on; returns the backwards that had waited to be part of that."""
        if self.is_waiting and not self._ahead.are_trained_on(self._evaluation.since_fetch_ns(self._iterator)):
            self.settle(step)
        returned, self._returned = self._returned, 0
        self.end_update()
        return returned

    def note_training(self) -> None:
        """The batches of the latest iterator train for sure."""
        self._trained_on = self._iterator
        self._ahead.note_training(self._iterator)

    def end_update(self) -> None:
        """Nothing until now was evaluated."""
        self._ahead.forget()
        self._evaluation.forget_all()

    # -- many at once

    @property
    def standing(self) -> tuple[object, ...] | None:
        """All that what comes next depends on; None where time until now may still turn out to be evaluation."""
        if self._evaluation.is_open:
            return None
        return self.is_waiting, self._evaluation.evaluating, self._trained_on

    @property
    def are_evaluated(self) -> bool:
        """Whether the latest fetch has shown that the batch before it was evaluated, and nothing has used its own."""
        is_known = self._evaluation.evaluating is not None and self._evaluation.evaluating == self._iterator
        return is_known and self.is_waiting and not self._ahead and not self.may_evaluate

    def pass_evaluations(self, count: int, duration_ns: int, step: Step) -> None:
        """So many batches of the same iterator were evaluated in this time."""
        self.settle(step)
        self._eval_count += count
        self._eval_ns += duration_ns
