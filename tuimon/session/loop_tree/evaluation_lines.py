"""Which of the user's calls and lines evaluate: they fetch batches, but lead to no backward."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Set
from typing import NamedTuple

from tuimon.session.loop_tree.frame_table import Function

_LOOP = re.compile(r"\bfor\b")


class Branch(NamedTuple):
    """The place where a stack branches off the path to the backward call.

    ``called`` is the user's function that the line calls, as file and name; None where it calls torch or nothing.
    """

    depth: int
    line: int
    called: Function | None


def is_loop(source: str) -> bool:
    """True if a line of the user's goes through what it fetches, as a ``for`` or a comprehension."""
    return _LOOP.search(source) is not None


class EvaluationLines:
    """The calls and lines that fetch and run the model without a backward.

    Below all updates those that go through a loader of their own do so too, though no sample showed them run the model:
    where batches take long it may take next to no time. In this loop that is line 52::

        44  for x, y in loader:
        47      loss.backward()
        49      optimizer.step()
        52  for x, y in held_out: model(x)
    """

    def __init__(
        self,
        placed: Iterable[tuple[str, Branch]],
        loops: Set[Branch],
        is_after: Callable[[Branch], bool],
    ) -> None:
        """``loops``: what goes through batches that it fetches; ``is_after``: whether a branch is below all updates."""
        placed = list(placed)
        fetching = {branch for phase, branch in placed if phase == "data"}
        running = {branch for phase, branch in placed if phase == "forward"}
        training = {branch for phase, branch in placed if phase in ("backward", "optimizer")}
        both = {branch for branch in fetching & running - training if branch.called}
        later = {branch for branch in both if is_after(branch)}
        # without a forward pass elsewhere before backward, a function that fetches and runs the model is training
        elsewhere = any(not is_after(branch) for branch in running - both)
        self._calls = both if elsewhere else later
        self._lines: dict[int, tuple[int, int]] = {}  # depth -> first and last line
        self._note_lines(fetching - both, running - both, is_after)
        if any(not is_after(branch) for branch in fetching - self._calls):
            self._note_loops({branch for branch in loops if is_after(branch)})

    def _note_lines(self, fetching: Set[Branch], running: Set[Branch], is_after: Callable[[Branch], bool]) -> None:
        fetched: dict[int, int] = {}
        for branch in fetching:
            if is_after(branch):
                fetched[branch.depth] = min(branch.line, fetched.get(branch.depth, branch.line))
        for depth, line, _ in running:
            first = fetched.get(depth)
            if first is not None and line >= first:
                self._lines[depth] = (first, max(line, self._lines.get(depth, (0, 0))[1]))

    def _note_loops(self, loops: Set[Branch]) -> None:
        self._calls |= {branch for branch in loops if branch.called}
        for depth, line, called in loops:
            if called is None:
                first, last = self._lines.get(depth, (line, line))
                self._lines[depth] = min(first, line), max(last, line)

    def __contains__(self, branch: Branch) -> bool:
        first, last = self._lines.get(branch.depth, (0, -1))
        return branch in self._calls or first <= branch.line <= last
