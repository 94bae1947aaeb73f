"""Stacks that a process reports, as of its backward and its optimizer, checked: it may have written anything."""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

Boundary = Literal["backward", "optimizer"]
#: (file, line, function), root first.
Frames = tuple[tuple[str, int, str], ...]
#: Most frames of a stack that is believed; the agent publishes fewer.
_FRAMES = 128


class LoopStack(NamedTuple):
    """A stack of the training thread in a boundary of its loop."""

    boundary: Boundary
    frames: Frames


def loop_stacks(fact: object) -> tuple[LoopStack, ...]:
    """The stacks in the fact ``loop`` (``agent/process/loop_stacks.py``); those that are no stacks are left out."""
    stacks = ((boundary, reported_frames(fact, boundary)) for boundary in get_args(Boundary))
    return _shared(tuple(LoopStack(boundary, frames) for boundary, frames in stacks if frames))


def reported_frames(fact: object, name: str) -> Frames:
    """The stack of this name in a fact that has the files of its stacks by number; empty if it is none."""
    if not isinstance(fact, dict):
        return ()
    files = fact.get("files")
    if not isinstance(files, list) or not all(isinstance(file, str) for file in files):
        return ()
    return _frames(fact.get(name), files)


#: The stacks read last, and those before: the ranks of a run have the same, and hold them once.
_latest: list[tuple[LoopStack, ...]] = []
_LATEST = 4


def _shared(stacks: tuple[LoopStack, ...]) -> tuple[LoopStack, ...]:
    """Equal ones that were read before, if there are any."""
    known = next((each for each in _latest if each == stacks), stacks)
    _latest[:] = [known, *(each for each in _latest if each is not known)][:_LATEST]
    return known


def _frames(stack: object, files: list[str]) -> Frames:
    """Empty if any of them is no frame."""
    out: list[tuple[str, int, str]] = []
    for frame in stack if isinstance(stack, list) and len(stack) <= _FRAMES else ():
        match frame:
            case [int(file), int(line), str(function)] if 0 <= file < len(files) and 0 <= line < 1 << 31:
                out.append((files[file], line, function))
            case _:
                return ()
    return tuple(out)
