"""Which line names a part of the time: of a library that owns the loop, of garbage collection, of Python in a model."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise

from msgspec.structs import replace

from tuimon.code_origin import is_agent_file, is_others_package, is_package_file, is_torch
from tuimon.diagnosis.threshold import REPORTED
from tuimon.records import Frame, Place
from tuimon.session.stacks.frames import Function, KnownFrame
from tuimon.session.stacks.samples import HotLine, Samples
from tuimon.session.stacks.trie import Node, function_at, to_user
from tuimon.torch_code import collects_garbage, is_loader_code, loads_data


def with_library(hot: HotLine | None, samples: Samples, phase: str) -> HotLine | None:
    """A hot line of the user's, with the library's function below it if backward is called from the same line.

    ``trainer.fit(model)`` is the user's line of every phase: then only the library's own function distinguishes
    them. ``samples``: of the training thread. If a DataLoader calls the library, the line that it calls is named
    too: a data set's.
    """
    if hot is None or not samples.part(lambda node: _is_at(hot.place, node), phase="backward"):
        return hot
    found: dict[Function, Counter[Place]] = {}
    makers: dict[Function, Counter[Place]] = {}
    for row in samples.where(lambda node: _is_at(hot.place, node), phase=phase).rows:
        frame = library_frame(row.node)
        if frame is not None:
            own = (frame.file, frame.function)
            found.setdefault(own, Counter())[Place(frame.file, frame.line, frame.function)] += row.count
            maker = _maker(row.node)
            if maker is not None and maker.code != own:
                place = Place(maker.file, maker.line, maker.function, maker.source)
                makers.setdefault(own, Counter())[place] += row.count
    if not found:
        return hot
    most = max(found, key=lambda own: found[own].total())
    return hot._replace(library=_hottest(found[most]), maker=_hottest(makers.get(most, Counter())))


def _hottest(places: Counter[Place]) -> Place | None:
    return max(places, key=places.__getitem__, default=None)


def in_library(hot: HotLine | None, samples: Samples) -> HotLine | None:
    """A hot line, with the share of the library's function that is named with it: the rest cannot be saved.

    ``samples``: those that its share is of. As it is where no function of a library is named.
    """
    if hot is None or hot.library is None:
        return hot
    own = (hot.library.file, hot.library.function)
    at = samples.where(lambda node: _is_at(hot.place, node))
    inside = at.where(lambda node: (frame := library_frame(node)) is not None and (frame.file, frame.function) == own)
    return hot._replace(share=hot.share * inside.total / at.total, samples=inside.total) if at.total else hot


def _is_at(place: Place, node: Node) -> bool:
    own = node.place
    return own is not None and (own.file, own.line, own.function) == (place.file, place.line, place.function)


def _maker(node: Node) -> KnownFrame | None:
    """The frame that a DataLoader calls in an installed package other than torch."""
    return next(
        (
            frame
            for caller, frame in pairwise(node.frames)
            if loads_data(caller.file, caller.function) and is_others_package(frame.file)
        ),
        None,
    )


def library_frame(node: Node) -> Frame | None:
    """The innermost frame of an installed package other than torch, below the user's innermost one.

    If torch's DataLoader is further in, the stack does not show what that calls, or it calls nothing.
    """
    for depth in range(len(node.frames) - 1, -1, -1):
        frame = node.frames[depth]
        if frame.user or is_loader_code(frame.file):
            return None
        if is_library(frame):
            return replace(frame, function=function_at(node.frames[: depth + 1]))
    return None


def is_library(frame: Frame) -> bool:
    """True if a frame is of an installed package other than torch."""
    return is_package_file(frame.file) and not is_torch(frame.file)


def collecting_line(samples: Samples) -> HotLine | None:
    """The line with most samples in ``gc.collect()``: the user's, with the library's that it leads to; else None."""
    counts: Counter[tuple[Place, Place | None]] = Counter()
    for row in samples.where(is_collecting).rows:
        leaf, own = row.node.frame, row.node.place
        line = Place(leaf.file, leaf.line, leaf.function, leaf.source)
        counts[(own, None if leaf.user else line) if own is not None else (line, None)] += row.count
    if not counts:
        return None
    (place, library), count = counts.most_common(1)[0]
    return HotLine(place, count / samples.total, count, samples.total, library)


def sampled_collections(samples: Samples) -> float | None:
    """The share of the samples in steps that are in ``gc.collect()``; None where it is too small to be told."""
    share = samples.in_steps.share(is_collecting)
    return share if share is not None and share >= REPORTED else None


def is_collecting(node: Node) -> bool:
    """True if the innermost line calls the collector: that has no frame of its own."""
    return collects_garbage(node.frame.source)


#: Packages that compute for whoever calls them, on a CPU.
_NUMERIC = re.compile(r"/(?:numpy|scipy|pandas|sklearn|skimage|PIL|cv2|numba)/")
#: Activities for which the text of a line may be taken if no GPU makes anybody wait: ``int(x.item())`` is Python too.
_AT_WORK = ("python", "sync")
#: Makes a tensor out of Python's numbers, one by one.
_FROM_PYTHON = re.compile(r"\btorch\.(?:tensor|as_tensor|\w*Tensor)\(")


def runs_no_operation(node: Node) -> bool:
    """True if the innermost line runs no operation of torch's: such a one has no frame, and looks like Python."""
    leaf = node.frame
    return not leaf.user or _makes_tensor(node) or bool(leaf.packages)


def keeps_no_gradients(node: Node) -> bool:
    """True if a sample is in code without gradients, as far as the source shows."""
    return any(frame.no_grad is not None for frame in node.frames)


def runs_python(node: Node) -> bool:
    """True if the user's code is at work, itself or by a package that computes for it; a library's is not."""
    if node.activity not in _AT_WORK and not _makes_tensor(node):
        return False
    for frame in reversed(node.frames):
        if frame.user:
            return True
        if is_agent_file(frame.file) or (is_package_file(frame.file) and not _NUMERIC.search(frame.file)):
            return False
    return False


def loops(node: Node) -> bool:
    """True if the innermost line of the user's is in a loop of its function, and runs no module.

    What the loop calls of libraries counts, such as a distribution's ``log_prob``.
    """
    own = to_user(node.frames)
    return bool(own) and own[-1].loop and all(kind == "none" for kind in node.kinds[len(own) :])


def _makes_tensor(node: Node) -> bool:
    return node.frame.user and _FROM_PYTHON.search(node.frame.source) is not None
