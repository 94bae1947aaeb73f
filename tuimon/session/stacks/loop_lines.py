"""The lines of the user's loop: where the forward pass begins, where backward and the update are, which evaluate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import NamedTuple

from tuimon.code_origin import is_package_file, is_torch
from tuimon.records import BETWEEN
from tuimon.session.stacks.frames import UPDATES, Function, KnownFrame, StackPhase
from tuimon.session.stacks.order import MANY, is_torn, path_to, path_to_model
from tuimon.session.stacks.samples import Sample
from tuimon.session.stacks.trie import Node, Stack

#: If so many samples of a phase leave a frame on other lines, the only one on its line was torn: our choice. A second
#: update that is as rare is missing until it has two.
_VERY_MANY = 64


class Branch(NamedTuple):
    """The place where a stack branches off the path to the backward call.

    ``called`` is the user's function that the line calls, as file and name; None where it calls torch or nothing.
    """

    depth: int
    line: int
    called: Function | None


class LoopLines:
    """Finds a sample's phase from the line at which its stack branches off the path to the backward call.

    The path leads from the root to the user's line that calls backward. Before the first forward line a sample is data,
    from there to the backward call forward, later other (side work). In this loop::

        44  for x, y in loader:            is_on_fetch_line, outside the fetch itself
        45      x = augment(x)             data
        46      loss = cost(model(x), y)   forward: a sample here is in a module
        47      loss.backward()            the end of the path
        48      log(loss)                  other, is_measured
        49      optimizer.step()
        50      save(model)                other

    A call that fetches and runs the model without a backward evaluates. While no backward was sampled, the
    path leads to the update; in a loop that has neither, to the model, and what follows its last line is side work.
    """

    def __init__(self, samples: Sequence[Sample], has_loader: bool = False, *, forward_only: bool = False) -> None:
        """``has_loader``: whether markers show a DataLoader; a few samples may have missed its fetches.

        ``forward_only``: whether they show steps, none with a backward or an update.
        """
        to_backward = path_to("backward", samples)
        self._path = to_backward or path_to("optimizer", samples)
        self._ends = UPDATES
        if forward_only and not self._path:
            self._path, self._ends = path_to_model(samples), frozenset({"forward"})
        self._is_forward = self._ends is not UPDATES
        self.is_known = bool(self._path)  # whether a sample has shown which lines train
        own: StackPhase = "backward" if to_backward else "forward" if self._is_forward else "optimizer"
        # depth -> line -> what it leads to, in the frames of the path
        self._boundaries: dict[int, dict[int, str]] = {d: {f.line: own} for d, f in enumerate(self._path)}
        self._forward_line: dict[int, int] = {}  # depth -> first line of the forward pass in that frame of the path
        self._fetch_lines: set[tuple[int, int]] = set()  # depth and line of the fetches for training
        branches = [(sample, branch) for sample in samples if (branch := self.branch_of(sample.node)) is not None]
        torn = self._torn(branches)
        whole = [(s, b) for s, b in branches if s.phase not in self._ends or b[:2] not in torn]
        for sample, (depth, line, _) in whole:
            if sample.phase in self._ends:
                self._boundaries[depth].setdefault(line, sample.phase)
        self._last_line = {depth: max(lines) for depth, lines in self._boundaries.items()}
        self._evaluating = set() if self._is_forward else self._evaluating_calls(whole)
        self._note_fetch_and_forward(whole)
        self.fetches = has_loader or bool(self._fetch_lines)  # whether batches come from a DataLoader
        self.shows_forward = bool(self._forward_line)  # whether a sample has shown a line of the forward pass
        self._training_calls = {  # the user's functions that train
            branch.called for sample, branch in whole if sample.phase != "rest" and not self.is_evaluation(branch)
        }

    def is_above_backward(self, branch: Branch | None) -> bool:
        """True if a sample is on a line above the one that leads to backward."""
        return branch is not None and branch.line < self._path[branch.depth].line

    def branch_of(self, node: Node) -> Branch | None:
        """The branch of a stack off the path to the backward call; None if it has no frame of the path."""
        depth, stack = None, node.frames
        for i, (own, path) in enumerate(zip(stack, self._path, strict=False)):
            if own.code != path.code:
                break
            depth = i
            if own.line != path.line:
                break
        if depth is None:
            return None
        below = stack[depth + 1 : depth + 3]  # a decorator may lie between
        return Branch(depth, stack[depth].line, next((frame.code for frame in below if frame.user), None))

    def phase_of(self, branch: Branch | None) -> str | None:
        """``data``, ``forward`` or ``other``; None before the backward call while no forward pass was sampled."""
        if branch is None:
            return "other"
        if self._is_after(branch) if self._is_forward else branch.line > self._path[branch.depth].line:
            return "other"
        first_forward = self._forward_line.get(branch.depth)
        if first_forward is not None:
            return "data" if branch.line < first_forward else "forward"
        if not self._forward_line:
            return None
        # the forward pass is in a call further down the path, or was over before this frame was entered
        return "data" if min(self._forward_line) > branch.depth else "forward"

    def is_on_fetch_line(self, branch: Branch | None) -> bool:
        """True if a sample is on a line that fetches, outside the fetch.

        There the old batch is freed as the new one replaces it: by the markers, the forward pass has begun.
        """
        return branch is not None and branch.called is None and branch[:2] in self._fetch_lines

    def is_call_beside_training(self, branch: Branch | None) -> bool:
        """True if a sample is in a function of the user's that neither runs the model nor calls backward."""
        return branch is not None and branch.called is not None and not self.trains(branch.called)

    def trains(self, function: Function) -> bool:
        """True if a function of the user's, by file and name, runs the model, fetches or calls backward."""
        return function in self._training_calls

    def is_in_framework(self, branch: Branch | None, stack: Stack) -> bool:
        """True if a sample is in a library that owns the loop, outside every boundary and module.

        Then one line of the user's, ``trainer.fit(model)``, leads to the forward pass and to backward alike, and its
        number shows nothing; what the library does besides is side work. So are the user's functions that it calls,
        such as callbacks, but for those that train; where a DataLoader is fetched from, no data is made in them.
        """
        if branch is None or branch.line != self._path[branch.depth].line:
            return False
        below = stack[branch.depth + 1 :]
        if branch.called is not None:
            callers = (stack[branch.depth], *takewhile(lambda frame: not frame.user, below))
            return self.fetches and not self.trains(branch.called) and _holds_library(callers)
        is_last = branch.depth == len(self._path) - 1
        return is_last and self._forward_line.get(branch.depth) == branch.line and _holds_library(below)

    def is_measured(self, branch: Branch | None) -> bool:
        """True if a sample is in a stretch whose phase markers show: it is no evidence of those that they leave open.

        That is what lies between backward and an update; in a loop that fetches its batches also what comes before its
        first backward, and after its last update. Open is what is above backward in a loop that does not, and between
        two models' updates.
        """
        if branch is None or self._is_forward:
            return False
        known = self._boundaries.get(branch.depth, {})
        before = max((line for line in known if line < branch.line), default=None)
        after = min((line for line in known if line > branch.line), default=None)
        if before is None or after is None:
            return self.fetches and before != after
        return known[before] == "backward" and known[after] == "optimizer"

    def measured_as(self, branch: Branch | None) -> str:
        """The phase as which markers count a stretch that is in none of their boundaries."""
        if not self.fetches:
            return "other" if self.is_measured(branch) else BETWEEN
        if branch is None or not self.is_above_backward(branch):
            return "other"
        fetched = min((line for depth, line in self._fetch_lines if depth == branch.depth), default=0)
        return "forward" if branch.line > fetched else "other"

    def is_evaluation(self, branch: Branch | None) -> bool:
        """True if a sample is in a call that fetches and runs the model without a backward."""
        return branch in self._evaluating

    def may_be_training(self, branch: Branch | None) -> bool:
        """True if a run of the model there may be training: below backward and the update it is not."""
        return branch is None or not self._forward_line or not self._is_after(branch)

    def _is_after(self, branch: Branch) -> bool:
        return branch.line > self._last_line[branch.depth]

    def _torn(self, branches: Sequence[tuple[Sample, Branch]]) -> set[tuple[int, int]]:
        """Depths and lines at which one sample of many is in an update; so few in a model that the loop only runs.

        So is one sample of very many of its phase, if the others lead there from other lines.
        """
        others, ends = Counter[tuple[int, int]](), Counter[tuple[int, int]]()
        alike = Counter[tuple[int, str]]()
        for sample, branch in branches:
            (ends if sample.phase in self._ends else others)[branch[:2]] += sample.count
            alike[branch.depth, sample.phase] += sample.count
        torn = {
            place
            for place, n in ends.items()
            if (others[place] >= MANY * n if self._is_forward else is_torn(n, others[place]))
        }
        torn |= {
            branch[:2]
            for sample, branch in branches
            if ends[branch[:2]] == 1 and sample.phase in self._ends and alike[branch.depth, sample.phase] > _VERY_MANY
        }
        return torn - {(depth, frame.line) for depth, frame in enumerate(self._path)}

    def _evaluating_calls(self, whole: Sequence[tuple[Sample, Branch]]) -> set[Branch]:
        """The calls that fetch and run the model without a backward.

        Without a forward pass elsewhere before backward, a call that fetches and runs the model there is training.
        """
        fetching, running, training = (
            {branch for sample, branch in whole if sample.phase in phases}
            for phases in ({"data"}, {"forward"}, UPDATES)
        )
        both = {branch for branch in fetching & running - training if branch.called}
        elsewhere = any(not self._is_after(branch) for branch in running - both)
        return both if elsewhere else {branch for branch in both if self._is_after(branch)}

    def _note_fetch_and_forward(self, whole: Sequence[tuple[Sample, Branch]]) -> None:
        for sample, branch in whole:
            if self.is_evaluation(branch):
                continue
            if sample.phase == "data":
                self._fetch_lines.add(branch[:2])
            if sample.phase == "forward" and not self._is_after(branch):
                self._forward_line[branch.depth] = min(branch.line, self._forward_line.get(branch.depth, branch.line))


def _holds_library(frames: Iterable[KnownFrame]) -> bool:
    return any(is_package_file(frame.file) and not is_torch(frame.file) for frame in frames)
