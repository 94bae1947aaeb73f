"""Which function evaluates or does side work, judged by where samples leave the path of training."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterator, Sequence

from msgspec import Struct

from tuimon.diagnosis.evidence.lines import HotFunction, hottest_place
from tuimon.diagnosis.evidence.places.libraries import in_library, is_library, library_frame, with_library
from tuimon.diagnosis.evidence.samples import ThreadSamples, with_callees
from tuimon.records import Frame, Place
from tuimon.session.loop_tree.stacks import StackSample, function_at, without_imports

#: Phases in which nothing but training runs: the functions that their samples pass through are the path of training.
_TRAINING = ("backward", "optimizer")
#: Of the samples of a function in side work, the part that has to be seen in the forward pass for it to be the model's:
#: our choice.
_SHARED_PART = 0.25
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
    by training and evaluation alike. Where a function that trains evaluates itself, by most of the samples of that, it
    is that function, at its line.
    """
    off = list(_off_training(samples))
    placed = [(_place(frames), sample.count) for sample, frames in off]
    own = [sample for sample in without_imports(samples.stacks) if sample.phase == "eval"]
    beside = sum(sample.count for sample, _ in off if sample.phase == "eval")
    if 2 * beside < sum(sample.count for sample in own):
        placed = [(_place(frames), sample.count) for sample in own if (frames := _before_torch(sample))]
    return with_library(hottest_place(placed), samples, "eval")


def evaluation_beside_model(samples: ThreadSamples) -> HotFunction | None:
    """The user's function that most samples of evaluation pass through outside the model, such as a metric or a plot.

    The model is modules, and what the forward pass of training calls besides; a module that calls functions of the
    user's which training never calls is a metric's. The share is of all samples.
    """
    model = _model_functions(samples)
    evaluators = _evaluators(samples)
    off = {id(sample): frames for sample, frames in _off_training(samples)}
    placed: list[tuple[Place | None, int]] = []
    for sample in samples.stacks:
        frames = off.get(id(sample), []) if sample.phase in ("eval", "other") else []
        if "module" in sample.kinds:
            frames = _in_modules(sample) if sample.phase in ("eval", "other") else []
        elif sample.phase == "eval" and frames:
            called = evaluators and _function(frames[-1]) not in evaluators
            frames = frames if called and "fetch" not in sample.kinds else []
        beside = frames and model.isdisjoint(map(_function, frames))
        placed.append((_place(frames) if beside else None, sample.count))
    return hottest_place(placed)


def _model_functions(samples: ThreadSamples) -> set[tuple[str, str]]:
    """The user's functions, by file and name, that only the forward pass of training goes through."""
    forward = (sample.frames for sample in samples.stacks if sample.phase == "forward")
    return {_function(frame) for frames in forward for frame in frames if frame.user} - _training_path(samples)


def _evaluators(samples: ThreadSamples) -> set[tuple[str, str]]:
    """The user's functions that run modules to evaluate: what they do themselves counts as the model's cost."""
    running = (sample for sample in samples.in_phase("eval").stacks if "module" in sample.kinds)
    return {_function(frame) for sample in running for frame in _before_torch(sample)}


def _in_modules(sample: StackSample) -> list[Frame]:
    """The user's frames that modules call."""
    return [frame for frame in sample.frames[sample.kinds.index("module") :] if frame.user]


def _in_metric(sample: StackSample, model: Container[tuple[str, str]]) -> list[Frame]:
    """The user's frames that a library's module calls, if training never does, as a metric's; else none."""
    frames = _in_modules(sample) if "module" in sample.kinds else []
    if not frames or any(_function(frame) in model for frame in frames):
        return []
    return frames if is_library(sample.frames[sample.frames.index(frames[0]) - 1]) else []


def _off_training(samples: ThreadSamples) -> Iterator[tuple[StackSample, list[Frame]]]:
    """Samples with the user's frames before torch, whose innermost function training never passes through."""
    path = _training_path(samples)
    for sample in without_imports(samples.stacks):
        frames = _before_torch(sample)
        if frames and sample.phase not in _TRAINING and _function(frames[-1]) not in path:
            yield sample, frames


