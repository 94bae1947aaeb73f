"""Evaluation that no DataLoader fetches for: runs of the model without gradients, in few of the steps."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec import Struct

from tuimon.library_code import evaluates_by_name
from tuimon.records import Steps
from tuimon.session.loop_tree.frame_table import Function
from tuimon.session.loop_tree.order import leading_lines
from tuimon.session.loop_tree.roles import Block
from tuimon.session.loop_tree.stacks import NEARLY_ALL, StackSample

#: Twice the visits, and this many more, are expected of a block in every step. By chance it has as few in one of
#: 20,000 cases: no visit where 10 are expected, 5 where 20 are, 10 where 30 are (Poisson).
_FEWER = 10.0
#: If markers show evaluation, more than this part of the steps' time, samples show the same evaluation.
_MARKED_PART = 0.01
#: Most blocks that are followed, and most records of steps that are held.
_BLOCKS = 64
_STEPS_HELD = 16


class _Window(Struct, frozen=True, gc=False):
    begin_s: float
    end_s: float
    cycles: int | None  # passes through backward that samples show; None: too fast to count
    blocks: dict[Block, tuple[int, int]]  # samples and visits


class _Followed(Struct):
    samples: int = 0
    visits: int = 0
    expected: float = 0.0  # visits, were it in every step


class OccasionalBlocks:
    """Follows blocks of code through the windows of the thread that trains.

    A visit is samples of a block without one of backward or an update between them. If a block with ``n`` samples ran
    in each of ``k`` steps, about ``k * (1 - exp(-n / k))`` steps would have some: nearly ``n`` if there are more steps
    than samples. Two of those, one after the other, are one visit where no such sample lies between them: of samples of
    the block and of these the next one is one of these in the share that they have.

    For example, 60 samples in 2 s with 100 steps include 10 of a block and 25 of backward and updates. In every step
    they would be of ``100 * (1 - exp(-10 / 100)) * 25 / 35``, nearly 7 visits. In an evaluation they are one.
    """

    def __init__(self) -> None:
        self._followed: dict[Block, _Followed] = {}
        self._training = 0  # samples
        self._steps: list[tuple[float, int]] = []  # when a record ended, steps until then
        self._latest: _Window | None = None  # its last steps may be in a record to come
        self._stepped_ns = self._evaluated_ns = 0  # by markers

    def add_steps(self, record: Steps) -> None:
        """Fold how many steps markers show, and how much evaluation."""
        self._stepped_ns += record.total_ns
        self._evaluated_ns += sum(phase.total_ns for phase in record.phases if phase.name == "eval")
        self._steps.append((record.t, record.count + (self._steps[-1][1] if self._steps else 0)))
        if len(self._steps) > (_STEPS_HELD if self._latest is not None else 2):
            del self._steps[0]

    def add_window(
        self,
        begin_s: float,
        end_s: float,
        blocks: Iterable[tuple[Block, int, int]],
        training: int,
        cycles: int | None,
    ) -> None:
        """A window: of each block its samples and visits; ``training``: samples in backward and updates."""
        self._count_latest()
        self._training += training
        visited: dict[Block, tuple[int, int]] = {}
        for block, samples, visits in blocks:
            before = visited.get(block, (0, 0))
            visited[block] = before[0] + samples, before[1] + visits
        self._latest = _Window(begin_s, end_s, cycles, visited) if visited else None

    def __contains__(self, block: Block) -> bool:
        one = self._followed.get(block)
        return one is not None and one.expected >= 2 * one.visits + _FEWER

    def __bool__(self) -> bool:
        """True if there are any, and markers show no evaluation."""
        if self._evaluated_ns > _MARKED_PART * self._stepped_ns:
            return False
        return any(block in self for block in self._followed)

    def _count_latest(self) -> None:
        window = self._latest
        if window is None:
            return
        steps = self._steps_in(window)
        for block, (samples, visits) in window.blocks.items():
            if block not in self._followed and len(self._followed) >= _BLOCKS:
                continue
            one = self._followed.setdefault(block, _Followed())
            one.samples += samples
            one.visits += visits
            with_samples = float(samples)
            if math.isfinite(steps):
                with_samples = steps * -math.expm1(-samples / steps) if steps else 0.0
            one.expected += with_samples * self._training / max(1, self._training + one.samples)

    def _steps_in(self, window: _Window) -> float:
        """How many steps a window holds; infinite: too many to count."""
        if not self._steps:
            return math.inf if window.cycles is None else max(0.0, window.cycles - 1)
        return max(0.0, self._steps_until(window.end_s) - self._steps_until(window.begin_s))

    def _steps_until(self, t: float) -> float:
        """Steps that have ended by a moment, between two records in proportion."""
        before_s, before = self._steps[0]
        for at_s, steps in self._steps:
            if at_s >= t:
                part = (t - before_s) / (at_s - before_s) if at_s > before_s else 1.0
                return before + max(0.0, part) * (steps - before)
            before_s, before = at_s, steps
        return before


#: Share of a block's samples that run a module, from which it runs the model: our choice; much of an evaluation may be
#: its batches, or its environment.
_MODEL_SHARE = 0.1


class EvaluationBlocks:
    """Finds the samples of one training thread that evaluate.

    A block is what ``with torch.no_grad():`` holds, a function that is decorated so, or one of a library that is named
    as evaluation. A teacher, a target network and an average of the weights are without gradients too, but in every
    step. If steps pass without the block, and it runs modules and trains nothing, it evaluates, with all of the
    function around it that is no part of training, as the loop is here::

        70  def evaluate():
        71      for x, y in batches(held_out):
        72          with torch.no_grad():
        73              out = model(x)
        74          right += hits(out, y)

    So may data be made for many steps: that comes before them each time, and where environments are stepped or text is
    generated in other places, too. A block that is not named as evaluation has to come after the update, or in a branch
    of an ``if``; beside rollouts only blocks named so evaluate.
    """

    def __init__(self, samples: Sequence[StackSample], occasional: OccasionalBlocks, makes_data: bool) -> None:
        """``makes_data``: whether there are rollouts."""
        self._blocks: set[Block] = set()
        self._functions: set[Function] = set()
        if not occasional:
            return
        self._training = leading_lines(samples)
        totals, models, apart = Counter[Block](), Counter[Block](), Counter[Block]()
        for sample in samples:
            inside = {frame.block for frame in sample.outside_torch if frame.block is not None}
            blocks = dict.fromkeys((block for block in inside if block in occasional), sample.count)
            totals.update(blocks)
            models.update(blocks if sample.phase == "forward" else {})
            if sample.phase in ("rest", "forward"):  # batches from a DataLoader are what markers count
                apart.update({block: n for block, n in blocks.items() if self._is_apart(sample, block, makes_data)})
        self._blocks = {
            block
            for block, total in totals.items()
            if models[block] >= _MODEL_SHARE * total and apart[block] >= NEARLY_ALL * total
        }
        if self._blocks:
            self._note_functions(samples)

    def _is_apart(self, sample: StackSample, block: Block, makes_data: bool) -> bool:
        """True if a block is named as evaluation, or is in a branch or after the update, where data for that is not."""
        if evaluates_by_name(block[2]):
            return True
        path = [frame for frame in sample.outside_torch if frame.code in self._training]
        if makes_data or not path:
            return False
        frame, lines = path[-1], self._training[path[-1].code]
        if frame.branch is not None and not any(frame.branch[0] <= line <= frame.branch[1] for line in lines):
            return True
        return frame.line > max(lines)

    def holds(self, sample: StackSample) -> bool:
        """True if a sample, in neither backward nor an update, evaluates."""
        if not self._blocks:
            return False
        return any(frame.block in self._blocks or frame.code in self._functions for frame in sample.outside_torch)

    def _note_functions(self, samples: Sequence[StackSample]) -> None:
        """The functions around the blocks in which nothing else runs modules."""
        inside, runs = Counter[Function](), Counter[Function]()
        for sample in samples:
            if sample.phase != "forward":
                continue
            around = {frame.code for frame in sample.outside_torch} - self._training.keys()
            runs.update(dict.fromkeys(around, sample.count))
            own = next((frame.code for frame in sample.outside_torch if frame.block in self._blocks), None)
            if own in around:
                inside[own] += sample.count
        self._functions = {function for function, times in inside.items() if times >= NEARLY_ALL * runs[function]}
