"""The lines of the user's loop: where the forward pass begins, where backward and the update are, which evaluate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import takewhile

from tuimon.code_origin import is_package_file, is_torch
from tuimon.records import BETWEEN
from tuimon.session.loop_tree.evaluation_lines import Branch, EvaluationLines, is_loop
from tuimon.session.loop_tree.frame_table import FrameTable, Function
from tuimon.session.loop_tree.order import UPDATES, CountedStack, path_to, returned_gradients
from tuimon.session.loop_tree.other_calls import OtherCalls
from tuimon.session.loop_tree.stack_phase import StackPhase
from tuimon.torch_code import is_loss_module, is_module_call

#: Of so many samples on a line that leads to an update more than one is in it: where a tenth of the time goes to
#: backward and the update, 30 hold at most one in 18 of 100 cases, and a later window shows more.
_MANY = 30


class LoopLines:
    """Finds a sample's phase from the line at which its stack branches off the path to the backward call.

    The path leads from the root to the user's line that calls backward. Before the first forward line a sample is data,
    from there to the backward call forward, later other (side work). Of this loop::

        44  for x, y in loader:            is_on_fetch_line, outside the fetch itself
        45      x = augment(x)             data
        46      loss = cost(model(x), y)   forward: a sample here is in a module
        47      loss.backward()            the end of the path
        48      log(loss)                  other, is_measured
        49      optimizer.step()
        50      save(model)                other

    Lines, or a call, that fetch without a backward evaluate (``EvaluationLines``). While no backward was sampled, the
    path leads to the update.
    """

    def __init__(self, samples: Sequence[CountedStack], frames: FrameTable, has_loader: bool = False) -> None:
        """``has_loader``: whether markers show a DataLoader; a few samples may have missed its fetches."""
        self._frames = frames
        self._has_loader = has_loader
        to_backward = path_to("backward", samples, frames)
        self._path = to_backward or path_to("optimizer", samples, frames)
        self._calls = OtherCalls(self._path, [(s.stack, s.times, s.boundary in UPDATES) for s in samples], frames)
        samples = [*samples, *self._aligned_ones(samples)]
        self._last_line = {depth: frames[number].line for depth, number in enumerate(self._path)}
        own: StackPhase = "backward" if to_backward else "optimizer"
        # depth -> line -> what it leads to, in the frames of the path
        self._boundaries: dict[int, dict[int, StackPhase]] = {d: {n: own} for d, n in self._last_line.items()}
        self._forward_line: dict[int, int] = {}  # depth -> first line of the forward pass in that frame of the path
        self._fetch_lines: set[tuple[int, int]] = set()  # depth and line of the fetches for training
        branches = [(sample, branch) for sample in samples if (branch := self.branch_of(sample.stack)) is not None]
        torn = self._torn(branches)
        whole = [(s, b) for s, b in branches if s.boundary not in UPDATES or b[:2] not in torn]
        returned = returned_gradients({s.stack for s in samples if s.boundary in UPDATES}, self._frames)
        self._note_updates([(s.boundary, b) for s, b in whole if s.stack not in returned])
        self._note_updates([(s.boundary, b) for s, b in whole if s.stack in returned and not self._is_after(b)])
        placed = [(s.boundary, b) for s, b in whole]
        over = (self._loop_over(s.stack, branch) for s, branch in branches if s.boundary == "data")
        loops = {branch for branch in over if branch is not None}
        runs = [("forward" if s.stack in returned else s.boundary, b) for s, b in whole]
        self._evaluation = EvaluationLines(runs, loops, self._is_after)
        self._acting_calls: set[Function] = set()  # the user's functions that run a model without gradients
        self._note_fetch_and_forward(whole)
        self._model_lines = self._lines_of_models(samples)  # depth and line of calls of a model, in the forward pass
        self._training_calls = {  # the user's functions that train
            branch.called for phase, branch in placed if phase != "rest" and not self.is_evaluation(branch)
        }

    @property
    def is_known(self) -> bool:
        """True if a sample has shown which lines train."""
        return bool(self._path)

    @property
    def shows_forward(self) -> bool:
        """True if a sample has shown a line of the forward pass."""
        return bool(self._forward_line)

    @property
    def fetches(self) -> bool:
        """True if batches come from a DataLoader."""
        return self._has_loader or bool(self._fetch_lines)

    def aligned(self, stack: Sequence[int]) -> Sequence[int]:
        """A stack as if the loop were called from where most of its samples are; what other methods take."""
        return self._calls.aligned(stack)

    def depth_of(self, stack: Sequence[int]) -> int:
        """How far down the path the functions of a stack are; -1: not at all."""
        return -1 if (branch := self.branch_of(self.aligned(stack))) is None else branch.depth

    def is_entered_by(self, stack: Sequence[int]) -> bool:
        """True if a stack is in the function that calls backward."""
        last = self._frames[self._path[-1]] if self._path else None
        return last is not None and (last.file, last.function) in map(self._frames.function, stack)

    def _aligned_ones(self, samples: Sequence[CountedStack]) -> list[CountedStack]:
        pairs = ((sample, self.aligned(sample.stack)) for sample in samples)
        return [sample._replace(stack=tuple(stack)) for sample, stack in pairs if stack is not sample.stack]

    def is_above_backward(self, branch: Branch | None) -> bool:
        """True if a sample is on a line above the one that leads to backward."""
        return branch is not None and branch.line < self._frames[self._path[branch.depth]].line

    def branch_of(self, stack: Sequence[int]) -> Branch | None:
        """Where a stack branches off the path to the backward call; None if it has no frame of the path."""
        depth = None
        for i, (own_id, path_id) in enumerate(zip(stack, self._path, strict=False)):
            own, path = self._frames[own_id], self._frames[path_id]
            if (own.file, own.function) != (path.file, path.function):
                break
            depth = i
            if own.line != path.line:
                break
        if depth is None:
            return None
        below = (self._frames[number] for number in stack[depth + 1 : depth + 3])  # a decorator may lie between
        called = next(((frame.file, frame.function) for frame in below if frame.user), None)
        return Branch(depth, self._frames[stack[depth]].line, called)

    def phase_of(self, branch: Branch | None, stack: Sequence[int]) -> str | None:
        """``data``, ``forward`` or ``other``; None before the backward call while no forward pass was sampled."""
        if branch is None:
            return "other"
        depth, line, _ = branch
        if line > self._frames[self._path[depth]].line:
            return "other"
        if branch.called in self._acting_calls:
            return "forward"
        first_forward = self._forward_line.get(depth)
        if first_forward is not None:
            return "data" if line < first_forward or self._makes_argument(branch, stack) else "forward"
        if not self._forward_line:
            return None
        # the forward pass is in a call further down the path, or was over before this frame was entered
        return "data" if min(self._forward_line) > depth else "forward"

    def _makes_argument(self, branch: Branch, stack: Sequence[int]) -> bool:
        """True if a sample is in a function of the user's whose result the line passes to the model: it comes first."""
        if branch.called is None or branch[:2] not in self._model_lines or not self.is_call_beside_training(branch):
            return False
        from tuimon.session.loop_tree.call_order import is_made_for_model

        return is_made_for_model(self._frames[stack[branch.depth]].source, branch.called[1])

    def is_on_fetch_line(self, branch: Branch | None) -> bool:
        """True if a sample is on a line that fetches, outside the fetch.

        There the old batch is freed as the new one replaces it: by the markers, the forward pass has begun.
        """
        return branch is not None and branch.called is None and branch[:2] in self._fetch_lines

    def is_call_beside_training(self, branch: Branch | None) -> bool:
        """True if a sample is in a function of the user's that neither runs the model nor calls backward."""
        return branch is not None and branch.called is not None and not self.trains(branch.called)

    def trains(self, function: tuple[str, str]) -> bool:
        """True if a function of the user's, by file and name, runs the model, fetches or calls backward."""
        return function in self._training_calls

    def is_in_framework(self, branch: Branch | None, stack: Sequence[int]) -> bool:
        """True if a sample is in a library that owns the loop, outside every boundary and module.

        Then one line of the user's, ``trainer.fit(model)``, leads to the forward pass and to backward alike, and its
        number shows nothing; what the library does besides is side work. So are the user's functions that it calls,
        such as callbacks, but for those that train; where a DataLoader is fetched from, no data is made in them.
        """
        if branch is None:
            return False
        if branch.called is not None:
            return self.fetches and not self.trains(branch.called) and self._by_library(branch, stack)
        if branch.depth != len(self._path) - 1:
            return False
        if not self._forward_line.get(branch.depth) == branch.line == self._frames[self._path[branch.depth]].line:
            return False
        files = (self._frames[number].file for number in stack[branch.depth + 1 :])
        return any(is_package_file(file) and not is_torch(file) for file in files)

    def _by_library(self, branch: Branch, stack: Sequence[int]) -> bool:
        """True if a library calls the user's function of a branch, from the same line as what leads to backward."""
        if self._frames[stack[branch.depth]].line != self._frames[self._path[branch.depth]].line:
            return False
        between = []
        for number in stack[branch.depth :]:
            if number != stack[branch.depth] and self._frames[number].user:
                break
            between.append(self._frames[number].file)
        return any(is_package_file(file) and not is_torch(file) for file in between)

    def is_measured(self, branch: Branch | None) -> bool:
        """True if a sample is in a stretch whose phase markers show: it is no evidence of those that they leave open.

        That is what lies between backward and an update; in a loop that fetches its batches also what comes before its
        first backward, and after its last update. Open is what is above backward in a loop that does not, and between
        two models' updates.
        """
        if branch is None:
            return False
        known = self._boundaries.get(branch.depth, {})
        before = max((line for line in known if line < branch.line), default=None)
        after = min((line for line in known if line > branch.line), default=None)
        if before is None or after is None:
            return self.fetches and before != after
        return known[before] == "backward" and known[after] == "optimizer"

    def measured_as(self, branch: Branch | None) -> str:
        """What markers count a stretch as that is in none of their boundaries."""
        if not self.fetches:
            return "other" if self.is_measured(branch) else BETWEEN
        if branch is None or not self.is_above_backward(branch):
            return "other"
        fetched = min((line for depth, line in self._fetch_lines if depth == branch.depth), default=0)
        return "forward" if branch.line > fetched else "other"

    def is_evaluation(self, branch: Branch | None) -> bool:
        """True if a sample is in a call, or on lines, that fetch and run the model without a backward."""
        return branch is not None and branch in self._evaluation

    def may_be_training(self, branch: Branch | None) -> bool:
        """True if a run of the model there may be training: below backward and the update it is not."""
        return branch is None or not self._forward_line or not self._is_after(branch)

    def _is_after(self, branch: Branch) -> bool:
        return branch.line > self._last_line[branch.depth]

    def _torn(self, branches: Sequence[tuple[CountedStack, Branch]]) -> set[tuple[int, int]]:
        """Depths and lines at which one sample of many is in an update: it was read while the stack changed."""
        times: Counter[tuple[int, int]] = Counter()
        updates: Counter[tuple[int, int]] = Counter()
        for sample, branch in branches:
            times[branch[:2]] += sample.times
            updates[branch[:2]] += sample.times if sample.boundary in UPDATES else 0
        return {place for place, n in times.items() if n >= _MANY and updates[place] == 1} - set(
            self._last_line.items()
        )

    def _note_updates(self, placed: list[tuple[StackPhase, Branch]]) -> None:
        for phase, (depth, line, _) in placed:
            if phase in ("backward", "optimizer"):
                self._last_line[depth] = max(line, self._last_line[depth])
                self._boundaries[depth].setdefault(line, phase)

    def _loop_over(self, stack: Sequence[int], branch: Branch) -> Branch | None:
        """What goes through the batches that a stack fetches: the branch's line, or the function that it calls."""
        callers = []
        for number in stack[branch.depth :]:
            if self._frames.kind(number) == "fetch":
                break
            if self._frames[number].user:
                callers.append(number)
        if len(callers) not in (1, 2) or not is_loop(self._frames[callers[-1]].source):
            return None
        return branch._replace(called=None) if len(callers) == 1 else branch

    def _note_fetch_and_forward(self, whole: Sequence[tuple[CountedStack, Branch]]) -> None:
        forward: list[tuple[Branch, bool]] = []
        for sample, branch in whole:
            if sample.boundary == "data" and not self.is_evaluation(branch):
                self._fetch_lines.add(branch[:2])
            if sample.boundary == "forward" and not self.is_evaluation(branch) and not self._is_after(branch):
                forward.append((branch, self._acts(sample.stack, branch)))
        learns = not all(acts for _, acts in forward)
        for (depth, line, called), acts in forward:
            if acts and learns and called is not None:
                self._acting_calls.add(called)
            else:
                self._forward_line[depth] = min(line, self._forward_line.get(depth, line))

    def _acts(self, stack: Sequence[int], branch: Branch) -> bool:
        """True if a function that the loop calls runs a model without gradients, as one that chooses actions does.

        What comes between it and the model that learns makes the batch: it is taken from a buffer, for example.
        """
        if branch.called is None:
            return False
        below = takewhile(lambda number: self._frames.kind(number) == "none", stack[branch.depth + 1 :])
        return any(self._frames.block(number) is not None for number in below)

    def _lines_of_models(self, samples: Sequence[CountedStack]) -> set[tuple[int, int]]:
        out: set[tuple[int, int]] = set()
        for stack, _, boundary in samples:
            branch = self.branch_of(stack) if boundary == "forward" and self._forward_line else None
            if branch is None or branch[:2] in out:
                continue
            if branch.line == self._forward_line.get(branch.depth) and self._runs_model(stack):
                out.add(branch[:2])
        return out

    def _runs_model(self, stack: Sequence[int]) -> bool:
        frames = [self._frames[number] for number in stack]
        called = any(is_module_call(frame.file, frame.function) for frame in frames)
        return called and not any(is_loss_module(frame.file) for frame in frames)
