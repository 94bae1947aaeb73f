"""Rebinds names of torch's modules and classes to our functions, and undoes it."""

from functools import partial
from typing import Any, Callable, List, Sequence

Undo = Callable[[], object]

_undo: List[Undo] = []


def rebind(owner: Any, name: str, replacement: Any) -> None:
    """Bind ``owner.name`` to ``replacement``; undone only if nobody else has rebound it since."""
    original = owner.__dict__[name]
    setattr(owner, name, replacement)
    _undo.append(partial(_exchange, owner, name, replacement, original))


def on_undo(undo: Undo) -> None:
    """Have ``undo_all`` call ``undo`` as well."""
    _undo.append(undo)


class Switch:
    """Turns a replacement off and on again, where nobody else has rebound the name."""

    def __init__(self, owners: Sequence[Any], name: str, replacement: Any, original: Any) -> None:
        self._owners = owners
        self._name = name
        self._replacement = replacement
        self._original = original

    def off(self) -> None:
        """Bind the original."""
        for owner in self._owners:
            _exchange(owner, self._name, self._replacement, self._original)

    def on(self) -> None:
        """Bind the replacement."""
        for owner in self._owners:
            _exchange(owner, self._name, self._original, self._replacement)


def undo_all() -> None:
    """Undo everything, the latest first."""
    while _undo:
        try:
            _undo.pop()()
        except Exception:
            continue


def _exchange(owner: Any, name: str, present: Any, other: Any) -> None:
    if owner.__dict__.get(name) is present:
        setattr(owner, name, other)
