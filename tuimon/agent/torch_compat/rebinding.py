"""Rebinds names of torch's modules and classes to our functions, adds step hooks, and undoes it.

Step hooks may have to be added and removed while optimizers step. torch goes through them in an ordered dict, where an
entry that comes or goes raises in the user's ``step``. Only the last entry may come or go: so our hooks do so at
any time if they are alone, and wait if there are others.
"""

import sys
from functools import partial
from typing import Any, Callable, Dict, List

from ..own_threads import is_in_file

Undo = Callable[[], object]

rebound_names: List[Undo] = []
_ABSENT = object()


class Rebound:
    """A name that is bound to a replacement, unless somebody else has rebound it since; it can be off for a while."""

    def __init__(self, owner: Any, name: str, replacement: Any) -> None:
        self._owner = owner
        self._name = name
        self._replacement = replacement
        self._original = owner.__dict__.get(name, _ABSENT)
        self._is_undone = False

    def on(self) -> None:
        """Bind the replacement, unless all has been undone."""
        if not self._is_undone:
            self._exchange(self._original, self._replacement)

    def off(self) -> None:
        self._exchange(self._replacement, self._original)

    def undo(self) -> None:
        """Bind the original for good."""
        self._is_undone = True
        self.off()

    def _exchange(self, present: Any, other: Any) -> None:
        if self._owner.__dict__.get(self._name, _ABSENT) is not present:
            return
        if other is _ABSENT:
            delattr(self._owner, self._name)
        else:
            setattr(self._owner, self._name, other)


def rebind(owner: Any, name: str, replacement: Any) -> Rebound:
    """Bind ``owner.name`` to ``replacement``, until ``undo_all``. The name may be new."""
    rebound = Rebound(owner, name, replacement)
    rebound.on()
    rebound_names.append(rebound.undo)
    return rebound


def on_undo(undo: Undo) -> None:
    """Have ``undo_all`` call ``undo`` as well."""
    rebound_names.append(undo)


def undo_all() -> None:
    """Undo everything, the latest first; in a thread of its own (``undisturbed``)."""
    while rebound_names:
        try:
            rebound_names.pop()()
        except Exception:
            continue


def add_step_hooks(optimizer: Any, before: Callable[..., None], after: Callable[..., None]) -> None:
    """Have torch (``torch.optim.optimizer``) call these around every optimizer's step, until all is undone."""
    for register, hook in (
        (optimizer.register_optimizer_step_pre_hook, before),
        (optimizer.register_optimizer_step_post_hook, after),
    ):
        on_undo(partial(_remove, optimizer, register(hook)))


def _remove(optimizer: Any, handle: Any) -> None:
    """Remove a hook; if that would raise in a step, a function that does nothing takes its place."""
    reference = getattr(handle, "hooks_dict_ref", None)
    hooks = (reference() if reference is not None else None) or {}  # none if torch keeps its hooks in another way
    if len(hooks) > 1 and _is_stepping(optimizer):
        hooks[handle.id] = nothing  # a new value does not change a dict's keys
    else:
        handle.remove()


def must_wait() -> bool:
    """True if a hook may not be added at this moment."""
    optimizer = sys.modules.get("torch.optim.optimizer")
    return any(_all_hooks(optimizer)) and _is_stepping(optimizer)


def sweep() -> None:
    """Delete the empty hooks that ``remove`` left in torch's tables because a step was running, unless one still is."""
    optimizer = sys.modules.get("torch.optim.optimizer")
    if not _is_stepping(optimizer):
        for hooks in _all_hooks(optimizer):
            for number in [number for number, hook in hooks.items() if hook is nothing]:
                del hooks[number]


def _all_hooks(optimizer: Any) -> List[Dict[int, Any]]:
    names = ("_global_optimizer_pre_hooks", "_global_optimizer_post_hooks")
    return [getattr(optimizer, name, None) or {} for name in names]


def _is_stepping(optimizer: Any) -> bool:
    """True if a thread is inside an optimizer's step."""
    return is_in_file(getattr(optimizer, "__file__", None))


def nothing(optimizer: Any, args: Any, kwargs: Any) -> None:
    """A hook that was removed."""
