"""Which function of a library takes the time, where the library owns the loop."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from msgspec.structs import replace

from tuimon.code_origin import is_others_package, is_package_file, is_torch
from tuimon.diagnosis.evidence.lines import HotFunction
from tuimon.diagnosis.evidence.samples import ThreadSamples
from tuimon.records import Frame, Place
from tuimon.session.loop_tree.stacks import StackSample, function_at
from tuimon.torch_code import is_loader_code, loads_data


def with_library(hot: HotFunction | None, samples: ThreadSamples, phase: str) -> HotFunction | None:
    """A hot line of the user's, with the library's function below it if backward is called from the same line.

    ``trainer.fit(model)`` is the user's line of every phase: then only the library's own function distinguishes
    them. ``samples``: of the training thread. Where a DataLoader calls the library, the line that it calls is named
    too: a data set's.
    """
    if hot is None or not any(_is_at(hot.place, stack) for stack in samples.in_phase("backward").stacks):
        return hot
    functions: Counter[tuple[str, str]] = Counter()
    lines: Counter[tuple[str, str, int]] = Counter()
    makers: Counter[tuple[tuple[str, str], Place]] = Counter()
    for stack in samples.in_phase(phase).stacks:
        frame = library_frame(stack) if _is_at(hot.place, stack) else None
        if frame is not None:
            functions[frame.file, frame.function] += stack.count
            lines[frame.file, frame.function, frame.line] += stack.count
            maker = _maker(stack)
            if maker is not None and (maker.file, maker.function) != (frame.file, frame.function):
                place = Place(maker.file, maker.line, maker.function, maker.source)
                makers[(frame.file, frame.function), place] += stack.count
    if not functions:
        return hot
    most = max(functions, key=functions.__getitem__)
    file, function, line = max((key for key in lines if key[:2] == most), key=lines.__getitem__)
    makes = max((key for key in makers if key[0] == most), key=makers.__getitem__, default=None)
    return hot._replace(library=Place(file, line, function), maker=makes[1] if makes is not None else None)


def in_library(hot: HotFunction | None, samples: ThreadSamples) -> HotFunction | None:
    """A hot line, with the share of the library's function that is named with it: the rest cannot be saved.

    ``samples``: those that its share is of. As it is where no function of a library is named.
    """
    if hot is None or hot.library is None:
        return hot
    own = (hot.library.file, hot.library.function)
    inside = every = 0
    for stack in samples.stacks:
        if _is_at(hot.place, stack):
            frame = library_frame(stack)
            every += stack.count
            inside += stack.count if frame is not None and (frame.file, frame.function) == own else 0
    return hot._replace(share=hot.share * inside / every, samples=inside) if every else hot


def _is_at(place: Place, stack: StackSample) -> bool:
    own = stack.place
    return own is not None and (own.file, own.line, own.function) == (place.file, place.line, place.function)


def _maker(stack: StackSample) -> Frame | None:
    """The frame that a DataLoader calls in an installed package other than torch."""
    return next(
        (
            frame
            for caller, frame in pairwise(stack.frames)
            if loads_data(caller.file, caller.function) and is_others_package(frame.file)
        ),
        None,
    )


def library_frame(stack: StackSample) -> Frame | None:
    """The innermost frame of an installed package other than torch, below the user's innermost one.

    Where torch's DataLoader is further in, the stack does not show what that calls, or it calls nothing.
    """
    for depth in range(len(stack.frames) - 1, -1, -1):
        frame = stack.frames[depth]
        if frame.user or is_loader_code(frame.file):
            return None
        if is_library(frame):
            return replace(frame, function=function_at(stack.frames[: depth + 1]))
    return None


def is_library(frame: Frame) -> bool:
    """True if a frame is of an installed package other than torch."""
    return is_package_file(frame.file) and not is_torch(frame.file)
