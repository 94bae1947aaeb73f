"""Rebinds names of torch's modules and classes to our functions, and undoes it."""

from functools import partial
from typing import Any, Callable, List

Undo = Callable[[], object]

_undo: List[Undo] = []


def rebind(owner: Any, name: str, replacement: Any) -> None:
    """Bind ``owner.name`` to ``replacement``; undone only if nobody else has rebound it since."""
    original = owner.__dict__[name]
    setattr(owner, name, replacement)
    _undo.append(partial(_restore, owner, name, replacement, original))


def on_undo(undo: Undo) -> None:
    """Have ``undo_all`` call ``undo`` as well."""
    _undo.append(undo)


def undo_all() -> None:
    """Undo everything, the latest first."""
    while _undo:
        try:
            _undo.pop()()
        except Exception:
            continue


def _restore(owner: Any, name: str, replacement: Any, original: Any) -> None:
    if owner.__dict__.get(name) is replacement:
        setattr(owner, name, original)
