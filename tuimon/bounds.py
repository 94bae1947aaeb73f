"""Bounds on the data held about things that a program, its ring or its log may name without end."""

from __future__ import annotations

from collections.abc import Container, Sized
from typing import Any, Protocol, TypeVar

#: Most things of one kind held for a process, a machine or a file: devices, loaders, threads, names of ranges ...
HELD = 256
#: Most things of one kind that take little room, or are held for a whole run: nodes, names of threads, answers about
#: lines ...
MANY_HELD = 4096
#: The most different frames of a run that are held: some 15 MB.
FRAMES_HELD = 50_000

K = TypeVar("K")
V = TypeVar("V")


class _Held(Container[Any], Sized, Protocol): ...


def has_room(held: _Held, key: object) -> bool:
    """True if ``key`` is held already, or there is room for it."""
    return key in held or len(held) < HELD


class Latest(dict[K, V]):
    """The keys that were set last, up to a number of them.

    >>> latest = Latest[str, int](2)
    >>> latest["a"], latest["b"], latest["a"], latest["c"] = 1, 2, 3, 4
    >>> latest
    {'a': 3, 'c': 4}
    """

    def __init__(self, most: int = HELD) -> None:
        super().__init__()
        self._most = most

    def __setitem__(self, key: K, value: V) -> None:
        self.pop(key, None)
        super().__setitem__(key, value)
        while len(self) > self._most:
            del self[next(iter(self))]