def _training_path(samples: ThreadSamples) -> set[tuple[str, str]]:
    """The user's functions, by file and name, that lead to backward and to the update.

    An evaluation that takes gradients, before anything trains, looks like training: a function that leads to
    evaluation more often is none of them, unless most of training passes through it. That is who calls both.
    """
    training: Counter[tuple[str, str]] = Counter()
    evaluation: Counter[tuple[str, str]] = Counter()
    for sample in samples.stacks:
        if sample.phase in _TRAINING or sample.phase == "eval":
            counts = training if sample.phase in _TRAINING else evaluation
            counts.update(dict.fromkeys({_function(frame) for frame in _before_torch(sample)}, sample.count))
    most = sum(sample.count for sample in samples.stacks if sample.phase in _TRAINING) / 2
    return {own for own, count in training.items() if count > min(evaluation[own], most)}


def _function(frame: Frame) -> tuple[str, str]:
    return frame.file, frame.function


def side_function(samples: ThreadSamples) -> HotFunction | None:
    """The user's function with most side work, at the line before torch is entered; None without samples.

    A line within the model would name what training calls as well: then it is the one that calls the model. A metric's
    is named, though it is a module. Of a line that a library's loop is below, as in ``trainer.train()``, only the
    function that is named with it counts.
    """
    stacks = without_imports(samples.stacks)
    update = _Update.of(samples)
    side = ThreadSamples(tuple(sample for sample in stacks if _is_side_work(sample, update)))
    model, called = _shared_with_model(samples, side), _model_functions(samples)
    framed = (
        (_in_metric(sample, called) or _outside(model, _before_torch(sample)), sample.count) for sample in side.stacks
    )
    placed = [(_place(frames) if frames else None, count) for frames, count in framed]
    hot = _side_place(placed, side, samples)
    if hot is None or hot.library is None:
        return hot
    beside = [(None if place is None or _is_in(place, hot) else place, count) for place, count in placed]
    other = _side_place(beside, side, samples)
    return other if other is not None and other.samples > hot.samples else hot


def _side_place(
    placed: list[tuple[Place | None, int]], side: ThreadSamples, samples: ThreadSamples
) -> HotFunction | None:
    """The hottest of these places, with what it calls, or with the library's function below it."""
    hot = with_callees(hottest_place(placed), side, samples.training_path)
    known = ThreadSamples((*side.stacks, *samples.in_phase("backward").stacks))
    return in_library(with_library(hot, known, "other"), side)


def _is_in(place: Place, hot: HotFunction) -> bool:
    return (place.file, place.function) == (hot.place.file, hot.place.function)


def _shared_with_model(samples: ThreadSamples, side: ThreadSamples) -> set[tuple[str, str]]:
    """The model's functions that side work calls, too; a few samples of side work may look as if they were forward."""
    in_model = _samples_through(samples.in_phase("forward"))
    beside = _samples_through(side)
    return {own for own in _model_functions(samples) if in_model[own] >= _SHARED_PART * beside[own]}


def _samples_through(samples: ThreadSamples) -> Counter[tuple[str, str]]:
    """How many samples go through each function of the user's."""
    counts: Counter[tuple[str, str]] = Counter()
    for sample in samples.stacks:
        for own in sample.functions:
            counts[own] += sample.count
    return counts


def _outside(model: Container[tuple[str, str]], frames: list[Frame]) -> list[Frame]:
    """The frames without the innermost ones of these functions, but always with the outermost of all."""
    end = len(frames)
    while end > 1 and _function(frames[end - 1]) in model:
        end -= 1
    return frames[:end]


