"""Where the program's loop calls backward and its optimizer: the stacks of both, noted in the first steps.

A short pass is in few stack samples, or in none. With these stacks the monitor knows which of the loop's lines come
before backward all the same.
"""

import os
from _thread import get_native_id
from typing import Any, Dict, List, Tuple

#: Outermost and innermost frames that are noted of a stack which has more.
_OUTER = 12
_INNER = 52

#: The innermost frame comes last: (file, line, function).
_Stack = List[Tuple[str, int, str]]

_stacks: Dict[str, _Stack] = {}


def is_due(passed: int) -> bool:
    """Whether to note the stack of a boundary when so many have been passed: 1, 2, 3, 5, 9, ... 33.

    Facts are published after 1, 2, 4, ... of them. Where backward and update take turns, each of the two is noted.
    """
    return (passed - 1) & (passed - 2) == 0


def note(boundary: str, frame: Any) -> None:
    """Note the stack of a ``backward`` or ``optimizer`` that ends here; of the main thread only. Some 10 us."""
    if get_native_id() != os.getpid():
        return
    stack: _Stack = []
    while frame is not None:
        code = frame.f_code
        stack.append((code.co_filename, frame.f_lineno or 0, code.co_name))
        frame = frame.f_back
    stack.reverse()
    _stacks[boundary] = stack if len(stack) <= _OUTER + _INNER else stack[:_OUTER] + stack[-_INNER:]


def forget() -> None:
    """Begin anew: in a forked child the stacks are those of its parent."""
    _stacks.clear()


def facts() -> Dict[str, Any]:
    """``{"loop": {"files": [file, ...], "backward": [[number of its file, line, function], ...], ...}}``."""
    if not _stacks:
        return {}
    files: Dict[str, int] = {}
    loop: Dict[str, Any] = {
        boundary: [[files.setdefault(file, len(files)), line, function] for file, line, function in stack]
        for boundary, stack in _stacks.items()
    }
    loop["files"] = list(files)
    return {"loop": loop}
