"""Which installed package is the program that trains: ``python -m nice.train``, or a command that came with it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tuimon.proc.target_files import TargetFiles
from tuimon.sources.source_text import SourceText
from tuimon.sources.stacks.frames.frame_ids import RawFrame
from tuimon.sources.stacks.frames.packages_at_work import imported_packages
from tuimon.torch_code import is_library_file, is_user_file, package_of

#: All that a command does that pip, or another installer, has made: ``sys.exit(main())``.
_CALLS_MAIN = re.compile(r"(?:sys\.exit|raise SystemExit)\((\w+)[\w.]*\(\)\)")


def program_of(stack: Sequence[RawFrame], source: SourceText, files: TargetFiles) -> str | None:
    """The installed package that is the program, given the stack (root first) in which it calls backward.

    None where code of the user's calls it: a script, or one that such a package runs.
    """
    first = next((frame for frame in stack if is_user_file(frame.file) or is_library_file(frame.file)), None)
    if first is None or first.function != "<module>":
        return None
    if any(is_user_file(frame.file) for frame in stack if frame != first):
        return None
    if is_library_file(first.file):
        return package_of(first.file)
    call = _CALLS_MAIN.match(source.line(first.file, first.line, files))
    called = imported_packages(source.whole(first.file, files)).get(call[1]) if call is not None else None
    return called if any(package_of(frame.file) == called for frame in stack) else None