class _Update(Struct, frozen=True, gc=False):
    """The stacks that belong to each update beside the optimizer's step."""

    lines: frozenset[_Line]  # of the user's
    functions: frozenset[tuple[str, str]]  # of a library that owns the loop, by file and name
    fetching: frozenset[_Line]  # that call the DataLoader for a batch

    @classmethod
    def of(cls, samples: ThreadSamples) -> _Update:
        """The update as samples of training show it."""
        training = [sample for sample in samples.stacks if sample.phase in _TRAINING]
        outside = (frame for sample in training for frame in _outside_torch(sample))
        functions = ((frame.file, frame.function) for frame in outside if is_library(frame))
        return cls(_update_lines(samples), frozenset(functions), _fetching_lines(samples))

    def holds(self, sample: StackSample) -> bool:
        """True if a sample is of it: on such a line, or in a library's function that leads to backward and the step.

        What ``Trainer.train()`` does around each update, such as asking the schedule for the learning rate, nobody
        can make it do less often. What it calls besides, such as a logger, is side work. A line that fetches a batch
        frees the one before, when its name gets the new one.
        """
        if sample.frames and _line(sample.frames) in self.fetching:
            return True
        frames = _before_torch(sample)
        if frames and (_line(frames) in self.lines or _OF_UPDATE.search(frames[-1].source) is not None):
            return True
        library = library_frame(sample)
        return library is not None and (library.file, library.function) in self.functions


def _is_side_work(sample: StackSample, update: _Update) -> bool:
    return sample.phase == "other" and sample.activity != "ranks" and not update.holds(sample)


def _update_lines(samples: ThreadSamples) -> frozenset[_Line]:
    """The user's lines that lead to the optimizer's step alone: what a library does there belongs to the update.

    An optimizer of Opacus clips and adds noise before torch's optimizer steps; ``trainer.fit(model)`` is the line of
    backward as well.
    """
    lines: dict[str, set[_Line]] = {phase: set() for phase in _TRAINING}
    for sample in samples.stacks:
        frames = _before_torch(sample)
        if sample.phase == "optimizer" and frames:
            lines["optimizer"].add(_line(frames))
        elif sample.phase == "backward":
            lines["backward"].update((frame.file, frame.line) for frame in frames)
    return frozenset(lines["optimizer"] - lines["backward"])


def _fetching_lines(samples: ThreadSamples) -> frozenset[_Line]:
    """The lines from which a batch is fetched."""
    fetches = (sample for sample in samples.in_phase("data").stacks if "fetch" in sample.kinds)
    callers = (list(_outside_torch(sample)) for sample in fetches)
    return frozenset(_line(frames) for frames in callers if frames)


def _line(frames: Sequence[Frame]) -> _Line:
    return frames[-1].file, frames[-1].line


def update_share(samples: ThreadSamples) -> float:
    """Share (0..1) of the side work's samples that belong to every update, such as clipping gradients."""
    side = samples.in_phase("other")
    update = _Update.of(samples)
    updates = sum(sample.count for sample in side.stacks if update.holds(sample))
    return updates / side.total if side.total else 0.0


def model_share(samples: ThreadSamples) -> float:
    """Share (0..1) of the side work's samples that run the model: evaluation that no marker separates from it.

    A metric of torchmetrics, or of the user's, is a module, and no model.
    """
    side, called = samples.in_phase("other"), _model_functions(samples)
    models = sum(
        sample.count
        for sample in side.stacks
        if "module" in sample.kinds and not sample.computes_metric and not _in_metric(sample, called)
    )
    return models / side.total if side.total else 0.0


def _before_torch(sample: StackSample) -> list[Frame]:
    """The user's frames from the root to the first boundary or module."""
    return [frame for frame in _outside_torch(sample) if frame.user]


def _outside_torch(sample: StackSample) -> Iterator[Frame]:
    """Frames from the root to the first boundary or module; side work may be what an optimizer's step calls."""
    for frame, kind in zip(sample.frames, sample.kinds, strict=True):
        if kind == "optimizer" and sample.phase == "other":
            continue
        if kind not in ("none", "import"):
            return
        yield frame


def _place(frames: list[Frame]) -> Place:
    frame = frames[-1]
    return Place(frame.file, frame.line, function_at(frames), frame.source)
