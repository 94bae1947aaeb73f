"""The stacks at which the program's loop calls backward and its optimizer, noted in the first steps.

A short pass is in few stack samples, or in none. With these stacks the monitor knows which of the loop's lines come
before backward all the same.
"""

import os
from _thread import get_native_id
from typing import Any, Dict, List, Set, Tuple

#: Outermost and innermost frames that are noted of a stack which has more.
_OUTER = 12
_INNER = 52

#: The innermost frame comes last: (file, line, function).
_Stack = List[Tuple[str, int, str]]

#: Boundaries of a loop: backward that accumulates gradients, backward that only returns them, and the update.
BACKWARD, RETURNING, OPTIMIZER = "backward", "returning", "optimizer"

_stacks: Dict[str, _Stack] = {}
_noted: Set[str] = set()  # the boundaries of the loop under way that are noted


def is_due(passed: int, boundary: str) -> bool:
    """True if the stack of a boundary is to be noted after so many: 1, 2, 3, 5, 9, ... 33, or its first.

    Facts are published after 1, 2, 4, ... of them. Where backward and update take turns, each of the two is noted.
    """
    return (passed - 1) & (passed - 2) == 0 or boundary not in _noted


def note(boundary: str, frame: Any) -> None:
    """Note the stack of a boundary that ends here; of the main thread only. Some 10 us.

    A backward that only returns gradients, such as of forces, counts as the loop's where no other does.
    """
    if get_native_id() != os.getpid() or (boundary == RETURNING and BACKWARD in _noted):
        return
    _noted.add(boundary)
    stack: _Stack = []
    while frame is not None:
        code = frame.f_code
        stack.append((code.co_filename, frame.f_lineno or 0, code.co_name))
        frame = frame.f_back
    stack.reverse()
    _stacks[BACKWARD if boundary == RETURNING else boundary] = (
        stack if len(stack) <= _OUTER + _INNER else stack[:_OUTER] + stack[-_INNER:]
    )


def forget() -> None:
    """Begin anew: in a forked child the stacks are those of its parent."""
    _stacks.clear()
    _noted.clear()


def begin_loop() -> None:
    """What follows may be another loop: what is known holds until its own boundaries are noted."""
    _noted.clear()


def facts() -> Dict[str, Any]:
    """``{"loop": {"files": [file, ...], "backward": [[number of its file, line, function], ...], ...}}``."""
    if not _stacks:
        return {}
    files: Dict[str, int] = {}
    loop: Dict[str, Any] = {boundary: numbered(stack, files) for boundary, stack in _stacks.items()}
    loop["files"] = list(files)
    return {"loop": loop}


def numbered(stack: _Stack, files: Dict[str, int]) -> List[List[Any]]:
    """The stack with the numbers of its files, of which new ones are added: their names are most of its bytes."""
    return [[files.setdefault(file, len(files)), line, function] for file, line, function in stack]
