"""Rebinds names of torch's modules and classes to our functions, and undoes it."""

from typing import Any, Callable, List

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
        """Bind the original."""
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
