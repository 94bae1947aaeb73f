"""Threads grouped by equal stacks, within bounds."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from msgspec import Struct

from tuimon.code_origin import is_agent_file, is_user_file
from tuimon.records import Frame, StackGroup
from tuimon.sources.stacks.frames.frame_ids import RawFrame
from tuimon.sources.standstill.stacks import ThreadStack

#: What a record holds at most: groups, threads of one, and innermost frames of a stack; with lines of 100 bytes 150 kB.
GROUPS = 48
THREADS = 256
DEPTH = 32
#: Longest name of a function and of a file.
_NAME_CHARS = 300


class Grouped(Struct, frozen=True, gc=False):
    """The groups, those with main and training threads first and of these the largest, and what is in none of them."""

    groups: list[StackGroup]
    folded: int  # threads of groups that have no room
    idle: int  # threads without code of the user's


def grouped(
    threads: Iterable[tuple[int, ThreadStack]], source: Callable[[int, RawFrame], str], training: Collection[int] = ()
) -> Grouped:
    """Group threads, given with their pids; ``source`` reads a line for a process.

    Main threads are always listed, and those that train elsewhere: their ids are ``training``.
    """
    members: dict[tuple[RawFrame, ...], list[tuple[int, int]]] = {}
    idle = 0
    for pid, thread in threads:
        frames = tuple(frame for frame in thread.frames if not is_agent_file(frame.file))
        if thread.tid not in (pid, *training) and not any(is_user_file(frame.file) for frame in frames):
            idle += 1
            continue
        members.setdefault(frames, []).append((pid, thread.tid))
    ordered = sorted(members.items(), key=lambda item: (not _is_first(item[1], training), -len(item[1])))
    groups = [_group(frames, found, source) for frames, found in ordered[:GROUPS]]
    return Grouped(groups, sum(len(found) for _, found in ordered[GROUPS:]), idle)


def _is_first(found: Iterable[tuple[int, int]], training: Collection[int]) -> bool:
    return any(pid == tid or tid in training for pid, tid in found)


def _group(
    frames: tuple[RawFrame, ...], found: list[tuple[int, int]], source: Callable[[int, RawFrame], str]
) -> StackGroup:
    inner = frames[-DEPTH:]
    shown = [_frame(frame, source(found[0][0], frame) if is_user_file(frame.file) else "") for frame in inner]
    return StackGroup(shown, len(frames) - len(inner), found[:THREADS], max(0, len(found) - THREADS))


def _frame(frame: RawFrame, text: str) -> Frame:
    file, line, function = frame
    return Frame(file[-4 * _NAME_CHARS :], line, function[:_NAME_CHARS], text, is_user_file(file))
