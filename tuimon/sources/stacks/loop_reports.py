"""The stacks at which loops call backward and their optimizers: takes the processes' reports, makes records of them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise, takewhile

from tuimon.code_origin import is_installed_script, is_library_file, is_user_file, package_of
from tuimon.proc.ring_facts import RawFrame, ReportedStack
from tuimon.records import LoopStack
from tuimon.sources.process_table import ProcessTable
from tuimon.sources.source_facts import ProcessCode
from tuimon.sources.stacks.frame_ids import FrameIds
from tuimon.sources.stacks.schedule import ProcessKey
from tuimon.sources.stacks.shorten import NO_PATH, Function, RawStack, shorten_stack
from tuimon.torch_code import is_backward_entry

#: The only statement of a command that pip or another installer has made: ``sys.exit(main())``.
_CALLS_MAIN = re.compile(r"(?:sys\.exit|raise SystemExit)\((\w+)[\w.]*\(\)\)")
#: The last statement of a script by the package's authors that was installed as a command: ``cli.train()``.
_IS_BARE_CALL = re.compile(r"(\w+)[\w.]*\(\)$")
#: The function that a line calls at its beginning, or whose result it gives a name: ``history = fit(``.
_CALLS = re.compile(r"(?:[\w., ]+=\s*)?(\w+)[\w.]*\(")
#: Python's own module that runs scripts and modules.
_RUNS_SCRIPTS = re.compile(r"(?:^|/|<frozen )runpy(?:\.py|>)$")


def path_to_backward(loop: Iterable[ReportedStack]) -> tuple[RawFrame, ...]:
    """The frames (root first) that lead to backward in a process's reported stacks; empty if none is of backward."""
    stack = next((frames for boundary, frames in loop if boundary == "backward"), ())
    return tuple(takewhile(lambda frame: not _enters_backward(frame), stack))


def program_of(stack: Sequence[RawFrame], code: ProcessCode) -> str | None:
    """The installed package that is the program, given the stack (root first) in which it calls backward.

    None if user code calls it: a script, or one that such a package runs. A script that was installed as a
    command is not the user's: the package that it calls to train is the program, even if a function of its own does.
    """
    stack = _from_script(stack)
    first = _first(stack)
    if first is None or not is_installed_script(first.file, (frame.file for frame in stack)):
        return command_of(stack, code)
    own = [frame for frame in stack if is_user_file(frame.file)]
    if first.function != "<module>" or any(frame.file != first.file for frame in own):
        return None
    return _called_package(_CALLS_MAIN, first, stack, code) or _called_package(_CALLS, own[-1], stack, code)


def command_of(stack: Sequence[RawFrame], code: ProcessCode) -> str | None:
    """The installed package whose command or module is all that a process runs, by a stack of the process."""
    stack = _from_script(stack)
    first = _first(stack)
    if first is None or first.function != "<module>":
        return None
    if any(is_user_file(frame.file) for frame in stack if frame != first):
        return None
    if is_library_file(first.file):
        return package_of(first.file)
    called = _called_package(_CALLS_MAIN, first, stack, code)
    if called is None and is_installed_script(first.file, (frame.file for frame in stack)):
        return _called_package(_IS_BARE_CALL, first, stack, code)
    return called


def _from_script(stack: Sequence[RawFrame]) -> Sequence[RawFrame]:
    """The part of a stack from the script that an installed command runs (``tune run recipe``); else all of it."""
    scripts = ((i, outer.file) for i, (outer, inner) in enumerate(pairwise(stack), 1) if inner.function == "<module>")
    at = max((i for i, file in scripts if _RUNS_SCRIPTS.search(file)), default=0)
    files = [frame.file for frame in stack]
    users = any(is_user_file(file) and not is_installed_script(file, files) for file in files[:at])
    return stack if users else stack[at:]


def _first(stack: Sequence[RawFrame]) -> RawFrame | None:
    return next((frame for frame in stack if is_user_file(frame.file) or is_library_file(frame.file)), None)


def _called_package(
    calls: re.Pattern[str], frame: RawFrame, stack: Sequence[RawFrame], code: ProcessCode
) -> str | None:
    """The package from which a frame calls something that it has imported by name, if the stack enters that package."""
    call = calls.match(code.line(frame))
    called = code.facts(frame.file).imports.get(call[1]) if call is not None else None
    return called if any(is_library_file(inner.file) and package_of(inner.file) == called for inner in stack) else None


class LoopReports:
    """The stacks at the loops' boundaries, each recorded once, and the functions of libraries that lead to backward.

    Without hooks, the first sample in backward stands for their report.
    """

    def __init__(self, table: ProcessTable, ids: FrameIds) -> None:
        self._table = table
        self._ids = ids
        self._loops: dict[ProcessKey, tuple[ReportedStack, ...]] = {}  # as the paths show them
        self._paths: dict[ProcessKey, tuple[Function, ...]] = {}
        self._reported: dict[ProcessKey, tuple[ReportedStack, ...]] = {}
        self._programs: frozenset[str] = frozenset()  # installed packages that train
        self._commands: dict[ProcessKey, str | None] = {}  # the one that each process runs, until one trains
        self._trains = False

    def path_of(self, key: ProcessKey, samples: Counter[RawStack], code: ProcessCode) -> tuple[Function, ...]:
        """The functions of libraries that lead to backward, outer ones first, by hooks or the main thread's samples.

        If no user code does, the package that is the program counts as the user's code from now on; before any
        process trains, it is the package whose command all processes run.
        """
        loop = self._noted(key)
        if not loop and key not in self._loops:
            inside = [(count, stack) for stack, count in samples.items() if any(map(_enters_backward, stack))]
            loop = (ReportedStack("backward", max(inside)[1]),) if inside else ()
        if loop and loop != self._loops.get(key):
            self._loops[key] = loop
            backward = path_to_backward(loop)
            program = program_of(backward, code)
            self._trains = True
            self._programs |= {program} if program is not None else set()
            self._set_programs(self._programs)
            libraries = (frame for frame in backward if self._ids.traits(frame).library)
            self._paths[key] = tuple(frame.code for frame in libraries)
        elif samples and not self._trains:
            self._suppose_program(key, samples, code)
        return self._paths.get(key, NO_PATH)

    def _suppose_program(self, key: ProcessKey, samples: Counter[RawStack], code: ProcessCode) -> None:
        """Count a program as the user's code before it trains, so that its own lines show its preparations."""
        self._commands[key] = command_of(samples.most_common(1)[0][0], code)
        commands = set(self._commands.values())
        alike = commands if len(commands) == 1 else set()
        self._set_programs(frozenset(package for package in alike if package is not None))

    def _set_programs(self, packages: frozenset[str]) -> None:
        self._table.programs = packages
        self._ids.set_programs(packages)

    def due(self, key: ProcessKey, code: ProcessCode) -> list[LoopStack]:
        """The stacks for the next record of this process; call once for each."""
        loop = self._noted(key) or self._loops.get(key, ())
        if self._reported.get(key, ()) == loop:
            return []
        self._reported[key] = loop
        paths = ((boundary, shorten_stack(frames, self._ids, whole=True)) for boundary, frames in loop)
        return [LoopStack(boundary, [self._ids.id_of(frame, code) for frame in path]) for boundary, path in paths]

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


def _enters_backward(frame: RawFrame) -> bool:
    return is_backward_entry(*frame.code)
