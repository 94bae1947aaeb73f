"""The path to backward: the frames from the root to the user's line that leads to it, or to the update.

If a library owns the loop, the path goes through its functions, and stacks leave it there. Backward passes that only
return gradients, such as forces, are on no path: training takes them, and so may an evaluation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import reduce
from itertools import takewhile
from typing import Literal, NamedTuple

from tuimon.library_code import is_handler
from tuimon.records import LoopStack
from tuimon.session.stacks.frames import UPDATES, Function, StackPhase
from tuimon.session.stacks.samples import Sample
from tuimon.session.stacks.trie import Node, Stack, Trie, to_user

#: The part of samples that counts as all of them: our choice. In quick calls 0.11 were read while the stack changed.
NEARLY_ALL = 0.8
#: Lines of the library's functions from the outermost on, and the line at which a stack leaves them.
Lines = tuple[int, ...]


def path_to(kind: Literal["backward", "optimizer"], samples: Sequence[Sample]) -> Stack:
    """Frames from the root to the user's line that most stacks in backward, or in the update, come through."""
    paths: Counter[Stack] = Counter()
    for sample in samples:
        if sample.phase == kind:
            paths[to_user(sample.node.before(kind))] += sample.count
    return max(paths, key=lambda path: paths[path], default=())


def path_to_model(samples: Sequence[Sample]) -> Stack:
    """Frames from the root to the user's line that most stacks in the forward pass come through.

    One that was read while it changed came from other work, so other stacks come through its line: that counts against
    a line, in proportion.
    """
    paths: Counter[Stack] = Counter()
    for sample in samples:
        if sample.phase == "forward":
            paths[to_user(sample.node.before("module", "compile"))] += sample.count
    passed = {path: sum(s.count for s in samples if s.node.frames[: len(path)] == path) for path in paths}
    return max(paths, key=lambda path: paths[path] ** 2 / passed[path], default=())


def leading_lines(samples: Sequence[Sample]) -> dict[Function, set[int]]:
    """The lines with which each function that leads to backward or the update does so."""
    lines: dict[Function, set[int]] = {}
    for sample in samples:
        for frame in sample.node.before("backward", "optimizer") if sample.phase in UPDATES else ():
            lines.setdefault(frame.code, set()).add(frame.line)
    return lines


def without_returned(samples: Sequence[Sample]) -> list[Sample]:
    """The samples, those in passes that only return gradients as of the forward pass; they train if all do."""
    returned = {sample.node: sample.node.returns_gradients for sample in samples if sample.phase in UPDATES}
    if all(returned.values()):
        return list(samples)
    return [sample.at("forward") if returned.get(sample.node) else sample for sample in samples]


#: Among so many samples at a place more than one is in an update, if the place leads to one: our choice. py-spy reads a
#: running process, so a stack may be made of two that followed each other.
MANY = 8


def is_torn(updates: int, others: int) -> bool:
    """True if the one sample of an update at a place was read while the stack changed: so many others show none."""
    return updates == 1 and others >= MANY


def is_before(place: Lines, other: Lines) -> bool:
    """True if the loop comes to a place before another; not where one is within the other."""
    return next((line < of_other for line, of_other in zip(place, other, strict=False) if line != of_other), False)


class Leaving(NamedTuple):
    """The place at which a stack leaves the path; empty for a stack in another call of the user's, or off the path."""

    place: Lines
    inside: Stack  # what the innermost function on the path calls


_NOWHERE = Leaving((), ())


class LibraryPath:
    """The frames down to backward, be they noted by the hooks or sampled; without any, no stack leaves them."""

    def __init__(self, samples: Sequence[Sample], noted: Sequence[Sample]) -> None:
        path = _to_backward(noted) or _to_backward(samples)
        times = Counter(frame.code for frame in path)
        self._left: dict[Node, Leaving] = {}
        self.passes_optimizer = any(frame.kind == "optimizer" for frame in path)
        self.lines = tuple(frame.line for frame in path)
        self._user_lines = {frame.code: frame.line for frame in path if frame.user}
        #: The depths of the library's functions.
        self.depth: dict[Function, int] = {
            frame.code: depth for depth, frame in enumerate(path) if "library" in frame.roles and times[frame.code] == 1
        }

    def leave(self, node: Node) -> Leaving:
        """The place where a stack leaves the path: the first library function at another line, else the last on it."""
        if not self.depth:
            return _NOWHERE
        found = self._left.get(node)
        if found is None:
            found = self._left[node] = self._leave(node.frames)
        return found

    def _leave(self, stack: Stack) -> Leaving:
        left = None
        for i, frame in enumerate(stack):
            depth = self.depth.get(frame.code) if "library" in frame.roles else None
            if depth is not None:
                left = i
                if frame.line != self.lines[depth]:
                    break
        if left is None:
            return _NOWHERE
        inside = stack[left + 1 :]
        if any(frame.user and self._user_lines.get(frame.code) != frame.line for frame in stack[:left]):
            return Leaving((), inside)
        return Leaving((*self.lines[: self.depth[stack[left].code]], stack[left].line), inside)


