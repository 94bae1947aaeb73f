"""How much memory an object holds, and in which of its containers: for tests that state does not grow with a run.

Of a live session, its ten largest containers, each with what they hold::

    print("\\n".join(map(str, largest(session))))
"""

from __future__ import annotations

import sys
import types
from collections import deque
from collections.abc import Iterator, Mapping
from functools import cache
from typing import NamedTuple

#: Of the program, not of the state.
_PROGRAM = (
    type,
    types.ModuleType,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    types.MethodWrapperType,
    types.CodeType,
)
_ATOMS = (int, float, str, bytes, bool, type(None))


class Container(NamedTuple):
    """One container: where it is, what it and all that it holds take, and how many items it has."""

    path: str
    size_bytes: int
    items: int

    def __str__(self) -> str:
        return f"{self.size_bytes / 1e6:10.3f} MB {self.items:9,} items  {self.path}"


def size_of(root: object) -> int:
    """Bytes of an object and of everything it holds; what is held twice counts once."""
    return _walk(root, "", set(), [])


def largest(root: object, count: int = 10) -> list[Container]:
    """The containers with most bytes, each without what an earlier one already holds."""
    found: list[Container] = []
    _walk(root, type(root).__name__, set(), found)
    return sorted(found, key=lambda container: -container.size_bytes)[:count]


def _walk(value: object, path: str, seen: set[int], found: list[Container]) -> int:
    if id(value) in seen or isinstance(value, _PROGRAM):
        return 0
    seen.add(id(value))
    size = sys.getsizeof(value)
    if isinstance(value, _ATOMS):
        return size
    size += sum(_walk(child, f"{path}{name}", seen, found) for name, child in _children(value))
    if isinstance(value, Mapping | list | set | frozenset | deque):
        found.append(Container(path, size, len(value)))
    return size


def _children(value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, Mapping):
        for key, item in list(value.items()):
            yield "[key]", key
            yield "[*]", item
    elif isinstance(value, list | tuple | set | frozenset | deque):
        for item in list(value):
            yield "[*]", item
    for name, item in list(getattr(value, "__dict__", {}).items()):
        yield f".{name}", item
    for name in _slots(type(value)):
        if hasattr(value, name):
            yield f".{name}", getattr(value, name)


@cache
def _slots(kind: type) -> tuple[str, ...]:
    """The attributes of a class that are in no ``__dict__``: those of slots, and of msgspec's structs."""
    fields = getattr(kind, "__struct_fields__", ())
    slots = [base.__dict__.get("__slots__", ()) for base in kind.__mro__]
    names = [name for own in slots for name in ((own,) if isinstance(own, str) else own)]
    return tuple(name for name in dict.fromkeys((*names, *fields)) if name not in ("__weakref__", "__dict__"))
