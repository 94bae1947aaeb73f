"""Steps of a loop that has no backward pass, such as inference: each batch that it fetches is one."""

from __future__ import annotations

from tuimon.records import BETWEEN
from tuimon.sources.loop.evaluation import Times
from tuimon.sources.loop.step import Step

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