def _to_backward(samples: Sequence[Sample]) -> Stack:
    """The frames down to backward of the most frequent stack in it."""
    inside = (sample for sample in samples if sample.phase == "backward")
    most = max(inside, key=lambda sample: sample.count, default=None)
    return () if most is None else most.node.before("backward")


class LibraryOrder:
    """Finds which functions of the user's a library calls before the forward pass, and where it evaluates.

    The user's line is the same for all: ``model.fit(x)``. The library's functions that lead to backward have lines of
    their own, and a stack leaves them at one of these::

        fit
        484    run_epoch(loader)       backward: 484, 501; the forward pass: 484, 497
                   493    x = augment(x)             484, 493: before it
                   497    out = network(x)
                   501    loss.backward()
        486    callbacks.on_batch_end()              486: after it

    The code that one of these functions calls itself makes the batch. A handler of the
    loop's events does not: the library calls it by a function of its own, or it is named as such. In a function that
    runs the model for these, be it the user's (``training_step``) or the library's, what is called above the model
    makes the batch.

    After the last line that leads to backward or to the update, a call that fetches and runs the model evaluates; what
    else the library calls there does not, such as a checkpoint.
    """

    def __init__(self, samples: Sequence[Sample], seen: SeenBoundaries | None = None) -> None:
        """``seen``: what the hooks, or the first sample, noted of the loop: with all frames of libraries."""
        noted = without_returned(seen.noted) if seen is not None else []
        known = [*samples, *noted]
        self._path = LibraryPath(samples, noted)
        #: True if the optimizer calls the forward pass and backward as a closure.
        self.trains_in_optimizer = self._path.passes_optimizer
        running = [self._path.leave(sample.node) for sample in samples if sample.phase == "forward"]
        # where it runs first; empty: nowhere; runs below backward evaluate
        runs = (place for place, _ in running if place and not is_before(self._path.lines, place))
        self._model: Lines = min(runs, default=())
        self._model_lines: dict[Function, int] = {}  # of the functions that run it, the first line that does
        for _, inside in (at for at in running if self._model and at.place == self._model):
            for frame in takewhile(lambda frame: frame.user or "library" in frame.roles, inside):
                self._model_lines[frame.code] = min(frame.line, self._model_lines.get(frame.code, frame.line))
        self._last = self._last_place(known, UPDATES)
        self._last_backward = self._last_place(known, {"backward"})
        fetching = {self._path.leave(sample.node).place for sample in samples if sample.phase == "data"}
        # the places at which it fetches and runs the model after the update, and the user's functions that do there
        self._evaluating = {at.place for at in running if at.place in fetching and is_before(self._last, at.place)}
        self._evaluators = {own for place, inside in running if place in self._evaluating and (own := _called(inside))}

    def is_after_training(self, node: Node) -> bool:
        """True if the library comes to a stack after backward and the update."""
        return is_before(self._last, self._path.leave(node).place)

    def is_after_backward(self, node: Node) -> bool:
        """True if the library comes to a stack after backward, such as at the end of a closure that it trains in."""
        return is_before(self._last_backward, self._path.leave(node).place)

    def is_evaluation(self, sample: Sample) -> bool:
        """True if a sample fetches or runs the model to evaluate, or is in a function of the user's that does."""
        place, inside = self._path.leave(sample.node)
        if place not in self._evaluating or sample.phase in UPDATES:
            return False
        return sample.phase != "rest" or _called(inside) in self._evaluators

    def is_forward(self, node: Node) -> bool:
        """True if a stack outside every module is in the library's own code where it runs the model, or above backward.

        Examples are a model's method that calls its modules one by one, and the library's arithmetic on the loss.
        """
        place, inside = self._path.leave(node)
        if not self._model or is_before(place, self._model) or not is_before(place, self._path.lines):
            return False
        return not any(frame.user or frame.line < self._model_lines.get(frame.code, 0) for frame in inside)

    def _last_place(self, samples: Sequence[Sample], boundaries: Collection[str]) -> Lines:
        """The last place that leads to one of these: a loss with derivatives in it calls backward before.

        One of so many samples at a place is torn: what is at such a place is mostly done for the update.
        """
        times, inside = Counter[Lines](), Counter[Lines]()
        for sample in samples:
            place = self._path.leave(sample.node).place
            times[place] += sample.count
            inside[place] += sample.count if sample.phase in boundaries else 0
        places = (place for place, n in inside.items() if n and n * MANY > times[place])
        return reduce(lambda last, place: place if is_before(last, place) else last, places, self._path.lines)

    def made_by(self, node: Node) -> Function | None:
        """The function of the user's that makes a batch for the library's loop, given a stack in it; else None."""
        place, inside = self._path.leave(node)
        if place and place == self._model:
            return self._called_above(inside) or self._called_above(_without_library(inside))
        if not inside or not is_before(place, self._model):
            return None
        called = inside[0]
        return called.code if called.user and not is_handler(called.function) else None

    def _called_above(self, stack: Stack) -> Function | None:
        """The function called by the one that runs the model, the user's or the library's, above the line that does."""
        depth = next((i for i, frame in enumerate(stack) if frame.code not in self._model_lines), len(stack))
        if not 0 < depth < len(stack) or not stack[depth].user:
            return None
        caller, called = stack[depth - 1], stack[depth].code
        first = self._model_lines[caller.code]
        if not caller.user and is_handler(called[1]):
            return None
        return called if caller.line < first else None


