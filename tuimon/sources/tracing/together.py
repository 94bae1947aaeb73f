"""One trace of several ranks: as many steps of each, and the same ones.

How many steps fit into the pause that is allowed differs from rank to rank, so each tries first, and then all are
ordered the least. Ranks that exchange gradients end a backward pass together, and take an order there: orders that are
given within a fraction of a step are taken in the same one. This is checked; if they were not, all are ordered anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tuimon.agent.ring.control_words import TRACE_TRIAL, TRACE_TRIED
from tuimon.errors import TuimonError
from tuimon.sources.tracing.taking import HELD_MS, Taking, TraceAnswer

_TRIES = 3
#: Ranks that begin within this part of a step of each other have begun the same.
_NEAR = 0.5


class Together:
    """Orders when it is made; ``poll`` it at least twice a second until ``is_over``."""

    def __init__(
        self, pids: Sequence[int], steps: int, held_ms: int = HELD_MS, order: Callable[..., Taking] = Taking
    ) -> None:
        """``order``: orders the trace of one. Raises ControlError where one of them cannot be ordered."""
        self.takings: list[Taking] = []
        self.lost: list[TuimonError] = []  # why a rank is not among them any more
        self.is_over = False
        self.is_same = True  # whether all began with the same step
        self._held_ms = held_ms
        self._tries = 0
        try:
            for pid in pids:
                self.takings.append(order(pid, steps, held_ms, TRACE_TRIAL))
        except BaseException:
            self.cancel()
            raise

    def poll(self) -> None:
        """Keep the orders alive; once all are over, go on to what follows."""
        for taking in self.takings:
            if not taking.is_over:
                taking.poll()
        if self.is_over or not all(taking.is_over for taking in self.takings):
            return
        answers = self._answers()
        self.is_same = self._tries == 0 or _begin_together(answers)
        if not answers or (self._tries and (self.is_same or self._tries >= _TRIES)):
            self.is_over = True
        else:
            self._order(min(answer.steps for answer in answers))

    def cancel(self) -> None:
        """Take all orders back; nothing is left behind."""
        self.is_over = True
        for taking in self.takings:
            taking.cancel()

    def _answers(self) -> list[TraceAnswer]:
        """The answers of all ranks that have one; those that ended, or refused, are let go."""
        answers, left = [], []
        for taking in self.takings:
            try:
                answers.append(taking.answer())
                left.append(taking)
            except TuimonError as error:
                self._lose(taking, error)
        self.takings = left
        return answers

    def _order(self, steps: int) -> None:
        self._tries += 1
        left = []
        for taking in self.takings:
            try:
                taking.discard()
                left.append(taking)
                taking.order(steps, self._held_ms, TRACE_TRIED)
            except TuimonError as error:
                left.remove(taking)
                self._lose(taking, error)
        self.takings = left

    def _lose(self, taking: Taking, error: TuimonError) -> None:
        self.lost.append(error)
        taking.discard()
        taking.close()


def _begin_together(answers: Sequence[TraceAnswer]) -> bool:
    if len(answers) < 2:
        return True
    shortest_ns = min((answer.end - answer.begin) / answer.steps for answer in answers)
    return max(answer.begin for answer in answers) - min(answer.begin for answer in answers) < _NEAR * shortest_ns
