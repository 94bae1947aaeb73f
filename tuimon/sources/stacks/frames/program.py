"""Which installed package is the program that trains: ``python -m nice.train``, or a command that came with it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from tuimon.code_origin import is_installed_script, is_library_file, is_user_file, package_of
from tuimon.proc.target_files import TargetFiles
from tuimon.sources.source_facts import SourceFacts
from tuimon.sources.stacks.frames.frame_ids import RawFrame

#: All that a command does that pip, or another installer, has made: ``sys.exit(main())``.
_CALLS_MAIN = re.compile(r"(?:sys\.exit|raise SystemExit)\((\w+)[\w.]*\(\)\)")
#: The same in a script that the package's authors wrote and that was installed as a command: ``cli.train()``.
_IS_BARE_CALL = re.compile(r"(\w+)[\w.]*\(\)$")
#: The function that a line calls at its beginning, or whose result it gives a name: ``history = fit(``.
_CALLS = re.compile(r"(?:[\w., ]+=\s*)?(\w+)[\w.]*\(")
#: Python's own module that runs scripts and modules.
_RUNS_SCRIPTS = re.compile(r"(?:^|/|<frozen )runpy(?:\.py|>)$")


def program_of(stack: Sequence[RawFrame], facts: SourceFacts, files: TargetFiles) -> str | None:
    """The installed package that is the program, given the stack (root first) in which it calls backward.

    None where code of the user's calls it: a script, or one that such a package runs. A script that was installed as a
    command is no user's: what it calls to train is the program, be it from a function of its own.
    """
    stack = _from_script(stack)
    first = _first(stack)
    if first is None or not is_installed_script(first.file, (frame.file for frame in stack)):
        return command_of(stack, facts, files)
    own = [frame for frame in stack if is_user_file(frame.file)]
    if first.function != "<module>" or any(frame.file != first.file for frame in own):
        return None
    return _called_package(_CALLS_MAIN, first, stack, facts, files) or _called_package(
        _CALLS, own[-1], stack, facts, files
    )


def command_of(stack: Sequence[RawFrame], facts: SourceFacts, files: TargetFiles) -> str | None:
    """The installed package whose command, or module, a process runs and nothing else, given a stack of it."""
    stack = _from_script(stack)
    first = _first(stack)
    if first is None or first.function != "<module>":
        return None
    if any(is_user_file(frame.file) for frame in stack if frame != first):
        return None
    if is_library_file(first.file):
        return package_of(first.file)
    called = _called_package(_CALLS_MAIN, first, stack, facts, files)
    if called is None and is_installed_script(first.file, (frame.file for frame in stack)):
        return _called_package(_IS_BARE_CALL, first, stack, facts, files)
    return called


def _from_script(stack: Sequence[RawFrame]) -> Sequence[RawFrame]:
    """The stack from the script on that an installed command runs: ``tune run recipe``; all of it if none does so."""
    pairs = enumerate(pairwise(stack), 1)
    at = max((i for i, (outer, inner) in pairs if _runs_script(outer, inner)), default=0)
    files = [frame.file for frame in stack]
    users = any(is_user_file(file) and not is_installed_script(file, files) for file in files[:at])
    return stack if users else stack[at:]


def _runs_script(outer: RawFrame, inner: RawFrame) -> bool:
    return inner.function == "<module>" and _RUNS_SCRIPTS.search(outer.file) is not None


def _first(stack: Sequence[RawFrame]) -> RawFrame | None:
    return next((frame for frame in stack if is_user_file(frame.file) or is_library_file(frame.file)), None)


def _called_package(
    calls: re.Pattern[str], frame: RawFrame, stack: Sequence[RawFrame], facts: SourceFacts, files: TargetFiles
) -> str | None:
    """The package of which a frame calls something that it has imported by name, if the stack comes to it."""
    call = calls.match(facts.source.line(frame.file, frame.line, files))
    called = facts.of(frame.file, files).imports.get(call[1]) if call is not None else None
    return called if any(is_library_file(inner.file) and package_of(inner.file) == called for inner in stack) else None
