"""The line to blame for time in a library's loop, and the functions that lead to the update."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from itertools import takewhile

from tuimon.code_origin import function_at, is_library_file
from tuimon.records import TRAINING_PHASES, Place
from tuimon.session.stacks.samples import HotLine, Sample, Samples, heaviest_place, hottest_place
from tuimon.session.stacks.trie import FrameKind, Function, KnownFrame, Stack, StackNode, user_place
from tuimon.text import code_place
from tuimon.threshold import LARGE, MIN_SAMPLES, MOST, SMALL
from tuimon.torch_code import collects_garbage, is_loader_code

_DECOMPOSES = re.compile(r"\b(?:linalg\.(?!norm)|cholesky\b|eigh\b|svd\b|logdet|slogdet|MultivariateNormal\()")


def with_library(hot: HotLine | None, samples: Samples, phase: str) -> HotLine | None:
    """A hot user line, with the library's function below it if the line does no work of its own: backward is
    called from it as well, or it only takes batches of a dataset that a library makes.

    ``trainer.fit(model)`` is the user's line of every phase, so only the library's own function distinguishes them.
    ``samples``: the training thread's.
    """
    at_line = samples.where(lambda node: hot is not None and node.place == hot.place)
    takes_batches = phase == "data" and hot is not None and hot.place.code in samples.training_path
    if hot is None or not (takes_batches or at_line.part(phase="backward")):
        return hot
    rows = at_line.where(phase=phase).rows
    placed = ((place, row.count) for row in rows if (place := library_place(row.node)) is not None)
    return hot._replace(library=heaviest_place(placed)[0])


def library_place(node: StackNode) -> Place | None:
    """The innermost line of an installed package other than torch, below the user's innermost one; that of a callback,
    which calls the package's other code.

    None if torch's DataLoader is further in: the code that it calls is not on the stack, or it calls none.
    """
    callback = next((frame for frame in node.called if "callback" in frame.roles), None)
    if callback is not None:
        return Place(callback.file, callback.line, callback.function, callback.source)
    for depth in range(len(node.frames) - 1, -1, -1):
        frame = node.frames[depth]
        if frame.user or is_loader_code(frame.file):
            return None
        if is_library_file(frame.file):
            return Place(frame.file, frame.line, function_at(node.frames[: depth + 1]))
    return None


def loop_over_data(samples: Samples) -> HotLine | None:
    """The loop outside the training's own through which most of forward goes, at its hottest line: it runs on parts of
    a batch, one after the other. None if there is none; the share is of forward.

    Functions that lead to backward are the training's: their loops run over batches. ``samples``: the training
    thread's.
    """
    training = samples.where(phase="backward").through
    forward = samples.where(phase="forward")
    placed = []
    for row in forward.rows:
        frames = row.node.frames
        looped = (n for n, frame in enumerate(frames, 1) if frame.user and frame.loop and frame.code not in training)
        placed.append((user_place(frames[: next(looped, 0)]), row.count))
    hot = hottest_place(placed, forward.total)
    return hot if hot is not None and hot.samples >= max(MIN_SAMPLES, MOST * forward.total) else None


def in_inner_loop(samples: Samples) -> Callable[[StackNode], bool]:
    """A test of stacks: is the user's innermost line in a loop within the training's own?

    ``samples``: the training thread's.
    """
    is_inner = inner_loops(samples)
    return lambda node: (line := node.user_line) is not None and is_inner(line)


def inner_loops(samples: Samples) -> Callable[[KnownFrame], bool]:
    """The same test of a frame."""
    training: dict[Function, int] = {}
    for row in samples.where(phase="backward").rows:
        for frame in row.node.outside_torch:
            training[frame.code] = max(frame.loops, training.get(frame.code, 0))
    return lambda frame: frame.loop and frame.loops > training.get(frame.code, -1)


#: Lines that keep the model's output for the last position only, or append a token to the sequence that it has read.
_DRAWS_TOKEN = re.compile(
    r"(?:\)(?:\.\w+|\[0\])?|logits)\[:, ?-1\b|^\s*(\w+) = torch\.(?:cat|concat|hstack)\(\s*[\[(]\s*\1\b"
)
_ATTENDS, _CACHES = re.compile(r"attention"), re.compile(r"/transformers/cache_utils\.py$")
#: Lines of code around a call of the model that may show what becomes of its output.
_AROUND_CALL = 12


def whole_sequences(samples: Samples) -> HotLine | None:
    """The line that runs a model over all of a sequence for each token that it appends; the share is of the samples.

    None if there is none. In transformers' ``generate`` no layer has keys and values kept then. ``samples``: the
    training thread's.
    """
    is_inner = inner_loops(samples)

    def is_by_hand(node: StackNode) -> bool:
        line = (node.before("module") or (None,))[-1]
        if line is None or not line.user or not node.has("module") or not is_inner(line):
            return False
        near = node.trie.lines_near(line.file, line.line, _AROUND_CALL)
        return any(_DRAWS_TOKEN.search(text) for text in (line.text, *(text for _, text in near)))

    by_library = samples.where(lambda node: node.has("generates") and node.has("library"))
    attends = by_library.where(lambda node: any(_ATTENDS.search(each.function) for each in node.frames)).total
    caches = by_library.where(lambda node: any(_CACHES.search(each.file) for each in node.frames)).total
    if attends >= MIN_SAMPLES / LARGE and caches < SMALL * attends:
        return hottest_place(((row.node.place, row.count) for row in by_library.rows), samples.total)
    rows = samples.where(is_by_hand).rows
    placed = ((user_place(row.node.before("module")), row.count) for row in rows)
    return hottest_place(placed, samples.total) if rows else None


def lines_that_run(samples: Samples) -> list[str]:
    """The lines outside all modules that run the same module, each for a large part of the time."""
    within: dict[str, set[tuple[str, int]]] = {}
    lines = Counter[str]()
    for row in samples.where(below="module").rows:
        outside = row.node.before("module")
        inner = next((frame for frame in row.node.frames[len(outside) :] if frame.user), None)
        if outside and outside[-1].user and inner is not None:
            line = code_place(outside[-1])
            within.setdefault(line, set()).add((inner.file, inner.line))
            lines[line] += row.count
    large = [line for line, count in lines.items() if count >= LARGE * lines.total()]
    return sorted(line for line in large if any(within[line] & within[other] for other in large if other != line))


def decomposes(node: StackNode) -> bool:
    """True if a line decomposes matrices: with 7 digits that may fail. Its gradient may take several times as long."""
    return any(_DECOMPOSES.search(frame.text) for frame in node.frames)


def is_collecting(node: StackNode) -> bool:
    """True if the innermost line calls the garbage collector, which has no frame of its own."""
    return collects_garbage(node.frame.text)


def sets_pace(samples: Samples) -> Callable[[StackNode], bool]:
    """A test of stacks: does a sleep of the training thread set the loop's pace, and not belong to making a batch?

    Such a sleep lies on the path of training, or next to requests to other machines, which it spaces out; or it limits
    a rate. ``samples``: the training thread's.
    """
    path = {*(update_path(samples) or samples.training_path), *samples.where(doing="network").through}
    return lambda node: node.boundary == "rest" and (limits_rate(node) or node.frame.code in path)


def limits_rate(node: StackNode) -> bool:
    """True if a sleep lies in an environment's step, or in a function with no other purpose: ``limiter.wait()``."""
    name, caller = node.frame.function.rpartition(".")[2], node.parent.frame.text if node.parent is not None else ""
    by_name = rf"\s*[\w.]*\b{re.escape(name)}\("
    by_object = r"\s*(?:with\s+)?[\w.]+(?:\([^()]*\))?:?\s*$"  # ``throttle()``, ``with limiter:``
    return node.makes_data or re.match(by_object if name.startswith("__") else by_name, caller) is not None


