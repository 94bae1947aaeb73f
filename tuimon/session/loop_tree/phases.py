"""Samples of a training thread and their phases: by a boundary in the stack, else by the loop's own lines."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from tuimon.code_origin import is_package_file, is_torch
from tuimon.library_code import is_optimizer_module
from tuimon.session.loop_tree.activity import Activity
from tuimon.session.loop_tree.evaluation import EvaluationBlocks
from tuimon.session.loop_tree.frame_table import FrameTable
from tuimon.session.loop_tree.library_order import LibraryOrder
from tuimon.session.loop_tree.loop_lines import LoopLines
from tuimon.session.loop_tree.made_data import Augmentations, Rollouts
from tuimon.session.loop_tree.model_changes import OwnUpdates, is_upkeep
from tuimon.session.loop_tree.order import without_returned
from tuimon.session.loop_tree.range_join import RangeJoin
from tuimon.session.loop_tree.seen_boundaries import SeenBoundaries
from tuimon.session.loop_tree.stacks import UPDATES, Stack, StackSample
from tuimon.session.loop_tree.torn import by_root, like_whole_ones, without_torn_updates

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


def classify_samples(
    stacks: Mapping[tuple[int, ...], int],
    frames: FrameTable,
    join: RangeJoin | None = None,
    has_loader: bool = False,
    seen: SeenBoundaries | None = None,
    has_optimizer: bool = False,
    forward_only: bool = False,
    marks_evaluation: bool = False,
) -> list[StackSample]:
    """The samples of one training thread (stack of frame ids, root first -> count) with their phases and ranges.

    ``has_loader``: whether markers show that it fetches from a DataLoader; ``seen``: what its samples showed before;
    ``has_optimizer``: whether markers show an optimizer; ``forward_only``: whether they show steps, none with a
    backward or an update; ``marks_evaluation``: whether they show evaluation.
    """
    sampled = without_torn_updates([StackSample.unplaced(frames.stack(ids), n) for ids, n in stacks.items()])
    phases = _Phases(sampled, has_loader, seen, has_optimizer, forward_only, marks_evaluation)
    whole, torn = by_root(sampled)
    placed = [phases.of(sample) for sample in whole]
    samples = placed + like_whole_ones(torn, placed)
    if join is None or not join.paths:
        return samples
    return [replace(sample, ranges=join.ranges_of(sample.frames)) for sample in samples]


class _Phases:
    """The phase of each sample of a training thread: the first of these that knows it decides."""

    def __init__(
        self,
        sampled: Sequence[StackSample],
        has_loader: bool,
        seen: SeenBoundaries | None,
        has_optimizer: bool,
        forward_only: bool,
        marks_evaluation: bool,
    ) -> None:
        self._augmentations = Augmentations(sampled)
        counted = [self._augmentations.without_module(sample) or sample for sample in sampled]
        self._forward_only = forward_only
        completed = without_returned(counted if seen is None else seen.completed(counted))
        self._rollouts = Rollouts([] if forward_only else [sample.outlined for sample in completed])
        self._evaluation = EvaluationBlocks(() if marks_evaluation else counted, self._rollouts.are_known)
        completed = [
            sample for sample in completed if not self._evaluation.holds(sample)
        ]  # they show nothing of a step
        outlines = self._without_policies([sample.outlined for sample in completed])
        self._loop = loop = LoopLines(outlines, has_loader, forward_only=forward_only)
        self._library = LibraryOrder(self._without_policies(completed), seen)
        self._own_updates = OwnUpdates(completed, has_optimizer)
        self._fetches = loop.fetches
        self._few = sum(sample.count for sample in counted if sample.phase == "rest") < ENOUGH_SAMPLES
        self._makes_data = loop.is_known and not loop.shows_forward and self._exceeds_forward(counted)

    def of(self, sample: StackSample) -> StackSample:
        """A sample in its phase."""
        placed = self._beside_training(sample) or self._in_library(sample)
        if placed is None:
            placed = self._by_lines(sample)
            if placed.phase == "data" and is_upkeep(sample):
                placed = replace(placed, phase="other")
        if placed.phase == "forward" and sample.computes_metric:
            moved_from = "forward" if placed.excluded else None  # markers count it as forward there
            placed = replace(placed, phase="other", unsure=False, moved_from=moved_from)
        if placed.phase == "other" and (_is_in_optimizer(sample.frames) or self._own_updates.holds(sample.frames)):
            return replace(placed, phase="optimizer", moved_from="other")
        return placed

    def _without_policies(self, samples: Sequence[StackSample]) -> list[StackSample]:
        """The samples, those in which a rollout runs its policy outside every boundary: no forward begins there."""
        return [
            sample.at("rest") if sample.phase == "forward" and self._rollouts.holds(sample) else sample
            for sample in samples
        ]

    def _exceeds_forward(self, counted: Sequence[StackSample]) -> bool:
        """True if more samples are above backward than a forward pass without modules has beside so many in backward.

        So many: the 95 % bound of a Poisson count.
        """
        loop, above = self._loop, 0
        backward = sum(sample.count for sample in counted if sample.phase == "backward")
        for sample in counted:
            if sample.phase == "rest" and loop.is_above_backward(loop.branch_of(sample.outline)):
                above += 0 if sample.activity in _WAITS else sample.count
        return above > _FORWARD_TIMES * (backward + 2.0 * math.sqrt(backward) + 3.0)

    def _beside_training(self, sample: StackSample) -> StackSample | None:
        """A sample of evaluation, of work after the update, or of what makes data for many steps.

        Markers show none of the evaluation that is found here; they count it as what is around it. A module that a
        library runs between backward and the update is work after it, too. Stepping an environment, or generating,
        after the update is no rollout: a rollout makes the data of the update that follows it. Modules that make the
        batch do so where the loop comes to them before the model.
        """
        boundary, stack, library = sample.phase, sample.frames, self._library
        is_open = boundary in ("forward", "rest")
        if is_open and self._evaluation.holds(sample):
            return _in("eval", sample, moved_from=self._loop.measured_as(self._loop.branch_of(sample.outline)))
        if not self._forward_only:
            if library.is_evaluation(sample):
                return _in("eval", sample)
            if is_open and library.is_after_training(stack):
                return _in("other", sample, excluded=self._fetches)
        in_closure = sample.is_in_closure
        is_update = boundary == "optimizer" and (not in_closure or library.is_after_backward(stack))
        if boundary != "backward" and not is_update and self._rollouts.holds(sample):
            as_forward = boundary != "data" and self._fetches and in_closure  # markers count it as forward there
            return _in("data", sample, excluded=as_forward, moved_from="forward" if as_forward else None)
        plain = self._augmentations.without_module(sample)
        found = None if plain is None else self._of_library(plain) or self._by_lines(plain)
        if found is None or found.phase != "data":
            return None
        return _in("data", sample, found.excluded, moved_from="forward" if found.excluded else None)

    def _in_library(self, sample: StackSample) -> StackSample | None:
        """A sample in what a library that owns the loop calls above backward, or in a closure of an optimizer.

        Outside every module a closure is of the forward pass, as markers count it. The work of the user's code there
        after backward is side work, which they count as the optimizer's.
        """
        library, stack, boundary = self._library, sample.frames, sample.phase
        found = self._of_library(sample)
        if found is not None:
            return found
        if boundary == "optimizer" and sample.is_in_closure:
            if library.is_after_backward(stack):
                is_own = any(frame.user for frame in sample.closure)
                return _in("other", sample, excluded=True, moved_from="optimizer") if is_own else None
            return _in("forward", sample, excluded=self._loop.is_measured(self._loop.branch_of(sample.outline)))
        return None

    def _of_library(self, sample: StackSample) -> StackSample | None:
        """A sample in what makes a batch for a library that owns the loop, or in its code that runs the model.

        The user's code makes it. Beside an optimizer that calls the forward pass and backward, markers count that as
        what is outside the step.
        """
        at_rest = sample.phase == "rest"
        if not at_rest and sample.phase != "optimizer":  # an update may call a closure that trains
            return None
        maker = self._library.made_by(sample.frames)
        if maker is None:
            is_forward = at_rest and self._library.is_forward(sample.frames)
            return _in("forward", sample, excluded=self._fetches) if is_forward else None
        if self._loop.trains(maker) or self._loop.is_evaluation(self._loop.branch_of(sample.outline)):
            return None
        if self._fetches and is_package_file(maker[0]):
            return None  # a library's own work around the fetch that markers measure
        if self._fetches:
            return _in("data", sample, True, moved_from=None if sample.activity in _COPIES else "forward")
        beside = self._library.trains_in_optimizer and at_rest
        return _in("data", sample, excluded=beside, moved_from="other" if beside else None)

    def _by_lines(self, sample: StackSample) -> StackSample:
        """The phase by boundary, else by the loop's lines.

        If no forward pass was sampled, what is before backward is forward, but for waits, which are no model's, and
        for what is more than a forward pass can be: that makes the data. Before anything has shown which lines train, a
        wait is outside the model, and nothing else is sure.
        """
        boundary = sample.phase
        if boundary in UPDATES:
            return _in(boundary, sample)
        loop = self._loop
        branch = loop.branch_of(sample.outline)
        if loop.is_evaluation(branch):
            return _in("eval", sample)
        if boundary == "forward":
            phase = boundary if loop.may_be_training(branch) else "other"
            return _in(phase, sample, excluded=loop.is_measured(branch))
        if boundary != "rest":
            return _in(boundary, sample)
        if not loop.is_known:
            return _in("other", sample, unsure=sample.activity not in _WAITS)
        if loop.is_in_framework(branch, sample.outline):
            return _in("other", sample)
        if loop.is_on_fetch_line(branch):
            return _in("forward", sample, excluded=True)
        found = loop.phase_of(branch)
        if found is None:
            is_data = sample.activity in _WAITS or (self._makes_data and loop.is_above_backward(branch))
            return _in("data", sample) if is_data else _in("forward", sample, unsure=self._few)
        measured = loop.is_measured(branch)
        prepares = measured and found == "data" and loop.is_call_beside_training(branch)
        moved_from = "forward" if prepares and sample.activity not in _COPIES else None
        return _in(found, sample, excluded=measured, moved_from=moved_from)


def _in(
    phase: str,
    sample: StackSample,
    excluded: bool = False,
    unsure: bool = False,
    moved_from: str | None = None,
) -> StackSample:
    return StackSample(sample.frames, sample.count, phase, excluded, unsure, moved_from)


def _is_in_optimizer(stack: Stack) -> bool:
    """True if the user's code is in a library's own optimizer."""
    for frame in reversed(stack):
        if frame.user:
            return False
        if is_package_file(frame.file) and not is_torch(frame.file):
            return is_optimizer_module(frame.file)
    return False
