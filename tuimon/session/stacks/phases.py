"""Samples of a training thread and their phases: by a boundary in the stack, else by where in the loop they are."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from functools import lru_cache
from typing import Literal

from msgspec.structs import replace

from tuimon.code_origin import is_package_file
from tuimon.library_code import is_handler
from tuimon.records import Frame, RangePlace
from tuimon.session.stacks.activity import Activity
from tuimon.session.stacks.beside import Augmentations, EvaluationBlocks, OwnUpdates, Rollouts
from tuimon.session.stacks.frames import UPDATES, Function
from tuimon.session.stacks.loop import NEARLY_ALL, NOTHING_SEEN, Loop, LoopPlace, Seen
from tuimon.session.stacks.samples import Sample
from tuimon.session.stacks.trie import Node

#: What is known of a loop beside its samples: there are hooks; markers show that it fetches from a DataLoader, an
#: optimizer, evaluation, steps that have ended, a backward or an update in any of them.
Fact = Literal["markers", "loader", "optimizer", "evaluation", "steps", "training"]
#: With no run of a module among the samples, the user's lines before the backward call are the forward pass themselves
#: (a model without modules) once this many samples are outside every boundary; with fewer they may be data as well. A
#: forward pass in modules that takes 2 % of them has none among 150 in 5 of 100 cases: 0.98**150.
ENOUGH_SAMPLES = 150
#: A forward pass without modules takes at most this many times its backward pass. Measured on a CPU: 0.3 to 0.7 times
#: in matrix products, a convolution, attention, loops over single numbers and an ODE; 1.6 with torch.distributions.
_FORWARD_TIMES = 4.0
#: Activities of which a model without modules has none in its forward pass.
_WAITS: frozenset[Activity] = frozenset({"io", "lock", "sleep"})
#: Activities that bring a batch to the device; before the forward pass they belong to it, and may wait there for the
#: GPU's queue.
_COPIES: frozenset[Activity] = frozenset({"sync", "transfer"})


def placed(
    counts: Mapping[Node, int],
    facts: Set[Fact] = frozenset(),
    seen: Seen = NOTHING_SEEN,
    ranges: RangeJoin | None = None,
) -> tuple[Sample, ...]:
    """The samples of one training thread with their phases and ranges; ``seen``: what they showed before."""
    sampled = [Sample(node, n, node.boundary) for node, n in counts.items()]
    phases = _Phases(sampled, facts, seen)
    whole, torn = by_root(sampled)
    in_phases = [phases.of(sample) for sample in whole]
    samples = in_phases + like_whole_ones(torn, in_phases)
    if ranges is None or not ranges.paths:
        return tuple(samples)
    return tuple(replace(sample, ranges=ranges.ranges_of(sample.node.frames)) for sample in samples)


class _Phases:
    """The phase of each sample of a training thread."""

    def __init__(self, sampled: Sequence[Sample], facts: Set[Fact], seen: Seen) -> None:
        forward_only = "steps" in facts and "training" not in facts
        self._forward_only = forward_only
        self._augmentations = Augmentations(sampled)
        counted = [self._augmentations.without_module(sample) or sample for sample in sampled]
        sampled = self._completed(counted, seen)
        known = without_returned([*sampled, *seen.noted])
        completed, noted = known[: len(sampled)], known[len(sampled) :]
        self._loop = loop = Loop(completed, noted, forward_only=forward_only)
        self._rollouts = Rollouts([] if forward_only else completed, loop)
        self._evaluation = EvaluationBlocks(() if "evaluation" in facts else counted, loop, self._rollouts.are_known)
        loop.add([sample for sample in completed if not self._is_beside(sample)], "loader" in facts)
        self._own_updates = OwnUpdates(completed, "optimizer" in facts)
        self._few = sum(sample.count for sample in counted if sample.phase == "rest") < ENOUGH_SAMPLES
        self._makes_data = loop.is_known and not loop.shows_forward and self._exceeds_forward(counted)

    def _is_beside(self, sample: Sample) -> bool:
        """True if it is of evaluation, or runs a rollout's policy: it shows nothing of the model in a step."""
        if self._evaluation.holds(sample):
            return True
        return sample.phase == "forward" and self._rollouts.holds(sample, self._loop.at(sample.node))

    def _completed(self, counted: Sequence[Sample], seen: Seen) -> list[Sample]:
        """These samples, and stacks seen before, or noted by the hooks, of each boundary that none of them shows."""
        kept = [sample for sample in seen.beside(counted) if self._augmentations.without_module(sample) is None]
        out = [*counted, *kept]
        shown = {sample.phase for sample in out}
        return out + [sample for sample in seen.noted if sample.phase not in shown]

    def _exceeds_forward(self, counted: Sequence[Sample]) -> bool:
        """True if more samples are above backward than a forward pass without modules has beside so many in backward.

        So many: the 95 % bound of a Poisson count.
        """
        loop, above = self._loop, 0
        backward = sum(sample.count for sample in counted if sample.phase == "backward")
        for sample in counted:
            if sample.phase == "rest" and loop.is_above_backward(loop.at(sample.node)):
                above += 0 if sample.node.activity in _WAITS else sample.count
        return above > _FORWARD_TIMES * (backward + 2.0 * math.sqrt(backward) + 3.0)

    def of(self, sample: Sample) -> Sample:
        """A sample in its phase; a torn one as if it ended where it leaves the path.

        ``main log``, and then ``main adam``, may come out as ``main log adam``. Taken as it is, ``log`` would be where
        the loop updates its parameters, and no side work.
        """
        place = self._loop.at(sample.node)
        if place is not None and self._loop.is_torn(sample):
            sample = sample.at("rest", sample.node.up_to(len(sample.node.frames) - len(place.inside)))
        placed = self._placed(sample, place)
        if placed.phase == "data" and sample.phase == "rest" and sample.node.is_upkeep:
            placed = replace(placed, phase="other", moved_from=None)
        if placed.phase == "forward" and sample.node.computes_metric:
            moved_from = "forward" if placed.excluded else None  # markers count it as forward there
            placed = replace(placed, phase="other", unsure=False, moved_from=moved_from)
        if placed.phase == "other" and (sample.node.is_in_optimizer or self._own_updates.holds(sample.node.frames)):
            return replace(placed, phase="optimizer", moved_from="other")
        return placed

    def _placed(self, sample: Sample, place: LoopPlace | None) -> Sample:
        """A sample in its phase, by its boundary first, what is beside the training next, then by its place.

        Stepping an environment, or generating, after the update is no rollout: a rollout makes the data of the update
        that follows it.
        """
        loop, boundary, in_closure = self._loop, sample.phase, sample.node.is_in_closure
        if boundary == "backward" or (boundary == "optimizer" and not in_closure):
            return sample.at(boundary)
        is_open = boundary in ("forward", "rest")
        if is_open and self._evaluation.holds(sample):
            return sample.at("eval", moved_from=loop.measured_as(place))
        if loop.is_evaluation(sample, place):
            return sample.at("eval")
        if boundary == "optimizer" and loop.is_after_backward(place):
            is_own = any(frame.user for frame in sample.node.closure)
            return sample.at("other", excluded=True, moved_from="optimizer") if is_own else sample.at("optimizer")
        if is_open and not self._forward_only and place is not None and place.is_librarys and loop.is_after(place):
            return sample.at("other", excluded=loop.fetches)
        if self._rollouts.holds(sample, place):
            as_forward = boundary != "data" and loop.fetches and in_closure  # markers count it as forward there
            return sample.at("data", excluded=as_forward, moved_from="forward" if as_forward else None)
        if boundary == "data":
            return sample.at("data")
        plain = self._augmentations.without_module(sample)
        if plain is not None:
            placed = self._at_rest(plain, loop.at(plain.node))
            if placed.phase == "data":
                return sample.at("data", excluded=placed.excluded, moved_from="forward" if placed.excluded else None)
        if boundary == "forward":
            is_beside = loop.shows_forward and loop.is_after(place)
            measured = loop.is_measured(place) and not loop.trains_in_optimizer
            return sample.at("other" if is_beside else boundary, excluded=measured)
        return self._at_rest(sample, place)

    def _at_rest(self, sample: Sample, place: LoopPlace | None) -> Sample:
        """A sample outside every boundary, or in a closure of an optimizer before its backward, by its place.

        If no forward pass was sampled, what is before backward is forward, but for waits, which are no model's, and
        for what is more than a forward pass can be: that makes the data. Before a line of the user's was
        shown to train, a wait is outside the model, and nothing else is sure. Beside an optimizer that calls the
        forward pass and backward, markers count the making of a batch as what is outside the step.
        """
        loop, is_wait = self._loop, sample.node.activity in _WAITS
        if place is None:
            return sample.at("other", unsure=not (is_wait or loop.path.is_users))
        measured = loop.is_measured(place)
        if loop.is_after(place) or place.position > loop.path.position:
            return sample.at("other", excluded=measured)
        if place.is_librarys and not self._is_training(sample, place):
            return sample.at("other", excluded=measured)
        if loop.is_on_fetch_line(place):
            return sample.at("forward", excluded=True)
        if place.is_before_model is None:
            is_data = is_wait or (self._makes_data and loop.is_above_backward(place))
            return sample.at("data") if is_data else sample.at("forward", unsure=self._few)
        if not place.is_before_model:  # between two closures of an optimizer markers leave it open
            return sample.at("forward", excluded=measured and not loop.trains_in_optimizer)
        if loop.trains_in_optimizer and not loop.fetches:
            return sample.at("data", excluded=True, moved_from="other")
        calls = place.called is not None and not loop.trains(place.called)
        moved = measured and calls and sample.node.activity not in _COPIES
        return sample.at("data", excluded=measured, moved_from="forward" if moved else None)

    def _is_training(self, sample: Sample, place: LoopPlace) -> bool:
        """True if what a library that owns the loop does there is of the training.

        That is the user's function that makes the batch, called before the model; not a handler of the loop's events,
        which the library calls by a function of its own, or which is named as such. From the model to backward it is
        the library's own code. In a loop that fetches no batches, any function may make them.
        """
        first = place.inside[0] if place.inside else None
        if place.called is None:
            return place.is_before_model is False and self._loop.is_above_backward(place)
        if self._loop.trains(place.called) or not self._loop.fetches:
            return True
        is_direct = first is not None and first.user and not is_package_file(first.file)
        return bool(place.is_before_model) and is_direct and not is_handler(place.called[1])


