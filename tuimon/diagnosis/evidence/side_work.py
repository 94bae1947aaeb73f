"""Which function evaluates or does side work, judged by where samples leave the path of training."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container
from typing import Literal

from tuimon.diagnosis.evidence.lines import in_library, is_library, library_frame, with_library
from tuimon.diagnosis.threshold import MOST
from tuimon.records import Frame, Place
from tuimon.session.stacks.frames import FrameKind, Function, Role
from tuimon.session.stacks.samples import HotLine, Sample, Samples, hottest_place
from tuimon.session.stacks.trie import Node, Stack, function_at

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


def evaluation_function(samples: Samples) -> HotLine | None:
    """The user's function off the path of training that most samples pass through; None without such samples.

    A sample's function here is the user's innermost one before torch is entered: a module's own ``forward`` is called
    by training and evaluation alike. If a function that trains evaluates itself, by most of the samples of that, it
    is that function, at its line.
    """
    off = _off_training(samples)
    own = samples.without_imports.where(phase="eval")
    chosen = own if 2 * off.phases["eval"] < own.total else off
    placed = [(_place(path), row.count) for row in chosen.rows if (path := _user_path(row))]
    return with_library(hottest_place(placed), samples, "eval")


def evaluation_beside_model(samples: Samples) -> HotLine | None:
    """The user's function that most samples of evaluation pass through outside the model, such as a metric or a plot.

    The model is modules, and what the forward pass of training calls besides; a module that calls functions of the
    user's which training never calls is a metric's. The own work of functions that run modules to evaluate counts
    as the model's cost. The share is of all samples.
    """
    model = _model_functions(samples)
    running = samples.where(phase="eval", below="module")
    evaluators = {frame.code for row in running.rows for frame in _user_path(row)}
    off = set(map(id, _off_training(samples).rows))

    def beside_model(row: Sample) -> Stack:
        if row.phase not in ("eval", "other"):
            return ()
        if row.node.has("module"):
            return _in_modules(row.node)
        path = _user_path(row) if id(row) in off else ()
        if row.phase == "other" or not path:
            return path
        called = evaluators and path[-1].code not in evaluators
        return path if called and not row.node.has("fetch") else ()

    framed = ((beside_model(row), row.count) for row in samples.rows)
    return hottest_place(
        (_place(frames) if model.isdisjoint(frame.code for frame in frames) else None, count)
        for frames, count in framed
    )


def _model_functions(samples: Samples) -> set[Function]:
    """The user's functions that only the forward pass of training goes through."""
    return set(samples.where(phase="forward").through) - update_path(samples)


def _user_path(row: Sample) -> Stack:
    """The user's frames before torch is entered; side work may be what an optimizer's step calls."""
    optimizer: tuple[FrameKind, ...] = () if row.phase == "other" else ("optimizer",)
    return tuple(frame for frame in row.node.before("fetch", "backward", "module", *optimizer) if frame.user)


def _in_modules(node: Node) -> Stack:
    """The user's frames that modules call."""
    return tuple(frame for frame in node.frames[len(node.before("module")) :] if frame.user)


def _in_metric(node: Node, model: Container[Function]) -> Stack:
    """The user's frames that a library's module calls, if training never does, as a metric's; else none."""
    frames = _in_modules(node)
    if not frames or any(frame.code in model for frame in frames):
        return ()
    return frames if is_library(node.frames[node.frames.index(frames[0]) - 1]) else ()


def _off_training(samples: Samples) -> Samples:
    """Samples whose innermost function of the user's before torch training never passes through."""
    path = update_path(samples)
    apart = (row for row in samples.without_imports.rows if row.phase not in _TRAINING)
    return Samples(tuple(row for row in apart if (own := _user_path(row)) and own[-1].code not in path))


def update_path(samples: Samples) -> set[Function]:
    """The user's functions that lead to backward and to the update.

    An evaluation that takes gradients, before anything trains, looks like training: a function that leads to
    evaluation more often is none of them, unless most of training passes through it. That is who calls both.
    """
    training, evaluation = Counter[Function](), Counter[Function]()
    for row in samples.where(phase=(*_TRAINING, "eval")).rows:
        counts = training if row.phase in _TRAINING else evaluation
        counts.update(dict.fromkeys((frame.code for frame in _user_path(row)), row.count))
    most = samples.where(phase=_TRAINING).total / 2
    return {own for own, count in training.items() if count > min(evaluation[own], most)}