def _called(inside: Stack) -> Function | None:
    """The user's function that a stack off the path comes to first."""
    return next((frame.code for frame in inside if frame.user), None)


def _without_library(stack: Stack) -> Stack:
    """The stack from the first frame on that is no library's."""
    return stack[next((i for i, frame in enumerate(stack) if "library" not in frame.roles), len(stack)) :]


#: Most stacks that are remembered of each: a training shows some tens.
_STACKS = 64


class SeenBoundaries:
    """The latest stacks of one thread in its forward pass and in backward.

    A pass that takes a thousandth of a step is in few samples, and in none of many a window; the lines of the loop are
    the same all the while. Until a sample has shown backward, or an update, the stack counts that the hooks noted.
    """

    def __init__(self) -> None:
        self._kept: dict[StackPhase, dict[Node, int]] = {"forward": {}, "backward": {}}
        self.noted: list[Sample] = []  # what the hooks noted of the loop

    def add_noted(self, stacks: Sequence[LoopStack], trie: Trie) -> None:
        """Take up what the hooks noted of the loop, in place of what they noted before."""
        self.noted = [Sample(trie.node(stack.frames), 1, stack.boundary) for stack in stacks]

    def add_window(self, counts: Mapping[Node, int]) -> None:
        """Fold a window of the training thread."""
        for node, n in counts.items():
            kept = self._kept.get(node.boundary)
            if kept is not None:
                kept.pop(node, None)
                kept[node] = n
                if len(kept) > _STACKS:
                    del kept[next(iter(kept))]

    def begin(self) -> None:
        """The loop begins: what was seen before is of the set-up."""
        for kept in self._kept.values():
            kept.clear()

    def calling_backward(self) -> set[Function]:
        """The user's functions that call backward or the update, as file and name."""
        nodes = (*self._kept["backward"], *(noted.node for noted in self.noted))
        callers = (to_user(node.before("backward", "optimizer")) for node in nodes)
        return {caller[-1].code for caller in callers if caller}

    def beside(self, samples: Sequence[Sample]) -> list[Sample]:
        """The remembered stacks of each boundary that none of these samples shows."""
        shown = {sample.phase for sample in samples}
        return [
            Sample(node, n, boundary)
            for boundary, kept in self._kept.items()
            if boundary not in shown
            for node, n in kept.items()
        ]