def without_returned(samples: Sequence[Sample]) -> list[Sample]:
    """The samples, those in passes that only return gradients as of the forward pass; they train if all do."""
    returned = {sample.node: sample.node.returns_gradients for sample in samples if sample.phase in UPDATES}
    if all(returned.values()):
        return list(samples)
    return [sample.at("forward") if returned.get(sample.node) else sample for sample in samples]


# ---- stacks without their callers: py-spy reads a running process


def by_root(samples: Sequence[Sample]) -> tuple[list[Sample], list[Sample]]:
    """Stacks that begin at the thread's root, which nearly all have, and others: torn ones, and what runs at exit.

    Neither counts for which root is the thread's where it holds no code of the user's.
    """
    roots: Counter[Function | None] = Counter()
    for sample in [sample for sample in samples if sample.node.user_line is not None] or samples:
        roots[_root(sample)] += sample.count
    root, most = next(iter(roots.most_common(1)), (None, 0))
    if most < NEARLY_ALL * roots.total():
        return list(samples), []
    whole = [sample for sample in samples if _root(sample) == root]
    return whole, [sample for sample in samples if _root(sample) != root]


def _root(sample: Sample) -> Function | None:
    """The outermost function of a stack."""
    return sample.node.frames[0].code if sample.node.frames else None


