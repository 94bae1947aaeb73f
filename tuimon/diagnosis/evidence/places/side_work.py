"""Which function evaluates or does side work, judged by where samples leave the path of training."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container
from typing import Literal

from tuimon.diagnosis.evidence.lines import HotFunction, hottest_place
from tuimon.diagnosis.evidence.places.libraries import in_library, is_library, library_frame, with_library
from tuimon.diagnosis.evidence.samples import ThreadSamples, with_callees
from tuimon.diagnosis.threshold import MOST
from tuimon.records import Frame, Place
from tuimon.session.loop_tree.frame_table import Function
from tuimon.session.loop_tree.roles import Role
from tuimon.session.loop_tree.stacks import Stack, StackSample, function_at, without_imports

#: Phases in which nothing but training runs: the functions that their samples pass through are the path of training.
_TRAINING = ("backward", "optimizer")
#: The part of a function's samples in side work that has to be seen in the forward pass for it to be the model's: our
#: choice.
_SHARED_PART = 0.25
#: A line that does nothing but read a clock, as a limit on the time does: what samples show there is not its work.
_CLOCK, _CALL = re.compile(r"\b(?:time\.)?(?:time|monotonic|perf_counter)(?:_ns)?\(\)"), re.compile(r"[\w\])]\(")
#: The kinds of side work, by the role of the frames that do it: a checkpoint may be saved to another machine.
SideWorkKind = Literal["checkpoint", "network"]
_KINDS: tuple[tuple[Role, SideWorkKind], ...] = (("saves", "checkpoint"), ("network", "network"))
#: A line of code: its file and number.
_Line = tuple[str, int]
#: Calls that training makes at every update beside the optimizer's step: nobody can make them less often. A function of
#: the user's has frames of its own.
_OF_UPDATE = re.compile(
    r"\b(?:(?:aggregate|all_?reduce|average|centrali[sz]e|clip|combine|jac_to|normali[sz]e|project|reduce|scale|sync|zero)_?"
    r"\w*grad\w*|unscale_)\s*\("
)


def evaluation_function(samples: ThreadSamples) -> HotFunction | None:
    """The user's function off the path of training that most samples pass through; None without such samples.

    A sample's function here is the user's innermost one before torch is entered: a module's own ``forward`` is called
    by training and evaluation alike. If a function that trains evaluates itself, by most of the samples of that, it
    is that function, at its line.
    """
    off = _off_training(samples)
    own = [sample for sample in without_imports(samples.stacks) if sample.phase == "eval"]
    beside = sum(sample.count for sample in off if sample.phase == "eval")
    chosen = own if 2 * beside < sum(sample.count for sample in own) else off
    placed = [(_place(sample.user_path), sample.count) for sample in chosen if sample.user_path]
    return with_library(hottest_place(placed), samples, "eval")


def evaluation_beside_model(samples: ThreadSamples) -> HotFunction | None:
    """The user's function that most samples of evaluation pass through outside the model, such as a metric or a plot.

    The model is modules, and what the forward pass of training calls besides; a module that calls functions of the
    user's which training never calls is a metric's. The own work of functions that run modules to evaluate counts
    as the model's cost. The share is of all samples.
    """
    model = _model_functions(samples)
    running = [sample for sample in samples.stacks if sample.phase == "eval" and sample.passes("module")]
    evaluators = {frame.code for sample in running for frame in sample.user_path}
    off = set(map(id, _off_training(samples)))

    def beside_model(sample: StackSample) -> Stack:
        if sample.phase not in ("eval", "other"):
            return ()
        if sample.passes("module"):
            return _in_modules(sample)
        if id(sample) not in off or sample.phase == "other":
            return sample.user_path if id(sample) in off else ()
        called = evaluators and sample.user_path[-1].code not in evaluators
        return sample.user_path if called and not sample.passes("fetch") else ()

    framed = ((beside_model(sample), sample.count) for sample in samples.stacks)
    return hottest_place(
        (_place(frames) if model.isdisjoint(frame.code for frame in frames) else None, count)
        for frames, count in framed
    )


def _model_functions(samples: ThreadSamples) -> set[Function]:
    """The user's functions that only the forward pass of training goes through."""
    return set().union(*(each.functions for each in samples.in_phase("forward").stacks)) - update_path(samples)


def _in_modules(sample: StackSample) -> Stack:
    """The user's frames that modules call."""
    called = sample.frames[len(sample.before("module")) :]
    return tuple(frame for frame in called if frame.user)


def _in_metric(sample: StackSample, model: Container[Function]) -> Stack:
    """The user's frames that a library's module calls, if training never does, as a metric's; else none."""
    frames = _in_modules(sample)
    if not frames or any(frame.code in model for frame in frames):
        return ()
    return frames if is_library(sample.frames[sample.frames.index(frames[0]) - 1]) else ()


def _off_training(samples: ThreadSamples) -> list[StackSample]:
    """Samples whose innermost function of the user's before torch training never passes through."""
    path, known = update_path(samples), without_imports(samples.stacks)
    apart = (sample for sample in known if sample.phase not in _TRAINING and sample.user_path)
    return [sample for sample in apart if sample.user_path[-1].code not in path]


def update_path(samples: ThreadSamples) -> set[Function]:
    """The user's functions that lead to backward and to the update.

    An evaluation that takes gradients, before anything trains, looks like training: a function that leads to
    evaluation more often is none of them, unless most of training passes through it. That is who calls both.
    """
    training, evaluation = Counter[Function](), Counter[Function]()
    for sample in samples.stacks:
        if sample.phase in _TRAINING or sample.phase == "eval":
            counts = training if sample.phase in _TRAINING else evaluation
            counts.update(dict.fromkeys((frame.code for frame in sample.user_path), sample.count))
    most = samples.in_phases(_TRAINING).total / 2
    return {own for own, count in training.items() if count > min(evaluation[own], most)}


