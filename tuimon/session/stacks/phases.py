"""Samples of a training thread and their phases: by a boundary in the stack, else by the loop's own lines."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence, Set
from functools import lru_cache
from itertools import pairwise
from typing import Literal

from msgspec.structs import replace

from tuimon.code_origin import is_package_file, is_torch
from tuimon.library_code import is_optimizer_module
from tuimon.records import Frame, RangePlace
from tuimon.session.stacks.activity import Activity
from tuimon.session.stacks.beside import Augmentations, EvaluationBlocks, OwnUpdates, Rollouts, is_upkeep
from tuimon.session.stacks.frames import UPDATES, Function, KnownFrame
from tuimon.session.stacks.loop_lines import Branch, LoopLines
from tuimon.session.stacks.order import NEARLY_ALL, LibraryOrder, SeenBoundaries, is_torn, without_returned
from tuimon.session.stacks.samples import Sample
from tuimon.session.stacks.trie import Node, Stack, to_user

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
    seen: SeenBoundaries | None = None,
    ranges: RangeJoin | None = None,
) -> tuple[Sample, ...]:
    """The samples of one training thread with their phases and ranges; ``seen``: what they showed before."""
    sampled = without_torn_updates([Sample(node, n, node.boundary) for node, n in counts.items()])
    phases = _Phases(sampled, facts, seen)
    whole, torn = by_root(sampled)
    in_phases = [phases.of(sample) for sample in whole]
    samples = in_phases + like_whole_ones(torn, in_phases)
    if ranges is None or not ranges.paths:
        return tuple(samples)
    return tuple(replace(sample, ranges=ranges.ranges_of(sample.node.frames)) for sample in samples)


class _Phases:
    """The phase of each sample of a training thread: the first of these that knows it decides."""

    def __init__(self, sampled: Sequence[Sample], facts: Set[Fact], seen: SeenBoundaries | None) -> None:
        self._forward_only = "steps" in facts and "training" not in facts
        self._augmentations = Augmentations(sampled)
        counted = [self._augmentations.without_module(sample) or sample for sample in sampled]
        completed = without_returned(self._completed(counted, seen) if seen is not None else counted)
        self._rollouts = Rollouts([] if self._forward_only else _outlined(completed))
        self._evaluation = EvaluationBlocks(() if "evaluation" in facts else counted, self._rollouts.are_known)
        # those of evaluation show nothing of a step
        completed = [sample for sample in completed if not self._evaluation.holds(sample)]
        outlines = self._without_policies(_outlined(completed))
        self._loop = loop = LoopLines(outlines, "loader" in facts, forward_only=self._forward_only)
        self._library = LibraryOrder(self._without_policies(completed), seen)
        self._own_updates = OwnUpdates(completed, "optimizer" in facts)
        self._fetches = loop.fetches
        self._few = sum(sample.count for sample in counted if sample.phase == "rest") < ENOUGH_SAMPLES
        self._makes_data = loop.is_known and not loop.shows_forward and self._exceeds_forward(counted)

    def _completed(self, counted: Sequence[Sample], seen: SeenBoundaries) -> list[Sample]:
        """These samples, and stacks seen before, or noted by the hooks, of each boundary that none of them shows."""
        joint = without_torn_updates([*counted, *seen.beside(counted)])[len(counted) :]
        kept = [sample for sample in joint if self._augmentations.without_module(sample) is None]
        out = [*counted, *(sample for sample in kept if sample.phase != "rest")]
        shown = {sample.phase for sample in out}
        return out + [sample for sample in seen.noted if sample.phase not in shown]

    def of(self, sample: Sample) -> Sample:
        """A sample in its phase."""
        placed = self._beside_training(sample) or self._in_library(sample)
        if placed is None:
            placed = self._by_lines(sample)
            if placed.phase == "data" and is_upkeep(sample):
                placed = replace(placed, phase="other")
        if placed.phase == "forward" and sample.node.computes_metric:
            moved_from = "forward" if placed.excluded else None  # markers count it as forward there
            placed = replace(placed, phase="other", unsure=False, moved_from=moved_from)
        if placed.phase == "other" and (
            _is_in_optimizer(sample.node.frames) or self._own_updates.holds(sample.node.frames)
        ):
            return replace(placed, phase="optimizer", moved_from="other")
        return placed

    def _branch(self, sample: Sample) -> Branch | None:
        """The place where a sample branches off the path to the backward call."""
        return self._loop.branch_of(sample.node.outline)

    def _without_policies(self, samples: Sequence[Sample]) -> list[Sample]:
        """The samples, those in which a rollout runs its policy outside every boundary: no forward begins there."""
        return [
            sample.at("rest") if sample.phase == "forward" and self._rollouts.holds(sample) else sample
            for sample in samples
        ]

    def _exceeds_forward(self, counted: Sequence[Sample]) -> bool:
        """True if more samples are above backward than a forward pass without modules has beside so many in backward.

        So many: the 95 % bound of a Poisson count.
        """
        loop, above = self._loop, 0
        backward = sum(sample.count for sample in counted if sample.phase == "backward")
        for sample in counted:
            if sample.phase == "rest" and loop.is_above_backward(self._branch(sample)):
                above += 0 if sample.node.activity in _WAITS else sample.count
        return above > _FORWARD_TIMES * (backward + 2.0 * math.sqrt(backward) + 3.0)

    def _beside_training(self, sample: Sample) -> Sample | None:
        """A sample of evaluation, of work after the update, or of what makes data for many steps.

        Markers show none of the evaluation that is found here; they count it as what is around it. A module that a
        library runs between backward and the update is work after it, too. Stepping an environment, or generating,
        after the update is no rollout: a rollout makes the data of the update that follows it. Modules that make the
        batch do so where the loop comes to them before the model.
        """
        boundary, node, library = sample.phase, sample.node, self._library
        is_open = boundary in ("forward", "rest")
        if is_open and self._evaluation.holds(sample):
            return _in("eval", sample, moved_from=self._loop.measured_as(self._branch(sample)))
        if not self._forward_only:
            if library.is_evaluation(sample):
                return _in("eval", sample)
            if is_open and library.is_after_training(node):
                return _in("other", sample, excluded=self._fetches)
        in_closure = sample.node.is_in_closure
        is_update = boundary == "optimizer" and (not in_closure or library.is_after_backward(node))
        if boundary != "backward" and not is_update and self._rollouts.holds(sample):
            as_forward = boundary != "data" and self._fetches and in_closure  # markers count it as forward there
            return _in("data", sample, excluded=as_forward, moved_from="forward" if as_forward else None)
        plain = self._augmentations.without_module(sample)
        found = None if plain is None else self._of_library(plain) or self._by_lines(plain)
        if found is None or found.phase != "data":
            return None
        return _in("data", sample, found.excluded, moved_from="forward" if found.excluded else None)

    def _in_library(self, sample: Sample) -> Sample | None:
        """A sample in what a library that owns the loop calls above backward, or in a closure of an optimizer.

        Outside every module a closure is of the forward pass, as markers count it. The work of the user's code there
        after backward is side work, which they count as the optimizer's.
        """
        library, node, boundary = self._library, sample.node, sample.phase
        found = self._of_library(sample)
        if found is not None:
            return found
        if boundary == "optimizer" and sample.node.is_in_closure:
            if library.is_after_backward(node):
                is_own = any(frame.user for frame in sample.node.closure)
                return _in("other", sample, excluded=True, moved_from="optimizer") if is_own else None
            return _in("forward", sample, excluded=self._loop.is_measured(self._branch(sample)))
        return None

    def _of_library(self, sample: Sample) -> Sample | None:
        """A sample in what makes a batch for a library that owns the loop, or in its code that runs the model.

        The user's code makes it. Beside an optimizer that calls the forward pass and backward, markers count that as
        what is outside the step.
        """
        at_rest = sample.phase == "rest"
        if not at_rest and sample.phase != "optimizer":  # an update may call a closure that trains
            return None
        maker = self._library.made_by(sample.node)
        if maker is None:
            is_forward = at_rest and self._library.is_forward(sample.node)
            return _in("forward", sample, excluded=self._fetches) if is_forward else None
        if self._loop.trains(maker) or self._loop.is_evaluation(self._branch(sample)):
            return None
        if self._fetches and is_package_file(maker[0]):
            return None  # a library's own work around the fetch that markers measure
        if self._fetches:
            return _in("data", sample, True, moved_from=None if sample.node.activity in _COPIES else "forward")
        beside = self._library.trains_in_optimizer and at_rest
        return _in("data", sample, excluded=beside, moved_from="other" if beside else None)

    def _by_lines(self, sample: Sample) -> Sample:
        """The phase by boundary, else by the loop's lines.

        If no forward pass was sampled, what is before backward is forward, but for waits, which are no model's, and
        for what is more than a forward pass can be: that makes the data. Before anything has shown which lines train, a
        wait is outside the model, and nothing else is sure.
        """
        boundary = sample.phase
        if boundary in UPDATES:
            return _in(boundary, sample)
        loop = self._loop
        branch = self._branch(sample)
        if loop.is_evaluation(branch):
            return _in("eval", sample)
        if boundary == "forward":
            phase = boundary if loop.may_be_training(branch) else "other"
            return _in(phase, sample, excluded=loop.is_measured(branch))
        if boundary != "rest":
            return _in(boundary, sample)
        if not loop.is_known:
            return _in("other", sample, unsure=sample.node.activity not in _WAITS)
        if loop.is_in_framework(branch, sample.node.outline.frames):
            return _in("other", sample)
        if loop.is_on_fetch_line(branch):
            return _in("forward", sample, excluded=True)
        found = loop.phase_of(branch)
        if found is None:
            is_data = sample.node.activity in _WAITS or (self._makes_data and loop.is_above_backward(branch))
            return _in("data", sample) if is_data else _in("forward", sample, unsure=self._few)
        measured = loop.is_measured(branch)
        prepares = measured and found == "data" and loop.is_call_beside_training(branch)
        moved_from = "forward" if prepares and sample.node.activity not in _COPIES else None
        return _in(found, sample, excluded=measured, moved_from=moved_from)


def _in(
    phase: str,
    sample: Sample,
    excluded: bool = False,
    unsure: bool = False,
    moved_from: str | None = None,
) -> Sample:
    return Sample(sample.node, sample.count, phase, excluded, unsure, moved_from)


def _outlined(samples: Sequence[Sample]) -> list[Sample]:
    return [sample.at(sample.phase, sample.node.outline) for sample in samples]


def _is_in_optimizer(stack: Stack) -> bool:
    """True if the user's code is in a library's own optimizer."""
    for frame in reversed(stack):
        if frame.user:
            return False
        if is_package_file(frame.file) and not is_torch(frame.file):
            return is_optimizer_module(frame.file)
    return False


# ---- torn stacks: py-spy reads a running process; they are repaired here, or found to be of no phase

_TRAINING_KINDS = ("backward", "optimizer", "module")


def without_torn_updates(samples: Sequence[Sample]) -> list[Sample]:
    """The samples of one thread, those of torn stacks as if they ended at the line that called it, or the user's.

    ``main log``, and then ``main adam``, may come out as ``main log adam``. Taken as it is, ``log`` would be where the
    loop updates its parameters, and no side work. Samples that end at the line show it, as one that calls an update is
    in torch when it is sampled: its own bytecode takes a microsecond. So do those in which it calls something else,
    neither an update nor a model.
    """
    innermost, by_user, called = Counter[KnownFrame](), Counter[KnownFrame](), Counter[KnownFrame]()
    for sample in samples:
        if sample.phase not in UPDATES:
            innermost.update(dict.fromkeys(sample.node.frames[-1:], sample.count))
            continue
        callers = sample.node.before("backward", "optimizer")
        by_user.update(dict.fromkeys(to_user(callers)[-1:], sample.count))
        called.update(dict.fromkeys(callers[-1:], sample.count))
    once, others = {caller for caller, n in called.items() if n == 1}, Counter[KnownFrame]()
    for sample in samples if once else ():
        if sample.phase not in UPDATES:
            for frame, inner in pairwise(sample.node.frames):
                if frame in once and inner.kind not in _TRAINING_KINDS:
                    others[frame] += sample.count
    torn = {caller for caller, n in by_user.items() if is_torn(n, innermost[caller])}
    torn |= {caller for caller, n in others.items() if is_torn(called[caller], n)}
    return [_ended(sample, torn) for sample in samples] if torn else list(samples)


def _ended(sample: Sample, torn: Container[KnownFrame]) -> Sample:
    if sample.phase not in UPDATES:
        return sample
    callers = sample.node.before("backward", "optimizer")
    last = next((frame for frame in (*callers[-1:], *to_user(callers)[-1:]) if frame in torn), None)
    return sample if last is None else sample.at("rest", sample.node.up_to(sample.node.frames.index(last) + 1))


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
