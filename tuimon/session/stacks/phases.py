"""Samples of a training thread and their phases: by a boundary in the stack, else by their place in the loop."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from functools import lru_cache
from itertools import takewhile
from typing import Literal

from msgspec.structs import replace

from tuimon.bounds import has_room
from tuimon.library_code import evaluates_by_name
from tuimon.records import BETWEEN, Frame, RangePlace
from tuimon.session.stacks.activity import WAITS, Activity
from tuimon.session.stacks.loop import NOTHING_SEEN, Loop, LoopPlace, Position, Seen
from tuimon.session.stacks.samples import Sample
from tuimon.session.stacks.trie import UPDATES, Block, Function, StackNode
from tuimon.threshold import LARGE, NEARLY_ALL

#: Facts about a loop from outside its samples: whether there are hooks; whether markers show fetches from a DataLoader,
#: an optimizer, evaluation, steps that have ended, a backward or an update in any of them.
Fact = Literal["markers", "loader", "optimizer", "evaluation", "steps", "training"]
#: If no sample runs a module, the user's lines before the backward call are the forward pass (of a model without
#: modules), once this many samples are outside every boundary; with fewer they may be data as well. A forward pass in
#: modules that takes 2 % of the samples is missed by 150 of them in 5 of 100 cases: 0.98**150.
ENOUGH_SAMPLES = 150
#: A forward pass without modules takes at most this many times its backward pass. Measured on a CPU: 0.3 to 0.7 times
#: in matrix products, a convolution, attention, loops over single numbers and an ODE; 1.6 with torch.distributions.
_FORWARD_TIMES = 4.0
#: Activities that never occur in the forward pass of a model without modules.
_WAITS = WAITS - {"data", "idle", "ranks", "sync"}
#: Activities that bring a batch to the device; before the forward pass they belong to it, and may wait there for the
#: GPU's queue.
_COPIES: frozenset[Activity] = frozenset({"sync", "transfer"})


def placed(
    counts: Mapping[StackNode, int],
    facts: Set[Fact] = frozenset(),
    seen: Seen = NOTHING_SEEN,
    ranges: RangeJoin | None = None,
) -> tuple[Sample, ...]:
    """The samples of one training thread with their phases and ranges; ``seen``: what they showed before."""
    sampled = [Sample(node, n, node.boundary) for node, n in counts.items()]
    phases = _Phases(sampled, facts, seen)
    samples = tuple(phases.of(sample) for sample in without_torn(sampled))
    if ranges is None or not ranges.paths:
        return samples
    return tuple(replace(sample, ranges=ranges.ranges_of(sample.node.frames)) for sample in samples)


class _Phases:
    """The phase of each sample of a training thread."""

    def __init__(self, sampled: Sequence[Sample], facts: Set[Fact], seen: Seen) -> None:
        forward_only = "steps" in facts and "training" not in facts
        completed = _completed(sampled, seen)
        known = without_returned([*completed, *seen.noted])
        completed, noted = known[: len(completed)], known[len(completed) :]
        self._loop = loop = Loop(completed, noted, forward_only=forward_only)
        self._rollouts = Rollouts([] if forward_only else completed, loop)
        self._evaluation = EvaluationBlocks(() if "evaluation" in facts else sampled, loop, self._rollouts.are_known)
        loop.add([sample for sample in completed if not self._is_beside(sample)], "loader" in facts)
        has_optimizer = "optimizer" in facts or any(sample.node.has("optimizer") for sample in completed)
        self._updates_itself = not has_optimizer and not loop.is_forward_only
        self._few = sum(sample.count for sample in sampled if sample.phase == "rest") < ENOUGH_SAMPLES
        self._makes_data = loop.is_known and not loop.shows_forward and self._exceeds_forward(sampled)

    def _is_beside(self, sample: Sample) -> bool:
        """True if a sample evaluates or runs a rollout's policy, and so does not show the model of a step."""
        if self._evaluation.holds(sample):
            return True
        return sample.phase == "forward" and self._rollouts.holds(sample, self._loop.at(sample.node))

    def _exceeds_forward(self, sampled: Sequence[Sample]) -> bool:
        """True if more samples lie before backward than a forward pass without modules can have, given those in
        backward.

        The limit uses the 95 % bound of a Poisson count.
        """
        loop, above = self._loop, 0
        backward = sum(sample.count for sample in sampled if sample.phase == "backward")
        for sample in sampled:
            if sample.phase == "rest" and loop.is_above_backward(loop.at(sample.node)):
                above += 0 if sample.node.activity in _WAITS else sample.count
        return above > _FORWARD_TIMES * (backward + 2.0 * math.sqrt(backward) + 3.0)

    def of(self, sample: Sample) -> Sample:
        place = self._loop.at(sample.node)
        placed = self._placed(sample, place)
        if placed.phase == "forward" and sample.node.computes_metric:
            in_closure = self._loop.fetches and sample.node.is_in_closure
            moved_from = "forward" if placed.excluded or in_closure else None  # markers count it as forward there
            placed = replace(placed, phase="other", unsure=False, moved_from=moved_from)
        if placed.phase == "other" and (sample.node.is_in_optimizer or self._is_own_update(sample, place)):
            return replace(placed, phase="optimizer", moved_from="other")
        return placed

    def _is_own_update(self, sample: Sample, place: LoopPlace | None) -> bool:
        """True if a loop without an optimizer changes its parameters in a sample: after backward, without gradients."""
        after = self._updates_itself and self._loop.is_after_backward(place)
        return after and any(frame.no_grad is not None for frame in sample.node.frames)

    def _placed(self, sample: Sample, place: LoopPlace | None) -> Sample:
        """A sample in its phase: by its boundary; otherwise as work outside the training; otherwise by its place."""
        loop, boundary, in_closure = self._loop, sample.phase, sample.node.is_in_closure
        if boundary == "backward" or (boundary == "optimizer" and not in_closure):
            return sample.at(boundary)
        if boundary != "optimizer" and self._evaluation.holds(sample):
            counted = loop.counted_as(place) or ("other" if loop.fetches else BETWEEN)
            return sample.at("eval", moved_from=None if boundary == "data" else counted)  # markers see its fetches
        if loop.is_evaluation(sample, place):
            return sample.at("eval")
        if boundary == "optimizer" and loop.is_after_backward(place):
            is_own = any(frame.user for frame in sample.node.closure)
            return sample.at("other", excluded=True, moved_from="optimizer") if is_own else sample.at("optimizer")
        if self._rollouts.holds(sample, place):
            as_forward = boundary != "data" and loop.fetches and in_closure  # markers count it as forward there
            return sample.at("data", excluded=as_forward, moved_from="forward" if as_forward else None)
        if boundary == "data":
            return sample.at("data")
        if boundary == "forward":
            is_beside = loop.shows_forward and loop.is_after(place)
            is_counted = loop.counted_as(place) is not None and not loop.trains_in_optimizer
            return sample.at("other" if is_beside else boundary, excluded=is_counted)
        return self._at_rest(sample, place)

    def _at_rest(self, sample: Sample, place: LoopPlace | None) -> Sample:
        """A sample outside every boundary, or in a closure of an optimizer before its backward, by its place.

        If no forward pass was sampled, code before backward is forward, except for waits, which no model makes, and for
        more samples than a forward pass can have: these make the data. Until a user's line was shown to train, only
        waits are sure: they are outside the model. If an optimizer calls the forward pass and backward, markers count
        the making of a batch as time outside the step.
        """
        loop, is_wait = self._loop, sample.node.activity in _WAITS
        if place is None:
            return sample.at("other", unsure=not (is_wait or loop.path.is_users))
        counted = loop.counted_as(place)
        if loop.is_after(place) or place.position > loop.path.position:
            return sample.at("other", excluded=counted is not None)
        calls = place.called is not None and not loop.trains(place.called)
        if place.is_librarys and not self._is_training(sample, place):
            moved_from = counted if calls and counted != "other" else None
            return sample.at("other", excluded=counted is not None, moved_from=moved_from)
        if loop.is_on_fetch_line(place):
            return sample.at("forward", excluded=True)
        if place.is_before_model is None:
            is_data = is_wait or (self._makes_data and loop.is_above_backward(place))
            return sample.at("data") if is_data else sample.at("forward", unsure=self._few)
        if not place.is_before_model:  # between two closures of an optimizer markers leave it open
            return sample.at("forward", excluded=counted is not None and not loop.trains_in_optimizer)
        if sample.node.is_upkeep:
            return sample.at("other", excluded=counted is not None)
        if loop.trains_in_optimizer and not loop.fetches:
            return sample.at("data", excluded=True, moved_from="other")
        moves = calls and sample.node.activity not in _COPIES
        return sample.at("data", excluded=counted is not None, moved_from=counted if moves else None)

    def _is_training(self, sample: Sample, place: LoopPlace) -> bool:
        """True if a sample belongs to the training, in a loop that a library owns.

        Before the model, that means the user's function that makes the batch, but not a handler of the loop's events,
        which the library calls through a function of its own. From the model to backward, it means the library's own
        code. In a loop that fetches no batches, any function may make them.
        """
        if place.called is None:
            return place.is_before_model is False and self._loop.is_above_backward(place)
        if self._loop.trains(place.called) or not self._loop.fetches:
            return True
        return bool(place.is_before_model) and place.inside[0].user