def side_function(samples: Samples) -> HotLine | None:
    """The user's function with most side work, at the line before torch is entered; None without samples.

    A line within the model would name what training calls as well: then it is the one that calls the model. A metric's
    is named, though it is a module. For a line that a library's loop is below, as in ``trainer.train()``, only
    the function that is named with it counts.
    """
    update = _Update(samples)
    side = samples.without_imports.where(lambda node: node.activity != "ranks", phase="other")
    side = Samples(tuple(row for row in side.rows if not update.holds(row)))
    model, called = _shared_with_model(samples, side), _model_functions(samples)
    framed = [(_in_metric(row.node, called) or _outside(model, _user_path(row)), row.count) for row in side.rows]
    placed = [(_place(frames), count) for frames, count in framed]
    hot = _side_place(placed, side, samples)
    if hot is None or hot.library is None:
        return hot
    inside = (hot.place.file, hot.place.function)
    beside = [(p if p is not None and (p.file, p.function) != inside else None, count) for p, count in placed]
    other = _side_place(beside, side, samples)
    return other if other is not None and other.samples > hot.samples else hot


def _side_place(placed: list[tuple[Place | None, int]], side: Samples, samples: Samples) -> HotLine | None:
    """The hottest of these places, with what it calls, or with the library's function below it."""
    hot = side.with_callees(hottest_place(placed), samples.training_path)
    known = Samples.joined((side, samples.where(phase="backward")))
    return in_library(with_library(hot, known, "other"), side)


def _shared_with_model(samples: Samples, side: Samples) -> set[Function]:
    """The model's functions that side work calls, too; a few samples of side work may look as if they were forward."""
    in_model, beside = samples.where(phase="forward").through, side.through
    return {own for own in _model_functions(samples) if in_model[own] >= _SHARED_PART * beside[own]}


def _outside(model: Container[Function], frames: Stack) -> Stack:
    """The frames without the innermost ones of these functions, but always with the outermost of all."""
    end = len(frames)
    while end > 1 and frames[end - 1].code in model:
        end -= 1
    return frames[:end]


class _Update:
    """The stacks that belong to each update beside the optimizer's step."""

    def __init__(self, samples: Samples) -> None:
        in_backward, in_optimizer = (samples.where(phase=phase).rows for phase in _TRAINING)
        # lines that lead to the optimizer's step alone, where Opacus clips and adds noise before torch's own;
        # ``trainer.fit(model)`` is the line of backward as well
        self._lines = {_line(f) for row in in_optimizer for f in _user_path(row)[-1:]}
        self._lines -= {_line(f) for row in in_backward for f in _user_path(row)}
        #: The functions of a library that owns the loop.
        self._functions = {
            f.code for row in (*in_backward, *in_optimizer) for f in row.node.outside_torch if is_library(f)
        }
        fetching = samples.where(phase="data", below="fetch").rows
        self._fetching = {_line(f) for row in fetching for f in row.node.outside_torch[-1:]}

    def holds(self, row: Sample) -> bool:
        """True if a sample is of it: on such a line, or in a library's function that leads to backward and the step.

        Nobody can make ``Trainer.train()`` do less often what it does around each update, such as asking the schedule
        for the learning rate. Its other calls, such as a logger, are side work. A line that fetches a batch
        frees the one before, when its name gets the new one.
        """
        if _line(row.node.frame) in self._fetching:
            return True
        if any(_line(f) in self._lines or _OF_UPDATE.search(f.source) for f in _user_path(row)[-1:]):
            return True
        library = library_frame(row.node)
        return library is not None and (library.file, library.function) in self._functions


def _line(frame: Frame | Place) -> _Line:
    return frame.file, frame.line


def update_share(samples: Samples) -> float:
    """Share (0..1) of the side work's samples that belong to every update, such as clipping gradients."""
    update, side = _Update(samples), samples.where(phase="other")
    return sum(row.count for row in side.rows if update.holds(row)) / side.total if side.total else 0.0


def model_share(samples: Samples) -> float:
    """Share (0..1) of the side work's samples that run the model: evaluation that no marker separates from it.

    A metric of torchmetrics, or of the user's, is a module, and no model.
    """
    called = _model_functions(samples)
    return samples.where(phase="other").part(
        lambda node: node.has("module") and not node.computes_metric and not _in_metric(node, called)
    )


def kind_of_work(samples: Samples, hot: HotLine) -> SideWorkKind | None:
    """The kind of work that most samples of side work at a line show."""
    line = _line(hot.library or hot.place)
    at_line = samples.where(lambda node: any(_line(frame) == line for frame in node.frames), phase="other")
    return next((kind for role, kind in _KINDS if at_line.part(below=role) >= MOST), None)


def _place(frames: Stack) -> Place | None:
    """The place of the innermost frame; None without any, or where the line has nothing to save."""
    if not frames:
        return None
    rest, reads = _CLOCK.subn("0", frames[-1].source)
    if reads and _CALL.search(rest) is None:
        return None
    return Place(frames[-1].file, frames[-1].line, function_at(frames), frames[-1].source)
