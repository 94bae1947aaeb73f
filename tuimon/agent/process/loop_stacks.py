"""The stacks at which the program's loop calls backward and its optimizer, recorded in the first steps.

A short pass is in few stack samples, or in none. With these stacks the monitor knows which of the loop's lines come
before backward all the same.

The loop of a Trainer, transformers' or Lightning's, is found on the stack as well, with the steps it has still to make.
The frames whose variables are read are those of the libraries' outermost functions, which hold nothing of a step.
"""

import os
import sys
import weakref
from _thread import get_native_id
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Set, Tuple

from ..torch_compat.unobserved import is_referable

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
    """True if a boundary's stack is to be recorded after this many boundaries: 1, 2, 3, 5, 9, ... 33, or if it is its
    first.

    Facts are published after 1, 2, 4, ... of them. If backward and update take turns, both are recorded.
    """
    return (passed - 1) & (passed - 2) == 0 or boundary not in _noted


def note(boundary: str, frame: Any) -> None:
    """Note the stack of a boundary that ends here; of the main thread only. Some 10 us.

    A backward that only returns gradients, such as of forces, counts as the loop's if no other does.
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
    """Start again: in a forked child the stacks are those of its parent."""
    global _trainer, _found
    _stacks.clear()
    _noted.clear()
    _trainer, _found = None, {}


def begin_loop() -> None:
    """Another loop may follow: the known stacks hold until its own boundaries are noted."""
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
    """The stack with the numbers of its files; new files are added. File names would be most of its bytes."""
    return [[files.setdefault(file, len(files)), line, function] for file, line, function in stack]


class _Library(NamedTuple):
    """A library's outermost function, and how its trainer's plan is read."""

    module: str  # that the function is in
    variable: str  # which holds the trainer
    read: Callable[[Any], Dict[str, Any]]


def _of_transformers(trainer: Any) -> Dict[str, Any]:
    state = trainer.__dict__["state"]
    return {"planned_steps": state.max_steps - state.global_step}


def _of_lightning(trainer: Any) -> Dict[str, Any]:
    steps, epochs = trainer.max_steps, trainer.max_epochs
    return {
        "planned_steps": steps - trainer.global_step if steps is not None and steps > 0 else None,
        "planned_epochs": epochs - trainer.current_epoch if epochs is not None and epochs > 0 else None,
    }


_LIBRARIES = {
    "train": (_Library("transformers.trainer", "self", _of_transformers),),
    "_call_and_handle_interrupt": (
        _Library("lightning.pytorch.trainer.call", "trainer", _of_lightning),
        _Library("pytorch_lightning.trainer.call", "trainer", _of_lightning),
    ),
}
_trainer: Optional[Callable[[], Any]] = None
_found: Dict[str, Any] = {}


def planned() -> Dict[str, Any]:
    """``{"planned_steps": 1000, "planned_epochs": 3}`` of the first trainer that trains; of a second one, nothing.

    Raises if another version of the library has other names.
    """
    global _trainer, _found
    trainer, library = _trainer_on_stack()
    if library is None:
        return _found
    if not _found:
        _trainer = weakref.ref(trainer) if is_referable(trainer) else None
        _found = {key: count for key, count in library.read(trainer).items() if type(count) is int and count >= 0}
    elif _trainer is None or _trainer() is not trainer:  # steps are counted from the first one on
        return dict.fromkeys(_found)
    return _found


def _trainer_on_stack() -> Any:
    if not any(each.module in sys.modules for libraries in _LIBRARIES.values() for each in libraries):
        return None, None
    frame: Optional[Any] = sys._getframe(1)
    while frame is not None:
        for library in _LIBRARIES.get(frame.f_code.co_name, ()):
            if frame.f_globals.get("__name__") == library.module:
                return frame.f_locals.get(library.variable), library
        frame = frame.f_back
    return None, None