def _completed(sampled: Sequence[Sample], seen: Seen) -> list[Sample]:
    """These samples; for each boundary that none of them shows, also stacks seen before or recorded by the hooks."""
    out = [*sampled, *seen.beside(sampled)]
    shown = {sample.phase for sample in out}
    return out + [sample for sample in seen.noted if sample.phase not in shown]


def without_returned(samples: Sequence[Sample]) -> list[Sample]:
    """The samples, with passes that only return gradients counted as forward; if all passes do, they train."""
    returned = {sample.node: sample.node.returns_gradients for sample in samples if sample.phase in UPDATES}
    if all(returned.values()):
        return list(samples)
    return [sample.at("forward") if returned.get(sample.node) else sample for sample in samples]


def without_torn(samples: Sequence[Sample]) -> list[Sample]:
    """Stacks that begin at the thread's root, which nearly all have, and other stacks that show a boundary.

    The rest have lost their callers, as py-spy reads a running process, or run at its exit. Stacks without the user's
    code do not show which root is the thread's.
    """
    roots: Counter[Function | None] = Counter()
    for sample in [sample for sample in samples if sample.node.user_line is not None] or samples:
        roots[_root(sample)] += sample.count
    root, most = next(iter(roots.most_common(1)), (None, 0))
    if roots.total() - most > LARGE * roots.total():  # in quick calls 0.11 were read while the stack changed
        return list(samples)
    return [sample for sample in samples if sample.phase != "rest" or _root(sample) == root]


