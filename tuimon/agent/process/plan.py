"""How many steps a Trainer has still to make: transformers' or Lightning's, found on the stack of its loop.

The frames whose variables are read are those of the libraries' outermost functions, which hold nothing of a step.
"""

import sys
import weakref
from typing import Any, Callable, Dict, NamedTuple, Optional

from ..torch_compat.unobserved import is_referable


class _Library(NamedTuple):
    """A library's outermost function, and how its trainer is asked."""

    module: str  # that it is in
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


def facts() -> Dict[str, Any]:
    """``{"planned_steps": 1000, "planned_epochs": 3}`` of the first trainer that trains; of a second one, nothing.

    Raises where another version of the library has other names.
    """
    global _trainer, _found
    trainer, library = _trainer_on_stack()
    if library is None:
        return _found
    if not _found:
        _trainer = weakref.ref(trainer) if is_referable(trainer) else None
        _found = _counts(library.read(trainer))
    elif _trainer is None or _trainer() is not trainer:  # steps are counted from the first one on
        return dict.fromkeys(_found)
    return _found


def forget() -> None:
    """Begin anew, in a forked child."""
    global _trainer, _found
    _trainer, _found = None, {}


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


def _counts(values: Dict[str, Any]) -> Dict[str, Any]:
    return {name: value for name, value in values.items() if type(value) is int and value >= 0}