def side_function(samples: ThreadSamples) -> HotFunction | None:
    """The user's function with most side work, at the line before torch is entered; None without samples.

    A line within the model would name what training calls as well: then it is the one that calls the model. A metric's
    is named, though it is a module. For a line that a library's loop is below, as in ``trainer.train()``, only
    the function that is named with it counts.
    """
    update = _Update(samples)
    apart = (each for each in without_imports(samples.stacks) if each.phase == "other" and each.activity != "ranks")
    side = ThreadSamples(tuple(each for each in apart if not update.holds(each)))
    model, called = _shared_with_model(samples, side), _model_functions(samples)
    framed = [(_in_metric(each, called) or _outside(model, each.user_path), each.count) for each in side.stacks]
    placed = [(_place(frames), count) for frames, count in framed]
    hot = _side_place(placed, side, samples)
    if hot is None or hot.library is None:
        return hot
    inside = (hot.place.file, hot.place.function)
    beside = [(p if p is not None and (p.file, p.function) != inside else None, count) for p, count in placed]
    other = _side_place(beside, side, samples)
    return other if other is not None and other.samples > hot.samples else hot


def _side_place(
    placed: list[tuple[Place | None, int]], side: ThreadSamples, samples: ThreadSamples
) -> HotFunction | None:
    """The hottest of these places, with what it calls, or with the library's function below it."""
    hot = with_callees(hottest_place(placed), side, samples.training_path)
    known = ThreadSamples((*side.stacks, *samples.in_phase("backward").stacks))
    return in_library(with_library(hot, known, "other"), side)


def _shared_with_model(samples: ThreadSamples, side: ThreadSamples) -> set[Function]:
    """The model's functions that side work calls, too; a few samples of side work may look as if they were forward."""
    in_model, beside = samples.in_phase("forward").through, side.through
    return {own for own in _model_functions(samples) if in_model[own] >= _SHARED_PART * beside[own]}


def _outside(model: Container[Function], frames: Stack) -> Stack:
    """The frames without the innermost ones of these functions, but always with the outermost of all."""
    end = len(frames)
    while end > 1 and frames[end - 1].code in model:
        end -= 1
    return frames[:end]


class _Update:
    """The stacks that belong to each update beside the optimizer's step."""

    def __init__(self, samples: ThreadSamples) -> None:
        in_backward, in_optimizer = samples.in_phase("backward").stacks, samples.in_phase("optimizer").stacks
        fetching = (sample for sample in samples.in_phase("data").stacks if sample.passes("fetch"))
        # lines that lead to the optimizer's step alone, where Opacus clips and adds noise before torch's own;
        # ``trainer.fit(model)`` is the line of backward as well
        self._lines = {_line(f) for each in in_optimizer for f in each.user_path[-1:]}
        self._lines -= {_line(f) for each in in_backward for f in each.user_path}
        #: The functions of a library that owns the loop.
        self._functions = {
            f.code for each in (*in_backward, *in_optimizer) for f in each.outside_torch if is_library(f)
        }
        self._fetching = {_line(f) for each in fetching for f in each.outside_torch[-1:]}

    def holds(self, sample: StackSample) -> bool:
        """True if a sample is of it: on such a line, or in a library's function that leads to backward and the step.

        Nobody can make ``Trainer.train()`` do less often what it does around each update, such as asking the schedule
        for the learning rate. Its other calls, such as a logger, are side work. A line that fetches a batch
        frees the one before, when its name gets the new one.
        """
        if any(_line(frame) in self._fetching for frame in sample.frames[-1:]):
            return True
        if any(_line(f) in self._lines or _OF_UPDATE.search(f.source) for f in sample.user_path[-1:]):
            return True
        library = library_frame(sample)
        return library is not None and (library.file, library.function) in self._functions


def _line(frame: Frame | Place) -> _Line:
    return frame.file, frame.line


def update_share(samples: ThreadSamples) -> float:
    """Share (0..1) of the side work's samples that belong to every update, such as clipping gradients."""
    update = _Update(samples)
    return samples.in_phase("other").part_where(update.holds)


def model_share(samples: ThreadSamples) -> float:
    """Share (0..1) of the side work's samples that run the model: evaluation that no marker separates from it.

    A metric of torchmetrics, or of the user's, is a module, and no model.
    """
    called = _model_functions(samples)
    return samples.in_phase("other").part_where(
        lambda each: each.passes("module") and not each.computes_metric and not _in_metric(each, called)
    )


def kind_of_work(samples: ThreadSamples, hot: HotFunction) -> SideWorkKind | None:
    """The kind of work that most samples of side work at a line show."""
    line = _line(hot.library or hot.place)
    at_line = [each for each in samples.in_phase("other").stacks if any(_line(frame) == line for frame in each.frames)]
    least = MOST * sum(each.count for each in at_line)
    return next(
        (kind for role, kind in _KINDS if least and sum(each.count for each in at_line if each.has(role)) >= least),
        None,
    )


def _place(frames: Stack) -> Place | None:
    """The place of the innermost frame; None without any, or where the line has nothing to save."""
    if not frames or _reads_clock(frames[-1].source):
        return None
    return Place(frames[-1].file, frames[-1].line, function_at(frames), frames[-1].source)


def _reads_clock(source: str) -> bool:
    rest, reads = _CLOCK.subn("0", source)
    return reads > 0 and _CALL.search(rest) is None