def _root(sample: Sample) -> Function | None:
    return sample.node.frames[0].code if sample.node.frames else None


# ---- user ranges


class RangeJoin:
    """Finds the ranges of one process in which a stack lies, by their places."""

    def __init__(self) -> None:
        self._places: dict[str, list[RangePlace]] = {}  # by path, outer ones before those inside them

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(self._places)

    def add_places(self, places: Iterable[RangePlace]) -> None:
        for place in places:
            if has_room(self._places, place.path):
                known = self._places.setdefault(place.path, [])
                if place not in known and has_room(known, place):
                    known.append(place)
        self._places = dict(sorted(self._places.items()))

    def ranges_of(self, stack: Sequence[Frame]) -> tuple[str, ...]:
        """Paths of the ranges that a stack (root first) was sampled in, outer ones first.

        A range holds a stack if one of its frames lies within the range's place, inside the range around it.
        """
        depths: dict[str, int] = {"": 0}  # path: the first frame within it
        for path, places in self._places.items():
            outer = next((outer for outer in _around(path) if outer in self._places), "")  # the innermost known one
            rest = range(depths.get(outer, len(stack)), len(stack))
            depth = next((i for i in rest if any(_holds(place, stack[i]) for place in places)), None)
            if depth is not None:
                depths[path] = depth
        return tuple(depths)[1:]


def _holds(place: RangePlace, frame: Frame) -> bool:
    return (
        place.first <= frame.line <= place.last and frame.function == place.function and place.file.endswith(frame.file)
    )


@lru_cache(maxsize=512)
def _around(path: str) -> tuple[str, ...]:
    """The paths around a path, innermost first."""
    names = path.split("/")
    return tuple("/".join(names[:length]) for length in range(len(names) - 1, 0, -1))


