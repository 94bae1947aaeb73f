"""The stacks at which loops call backward and their optimizers: training processes report them, records hold them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from itertools import takewhile

from tuimon.proc.loop_stacks import LoopStack as ReportedStack
from tuimon.proc.target_files import TargetFiles
from tuimon.records import LoopStack
from tuimon.sources.process_table import ProcessTable
from tuimon.sources.source_facts import SourceFacts
from tuimon.sources.stacks.frames.frame_ids import FrameIds, RawFrame, bare_name
from tuimon.sources.stacks.frames.program import command_of, program_of
from tuimon.sources.stacks.frames.shorten import NO_PATH, Function, Stack, whole_path
from tuimon.sources.stacks.schedule import ProcessKey
from tuimon.torch_code import is_backward_entry


class LoopReports:
    """The stacks of the loops' boundaries, each reported once, and which functions of libraries lead to backward.

    Without hooks, the first sample in backward stands for their report.
    """

    def __init__(self, table: ProcessTable, ids: FrameIds) -> None:
        self._table = table
        self._ids = ids
        self._facts = SourceFacts()
        self._loops: dict[ProcessKey, tuple[ReportedStack, ...]] = {}  # as the paths show them
        self._paths: dict[ProcessKey, tuple[Function, ...]] = {}
        self._reported: dict[ProcessKey, tuple[ReportedStack, ...]] = {}
        self._programs: frozenset[str] = frozenset()  # installed packages that train
        self._commands: dict[ProcessKey, str | None] = {}  # what processes run of those, until one trains
        self._trains = False

    def path_of(self, key: ProcessKey, samples: Counter[Stack], files: TargetFiles) -> tuple[Function, ...]:
        """The functions of libraries that lead to backward, outer ones first, by hooks or the main thread's samples.

        If no code of the user's does, the package which is the program counts as the user's code from here on;
        before any process trains, that of the package whose command all of them are.
        """
        loop = self._noted(key)
        if not loop and key not in self._loops:
            inside = [(count, stack) for stack, count in samples.items() if any(map(_enters_backward, stack))]
            loop = (ReportedStack("backward", max(inside)[1]),) if inside else ()
        if loop and loop != self._loops.get(key):
            self._loops[key] = loop
            backward = _to_backward(loop)
            program = program_of(backward, self._facts, files)
            self._trains = True
            self._programs |= {program} if program is not None else set()
            self._ids.set_programs(self._programs)
            self._paths[key] = tuple(map(_function, filter(self._is_library, backward)))
        elif samples and not self._trains:
            self._suppose_program(key, samples, files)
        return self._paths.get(key, NO_PATH)

    def _suppose_program(self, key: ProcessKey, samples: Counter[Stack], files: TargetFiles) -> None:
        """Count a program as the user's before it trains, so that its own lines show its preparations."""
        self._commands[key] = command_of(samples.most_common(1)[0][0], self._facts, files)
        commands = set(self._commands.values())
        alike = commands if len(commands) == 1 else set()
        self._ids.set_programs(frozenset(package for package in alike if package is not None))

    def due(self, key: ProcessKey, files: TargetFiles) -> list[LoopStack]:
        """The stacks for the next record of this process; call once for each."""
        loop = self._noted(key) or self._loops.get(key, ())
        if self._reported.get(key, ()) == loop:
            return []
        self._reported[key] = loop
        return [LoopStack(boundary, self._short_ids(frames, files)) for boundary, frames in loop]

    def forget_others(self, wanted: Collection[ProcessKey]) -> None:
        """Drop what was reported of processes that are not among these."""
        for held in (self._loops, self._paths, self._reported, self._commands):
            for key in held.keys() - set(wanted):
                del held[key]

    def has_loop(self, key: ProcessKey) -> bool:
        """True if hooks, or samples of its main thread, have shown a process in backward."""
        return bool(self._loops.get(key))

    def _noted(self, key: ProcessKey) -> tuple[ReportedStack, ...]:
        facts = self._table.facts.get(key[0])
        return facts.loop if facts is not None else ()

    def _is_library(self, frame: RawFrame) -> bool:
        return self._ids.traits(frame).library

    def _short_ids(self, frames: Iterable[tuple[str, int, str]], files: TargetFiles) -> list[int]:
        return [self._ids.id_of(frame, files) for frame in whole_path(list(_raw(frames)), self._ids)]


def _to_backward(loop: Iterable[ReportedStack]) -> Stack:
    stack = next((_raw(frames) for boundary, frames in loop if boundary == "backward"), iter(()))
    return tuple(takewhile(lambda frame: not _enters_backward(frame), stack))


def _function(frame: RawFrame) -> Function:
    return frame.file, frame.function


def _raw(frames: Iterable[tuple[str, int, str]]) -> Iterator[RawFrame]:
    return (RawFrame(file, line, bare_name(function)) for file, line, function in frames)


def _enters_backward(frame: RawFrame) -> bool:
    return is_backward_entry(frame.file, frame.function)
