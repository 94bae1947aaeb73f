"""torch's global step hooks, which may have to be added and removed while optimizers step.

torch goes through them in an ordered dict, where an entry that comes or goes raises in the user's ``step``. Only around
the last entry is that allowed: so hooks of ours that are alone come and go at any time, beside others they wait.
"""

import sys
from typing import Any, Callable, Dict, List, Tuple

from ..own_threads import is_in_file
from . import rebinding


class StepHook:
    """A hook of ours in torch's dict. It may be off for a while at any moment: a new value is no change of it."""

    def __init__(self, optimizer: Any, hook: Callable[..., None], handle: Any) -> None:
        self._optimizer = optimizer
        self._hook = hook
        self._handle = handle
        self._is_removed = False

    def on(self) -> None:
        """Have torch call it, unless it was removed."""
        if not self._is_removed:
            self._replace(self._hook)

    def off(self) -> None:
        """Have torch call a function that does nothing in its place."""
        self._replace(_nothing)

    def remove(self) -> None:
        """Remove it for good; where that would raise in a step, it stays and does nothing."""
        self._is_removed = True
        if len(self._all()) > 1 and _is_stepping(self._optimizer):
            self.off()
        else:
            self._handle.remove()

    def _replace(self, hook: Callable[..., None]) -> None:
        hooks, number = self._all(), getattr(self._handle, "id", None)
        if number in hooks:
            hooks[number] = hook

    def _all(self) -> Dict[int, Any]:
        """torch's dict; empty where torch keeps its hooks in another way."""
        reference = getattr(self._handle, "hooks_dict_ref", None)
        return (reference() if reference is not None else None) or {}


def add(optimizer: Any, before: Callable[..., None], after: Callable[..., None]) -> Tuple[StepHook, StepHook]:
    """Have torch (``torch.optim.optimizer``) call these around every optimizer's step, until all is undone."""
    begin = StepHook(optimizer, before, optimizer.register_optimizer_step_pre_hook(before))
    rebinding.on_undo(begin.remove)
    end = StepHook(optimizer, after, optimizer.register_optimizer_step_post_hook(after))
    rebinding.on_undo(end.remove)
    return begin, end


def must_wait() -> bool:
    """True if a hook may not be added at this moment."""
    optimizer = sys.modules.get("torch.optim.optimizer")
    return any(_all_hooks(optimizer)) and _is_stepping(optimizer)


def sweep() -> None:
    """Delete the empty hooks that ``remove`` left in torch's tables because a step was running, unless one still is."""
    optimizer = sys.modules.get("torch.optim.optimizer")
    if not _is_stepping(optimizer):
        for hooks in _all_hooks(optimizer):
            for number in [number for number, hook in hooks.items() if hook is _nothing]:
                del hooks[number]


def _all_hooks(optimizer: Any) -> List[Dict[int, Any]]:
    names = ("_global_optimizer_pre_hooks", "_global_optimizer_post_hooks")
    return [getattr(optimizer, name, None) or {} for name in names]


def _is_stepping(optimizer: Any) -> bool:
    """True if a thread is inside an optimizer's step."""
    return is_in_file(getattr(optimizer, "__file__", None))


def _nothing(optimizer: Any, args: Any, kwargs: Any) -> None:
    """A hook that was removed."""