def is_in_own_loop(node: StackNode) -> bool:
    """True if the innermost line is in the outermost loop of the user's code, not in a function that the loop calls."""
    callers = takewhile(lambda frame: frame.user, reversed(node.frames[:-1]))
    return node.frame.loop and not any(frame.loop for frame in callers)


def user_path(row: Sample) -> Stack:
    """The user's frames before torch is entered; in side work, code that an optimizer's step calls counts as well.

    A metric ends the path where it begins: some run a whole step in a module of torch.
    """
    if row.node.computes_metric:
        outer = takewhile(lambda frame: "metric" not in frame.roles, row.node.frames)
        return tuple(frame for frame in outer if frame.user)
    optimizer: tuple[FrameKind, ...] = () if row.phase == "other" else ("optimizer",)
    return tuple(frame for frame in row.node.before("fetch", "backward", "module", *optimizer) if frame.user)


def update_path(samples: Samples) -> set[Function]:
    """The user's functions that lead to backward and to the update.

    An evaluation that takes gradients, before anything trains, looks like training. So functions that lead to
    evaluation more often are left out, except one that most of training passes through: it calls both.
    """
    training, evaluation = Counter[Function](), Counter[Function]()
    for row in samples.where(phase=(*TRAINING_PHASES, "eval")).rows:
        counts = training if row.phase in TRAINING_PHASES else evaluation
        counts.update(dict.fromkeys((frame.code for frame in user_path(row)), row.count))
    most = samples.where(phase=TRAINING_PHASES).total / 2
    return {own for own, count in training.items() if count > min(evaluation[own], most)}
