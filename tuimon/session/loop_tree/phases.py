"""Samples of a training thread and their phases: by a boundary in the stack, else by the loop's own lines."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from tuimon.code_origin import is_package_file, is_torch
from tuimon.library_code import is_optimizer_module
from tuimon.session.loop_tree.activity import Activity, activity_of
from tuimon.session.loop_tree.evaluation import EvaluationBlocks, OccasionalBlocks
from tuimon.session.loop_tree.frame_table import FrameTable
from tuimon.session.loop_tree.library_order import LibraryOrder
from tuimon.session.loop_tree.loop_lines import LoopLines
from tuimon.session.loop_tree.loops import Loops
from tuimon.session.loop_tree.made_data import Augmentations, Rollouts
from tuimon.session.loop_tree.model_changes import ModelUpkeep, OwnUpdates
from tuimon.session.loop_tree.order import CountedStack
from tuimon.session.loop_tree.range_join import RangeJoin
from tuimon.session.loop_tree.sample import Sample
from tuimon.session.loop_tree.seen_boundaries import SeenBoundaries
from tuimon.session.loop_tree.stack_phase import stack_phase
from tuimon.session.loop_tree.torn import by_root, like_whole_ones, without_torn_updates

#: With no run of a module among the samples, the user's lines before the backward call are the forward pass themselves
#: (a model without modules) once this many samples are outside every boundary; with fewer they may be data as well. A
#: forward pass in modules that takes 2 % of them has none among 150 in 5 of 100 cases: 0.98**150.
ENOUGH_SAMPLES = 150
#: A forward pass without modules takes at most this many times its backward pass. Measured on a CPU: 0.3 to 0.7 times
#: in matrix products, a convolution, attention, loops over single numbers and an ODE; 1.6 with torch.distributions.
_FORWARD_TIMES = 4.0
#: What a model without modules does not do in its forward pass.
_WAITS: frozenset[Activity] = frozenset({"io", "lock", "sleep"})
#: What brings a batch to the device before the forward pass belongs to it; it may wait there for the GPU's queue.
_COPIES: frozenset[Activity] = frozenset({"sync", "transfer"})


def classify_samples(
    stacks: Mapping[tuple[int, ...], int],
    frames: FrameTable,
    join: RangeJoin | None = None,
    has_loader: bool = False,
    seen: SeenBoundaries | None = None,
    occasional: OccasionalBlocks | None = None,
    has_optimizer: bool = False,
) -> list[Sample]:
    """The samples of one training thread (stack of frame ids, root first -> count) with their phases and ranges.

    ``has_loader``: whether markers show that it fetches from a DataLoader; ``seen``: what its samples showed before;
    ``occasional``: which blocks of code run in few steps; ``has_optimizer``: whether markers show an optimizer.
    """
    sampled = [CountedStack(stack, n, stack_phase([frames.kind(id_) for id_ in stack])) for stack, n in stacks.items()]
    sampled = without_torn_updates(sampled, frames)
    augmentations = Augmentations(sampled, frames)
    counted = [augmentations.without_module(sample) or sample for sample in sampled]
    rollouts = Rollouts(_outlines(counted, frames), frames)
    evaluation = EvaluationBlocks(counted, frames, occasional or OccasionalBlocks(), rollouts.are_known)
    completed = counted if seen is None else seen.completed(counted)
    completed = [sample for sample in completed if not evaluation.holds(sample.stack)]  # they show nothing of a step
    loops = Loops(_without_policies(_outlines(completed, frames), rollouts), frames, has_loader)
    library = LibraryOrder(_without_policies(completed, rollouts), frames, seen)
    loop = loops.main
    makes_data = loop.is_known and not loop.shows_forward and _exceeds_forward(counted, loop, frames)
    own_updates = OwnUpdates(completed, frames, has_optimizer)
    upkeep = ModelUpkeep(completed, frames)
    too_few = sum(sample.times for sample in counted if sample.boundary == "rest") < ENOUGH_SAMPLES
    whole, torn = by_root(sampled, frames)
    samples = [
        _of_side_work(
            _evaluates(sample, evaluation, loops, frames)
            or _after_training(sample, loops, library, frames)
            or _in_rollout(sample, rollouts, loops, library, frames)
            or _of_augmentation(sample, augmentations, loops, library, too_few, makes_data, frames)
            or _of_library(sample, loops, library, frames)
            or _in_closure(sample, loops, library, frames)
            or _of_handler(sample, loops, library)
            or upkeep.relabeled(_by_lines(sample, loops, too_few, makes_data, frames)),
            own_updates,
            frames,
        )
        for sample in whole
    ]
    samples += like_whole_ones(torn, samples, frames)
    if join is None or not join.paths:
        return samples
    return [replace(sample, ranges=join.ranges_of(sample.stack, frames)) for sample in samples]


def _outlines(samples: Sequence[CountedStack], frames: FrameTable) -> list[CountedStack]:
    return [sample._replace(stack=tuple(frames.outline(sample.stack))) for sample in samples]


def _without_policies(samples: Sequence[CountedStack], rollouts: Rollouts) -> list[CountedStack]:
    """The samples, those in which a rollout runs its policy as outside every boundary: no forward pass begins there."""
    return [
        sample._replace(boundary="rest") if sample.boundary == "forward" and rollouts.holds(sample.stack) else sample
        for sample in samples
    ]


def _evaluates(sample: CountedStack, evaluation: EvaluationBlocks, loops: Loops, frames: FrameTable) -> Sample | None:
    """A sample of evaluation that no marker shows: markers count it as what is around it; None where it is none."""
    if sample.boundary not in ("forward", "rest") or not evaluation.holds(sample.stack):
        return None
    outline = frames.outline(sample.stack)
    loop = loops.of(outline)
    around = loop.measured_as(loop.branch_of(loop.aligned(outline)))
    return Sample(list(sample.stack), sample.times, "eval", moved_from=around)


def _in_rollout(
    sample: CountedStack, rollouts: Rollouts, loops: Loops, library: LibraryOrder, frames: FrameTable
) -> Sample | None:
    """A sample of a rollout, which makes the data; None if it is none.

    Where a closure is fetched for by a DataLoader, markers count what it does before backward as forward.
    """
    stack, count, boundary = sample
    if boundary == "backward" or not rollouts.holds(stack):
        return None
    if boundary == "optimizer" and (not frames.is_in_closure(stack) or library.is_after_backward(stack)):
        return None
    as_forward = boundary != "data" and loops.main.fetches and frames.is_in_closure(stack)
    return Sample(list(stack), count, "data", excluded=as_forward, moved_from="forward" if as_forward else None)


def _of_augmentation(
    sample: CountedStack,
    augmentations: Augmentations,
    loops: Loops,
    library: LibraryOrder,
    too_few: bool,
    makes_data: bool,
    frames: FrameTable,
) -> Sample | None:
    """A sample of a module that makes the batch, where the loop comes to it before the model; None if it is none."""
    plain = augmentations.without_module(sample)
    if plain is None:
        return None
    found = _of_library(plain, loops, library, frames) or _by_lines(plain, loops, too_few, makes_data, frames)
    if found.phase != "data":
        return None
    return replace(found, stack=list(sample.stack), moved_from="forward" if found.excluded else None)


def _after_training(sample: CountedStack, loops: Loops, library: LibraryOrder, frames: FrameTable) -> Sample | None:
    """The sample as evaluation or as work after the update, if a library that owns the loop runs it then; else None.

    A module that the library runs between backward and the update counts as such work too. Stepping an environment, or
    generating, after the update is no rollout: a rollout makes the data of the update that follows it.
    """
    if library.is_evaluation(sample):
        return Sample(list(sample.stack), sample.times, "eval")
    if sample.boundary in ("forward", "rest") and library.is_after_training(sample.stack):
        fetches = loops.of(frames.outline(sample.stack)).fetches
        return Sample(list(sample.stack), sample.times, "other", excluded=fetches)
    if sample.boundary == "forward" and library.is_run_after_backward(sample.stack):
        measured_as = "optimizer" if frames.is_in_closure(sample.stack) else None
        return Sample(list(sample.stack), sample.times, "other", excluded=True, moved_from=measured_as)
    return None


def _of_library(sample: CountedStack, loops: Loops, library: LibraryOrder, frames: FrameTable) -> Sample | None:
    """A sample in what makes a batch for a library that owns the loop, or in the library's code that runs the model.

    The user's code makes it, or other processes do, for which the library waits where it fetches from no DataLoader.
    """
    outside = sample.boundary in ("rest", "optimizer")  # it may call a closure that trains
    maker = library.made_by(sample.stack) if outside else None
    if maker is None:
        if sample.boundary == "rest" and library.is_forward(sample.stack):
            return Sample(list(sample.stack), sample.times, "forward", excluded=loops.main.fetches)
        if sample.boundary == "rest" and not loops.main.fetches and library.awaits_batch(sample.stack):
            return _made_unfetched(sample, library)
        return None
    outline = frames.outline(sample.stack)
    loop = loops.of(outline)
    if loop.trains(maker) or loop.is_evaluation(loop.branch_of(loop.aligned(outline))):
        return None
    if loop.fetches and is_package_file(maker[0]):
        return None  # a library's own work around the fetch that markers measure
    if not loop.fetches:
        return _made_unfetched(sample, library)
    moves = _activity(sample.stack, frames) not in _COPIES
    return Sample(list(sample.stack), sample.times, "data", excluded=True, moved_from="forward" if moves else None)


def _made_unfetched(sample: CountedStack, library: LibraryOrder) -> Sample:
    """A sample of what makes the batch in a library's loop that fetches none.

    Beside an optimizer that calls the forward pass and backward, markers count it as what is outside the step.
    """
    beside = library.trains_in_optimizer and sample.boundary == "rest"
    return Sample(list(sample.stack), sample.times, "data", excluded=beside, moved_from="other" if beside else None)


def _of_handler(sample: CountedStack, loops: Loops, library: LibraryOrder) -> Sample | None:
    """A sample of a handler above backward; None if it is none. Before the model it may come before the fetch, too."""
    if sample.boundary != "rest":
        return None
    stack, as_forward = list(sample.stack), "forward" if loops.main.fetches else None
    if library.handles_before_model(sample.stack):
        return Sample(stack, sample.times, "other", maybe_from=as_forward)
    if library.handles_before_backward(sample.stack):
        return Sample(stack, sample.times, "other", excluded=loops.main.fetches, moved_from=as_forward)
    return None


def _in_closure(sample: CountedStack, loops: Loops, library: LibraryOrder, frames: FrameTable) -> Sample | None:
    """A sample outside every module in a closure that an optimizer calls; None if it is none.

    It is of the forward pass, as markers count it. What the user's code does there after backward is side work, which
    they count as the optimizer's.
    """
    stack = sample.stack
    if sample.boundary != "optimizer" or not frames.is_in_closure(stack):
        return None
    if library.is_after_backward(stack):
        is_own = frames.calls_user_in_closure(stack)
        return Sample(list(stack), sample.times, "other", excluded=True, moved_from="optimizer") if is_own else None
    outline = frames.outline(stack)
    loop = loops.of(outline)
    excluded = loop.is_measured(loop.branch_of(loop.aligned(outline)))
    return Sample(list(stack), sample.times, "forward", excluded=excluded)


def _exceeds_forward(counted: Sequence[CountedStack], loop: LoopLines, frames: FrameTable) -> bool:
    """True if more samples are above backward than a forward pass without modules has beside so many in backward.

    So many: the 95 % bound of a Poisson count.
    """
    backward = sum(sample.times for sample in counted if sample.boundary == "backward")
    above = sum(
        sample.times
        for sample in counted
        if sample.boundary == "rest"
        and loop.is_above_backward(loop.branch_of(loop.aligned(frames.outline(sample.stack))))
        and not _waits(sample.stack, frames)
    )
    return above > _FORWARD_TIMES * (backward + 2.0 * math.sqrt(backward) + 3.0)


def _by_lines(sample: CountedStack, loops: Loops, too_few: bool, makes_data: bool, frames: FrameTable) -> Sample:
    """The phase by boundary, else by the loop's lines.

    Where no forward pass was sampled, what is before backward is forward, but for waits, which are no model's, and for
    what is more than a forward pass can be: that makes the data. Before anything has shown which lines train, a wait
    is outside the model, and nothing else is sure.
    """
    stack, count, boundary = sample
    if boundary == "optimizer" or (boundary == "backward" and not frames.returns_gradients(stack)):
        return Sample(list(stack), count, boundary)
    outline = frames.outline(stack)
    loop = loops.of(outline)
    outline = loop.aligned(outline)
    branch = loop.branch_of(outline)
    if loop.is_evaluation(branch):
        return Sample(list(stack), count, "eval")
    if boundary == "backward":
        if loop.may_be_training(branch):
            return Sample(list(stack), count, boundary)
        return Sample(list(stack), count, "other", excluded=True, moved_from=boundary)
    if boundary == "forward" and not loop.may_be_training(branch):
        return Sample(list(stack), count, "other", excluded=loop.is_measured(branch))
    if boundary != "rest":
        return Sample(list(stack), count, boundary, excluded=boundary == "forward" and loop.is_measured(branch))
    if not loop.is_known:
        return Sample(list(stack), count, "other", unsure=not _waits(stack, frames))
    if loop.is_in_framework(branch, outline):
        return Sample(list(stack), count, "other")
    if loop.is_on_fetch_line(branch):
        return Sample(list(stack), count, "forward", excluded=True)
    phase = loop.phase_of(branch, outline)
    if phase is None and (_waits(stack, frames) or (makes_data and loop.is_above_backward(branch))):
        return Sample(list(stack), count, "data")
    if phase is None:
        return Sample(list(stack), count, "forward", unsure=too_few)
    excluded = loop.is_measured(branch)
    prepares = excluded and phase == "data" and loop.is_call_beside_training(branch)
    moved_from = "forward" if prepares and _activity(stack, frames) not in _COPIES else None
    return Sample(list(stack), count, phase, excluded, moved_from=moved_from)


def _of_side_work(sample: Sample, own_updates: OwnUpdates, frames: FrameTable) -> Sample:
    """A metric in the forward pass is side work; what is in an optimizer that calls no hook is none."""
    return _of_update(_of_metric(sample, frames), own_updates, frames)


def _of_metric(sample: Sample, frames: FrameTable) -> Sample:
    """A sample of a metric between the fetch and backward is no forward pass, though markers count it as one."""
    if sample.phase != "forward" or not frames.computes_metric(sample.stack):
        return sample
    return replace(sample, phase="other", unsure=False, moved_from="forward" if sample.excluded else None)


def _of_update(sample: Sample, own_updates: OwnUpdates, frames: FrameTable) -> Sample:
    """The sample; in an update that calls no hook, a library's or the program's own, side work is the update."""
    if sample.phase == "other" and (_is_in_optimizer(sample.stack, frames) or own_updates.holds(sample.stack)):
        return replace(sample, phase="optimizer", moved_from="other")
    return sample


def _is_in_optimizer(stack: Sequence[int], frames: FrameTable) -> bool:
    """True if the user's code is in a library's own optimizer."""
    for number in reversed(stack):
        frame = frames[number]
        if frame.user:
            return False
        if is_package_file(frame.file) and not is_torch(frame.file):
            return is_optimizer_module(frame.file)
    return False


def _waits(stack: Sequence[int], frames: FrameTable) -> bool:
    return _activity(stack, frames) in _WAITS


def _activity(stack: Sequence[int], frames: FrameTable) -> Activity:
    return activity_of([frames[number] for number in stack])