#: Functions that step an environment, or generate, to measure the model or to show what it does.
_EVALUATES = re.compile(r"(?i)eval|valid|test|demo|sample|print|log")


class Rollouts:
    """Finds the samples in which data is made, given the samples of one training thread.

    The functions that backward and the update are called through are the path of training. A stack that steps an
    environment leaves this path: the function that it calls there is a rollout, with all that it does besides: the
    policy, the buffer, the copies. Here that is ``rollout``::

        44  states, rewards = rollout(env, policy, 16)
        45  loss = cost(policy(states), rewards)
        46  loss.backward()

    If the loop itself steps the environment, its lines up to there are the rollout, if backward comes later. A function
    that computes the loss in a closure of the optimizer, such as ``training_step``, is handled alike. An environment
    that a model steps in its forward pass is not a rollout.
    """

    def __init__(self, samples: Sequence[Sample], loop: Loop) -> None:
        self._loop = loop
        self._functions: set[Function] = set()
        self._last: Position = ()  # of the loop's own lines that make the data
        for sample in samples:
            self._note_rollout(sample)

    @property
    def are_known(self) -> bool:
        """True if samples have shown where data is made."""
        return bool(self._functions or self._last)

    def holds(self, sample: Sample, place: LoopPlace | None) -> bool:
        """True if a sample, in neither backward nor an update, is part of a rollout."""
        if not self.are_known:
            return False
        stack = sample.node.frames
        if any(frame.code in self._functions for frame in takewhile(lambda frame: frame.kind != "module", stack)):
            return True
        return place is not None and place.position <= self._last

    def _note_rollout(self, sample: Sample) -> None:
        stack, making = sample.node.frames, sample.node.maker_depth
        if making is None:
            return
        generates = "generates" in stack[making].roles
        if not self._loop.is_known:  # updates are too short to be sampled: what makes the data is known nevertheless
            self._functions |= set() if generates else {stack[making].code}
            return
        place = self._loop.at(sample.node)
        if place is None or len(place.inside) < len(stack) - making:
            return
        called = place.inside[: len(place.inside) - (len(stack) - making)]
        if any(_EVALUATES.search(frame.function) or frame.kind == "module" for frame in called):
            return
        own = [frame for frame in called if frame.user]
        if place.position > self._loop.path.position and (generates or place.is_librarys):
            return  # what is generated after backward, or played by a library, shows how the model does
        self._functions.add((own[0] if own else stack[making]).code)
        if not own and self._loop.is_above_backward(place):
            self._last = max(place.position, self._last)


#: Share of a block's samples that run a module, from which it runs the model: our choice; much of an evaluation may be
#: its batches, or its environment.
_MODEL_SHARE = 0.1


class EvaluationBlocks:
    """Finds the samples of one training thread that evaluate.

    A block is what ``with torch.no_grad():`` holds, a function that is decorated so, or one of a library that is named
    as evaluation. A teacher and a target network run without gradients too, but before the update. A block evaluates
    if it comes after the update or is named as evaluation, and if it runs modules and trains nothing, as in this code::

        70  def evaluate():
        71      with torch.no_grad():
        72          for x, y in batches(held_out):
        73              out = model(x)

    In a program with rollouts only blocks named as evaluation count: others without gradients may choose actions.
    """

    def __init__(self, samples: Sequence[Sample], loop: Loop, makes_data: bool) -> None:
        """``makes_data``: whether there are rollouts."""
        totals, apart, models, training = Counter[Block](), Counter[Block](), Counter[Block](), set[Block]()
        for sample in samples:
            is_after = not makes_data and loop.is_after(loop.at(sample.node))
            for block in {frame.block for frame in sample.node.outside_torch if frame.block is not None}:
                totals[block] += sample.count
                if sample.phase in UPDATES:
                    training.add(block)
                elif is_after or evaluates_by_name(block[2]):
                    apart[block] += sample.count
                    models[block] += sample.count if sample.phase == "forward" else 0
        evaluate = (block for block, n in apart.items() if models[block] >= _MODEL_SHARE * n)
        self._blocks = {block for block in evaluate if apart[block] >= NEARLY_ALL * totals[block]} - training

    def holds(self, sample: Sample) -> bool:
        """True if a sample, in neither backward nor an update, evaluates."""
        return any(frame.block in self._blocks for frame in sample.node.outside_torch)