def like_whole_ones(torn: Sequence[Sample], whole: Sequence[Sample]) -> list[Sample]:
    """Torn stacks, each in the phase of the most frequent whole one through its outermost function, called as in it.

    Without their callers, those of a line that takes most of its time in short calls would count for no line. Those
    that have lost all code of the user's, and of which no whole stack shows whose they are, are in phase "none".
    """
    ways: dict[Function, tuple[Sample, int]] = {}
    for sample in sorted(whole, key=lambda sample: sample.count) if torn else ():
        for depth in range(len(sample.node.frames) - 1, -1, -1):
            ways[sample.node.frames[depth].code] = sample, depth
    out = []
    for sample in torn:
        like, depth = ways.get(sample.node.frames[0].code, (None, 0)) if sample.node.frames else (None, 0)
        if like is not None and sample.phase in ("rest", like.phase):
            node = sample.node.trie.node((*like.node.ids[:depth], *sample.node.ids))
            out.append(replace(like, node=node, count=sample.count))
        elif like is not None:
            out.append(sample)
        elif sample.phase != "rest":
            out.append(replace(sample, excluded=True))
        else:
            phase = "none" if sample.node.user_line is None else "other"
            out.append(replace(sample, phase=phase, excluded=True))
    return out


# ---- user ranges

#: How many ranges of a process, and places of each, are held: names or places made in a loop must not fill memory.
_PATHS = 128
_PLACES_PER_PATH = 8


class RangeJoin:
    """The places of one process's ranges; which of its ranges a stack lies in."""

    def __init__(self) -> None:
        self._places: dict[str, list[RangePlace]] = {}  # by path, outer ones before those inside them

    @property
    def paths(self) -> tuple[str, ...]:
        """The ranges whose place is known."""
        return tuple(self._places)

    def add_places(self, places: Iterable[RangePlace]) -> bool:
        """Add places; whether any was new."""
        before = sum(map(len, self._places.values()))
        for place in places:
            if place.path in self._places or len(self._places) < _PATHS:
                known = self._places.setdefault(place.path, [])
                if place not in known and len(known) < _PLACES_PER_PATH:
                    known.append(place)
        if sum(map(len, self._places.values())) == before:
            return False
        self._places = dict(sorted(self._places.items()))
        return True

    def ranges_of(self, stack: Sequence[Frame]) -> tuple[str, ...]:
        """Paths of the ranges that a stack (root first) was sampled in, outer ones first.

        A range holds a stack if one of its frames lies within the range's place, inside the range around it.
        """
        if not self._places:
            return ()
        depths: dict[str, int] = {}  # path: the first frame within it
        for path in self._places:
            outer = next((outer for outer in _around(path) if outer in self._places), None)  # the innermost known one
            if outer is None or outer in depths:
                start, places = 0 if outer is None else depths[outer], self._places[path]
                inside = (i for i in range(start, len(stack)) if any(_holds(place, stack[i]) for place in places))
                depth = next(inside, None)
                if depth is not None:
                    depths[path] = depth
        return tuple(depths)


def _holds(place: RangePlace, frame: Frame) -> bool:
    return (
        place.first <= frame.line <= place.last and frame.function == place.function and place.file.endswith(frame.file)
    )


@lru_cache(maxsize=512)
def _around(path: str) -> tuple[str, ...]:
    """The paths around a path, innermost first."""
    names = path.split("/")
    return tuple("/".join(names[:length]) for length in range(len(names) - 1, 0, -1))
