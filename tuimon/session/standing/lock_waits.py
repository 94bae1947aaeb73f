"""Who waits for which lock, and who holds it, as far as stacks and the code around their lines show.

A thread holds a lock inside its ``with`` block, or between its ``acquire()`` and its ``release()``.

A lock is known by the expression that names it, ``self.lock`` as ``lock``: where two objects have locks of one name,
the thread that holds one of that name is taken for the holder.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from msgspec import Struct

from tuimon.records import Frame, Place

#: A thread: process and thread id.
Thread = tuple[int, int]

_WITH = re.compile(r"with\s")
#: From the beginning of an expression on: a line of thousands of letters is searched once.
_ACQUIRE = re.compile(r"(?<![\w.\[\]'\"])([A-Za-z_][\w.\[\]'\"]*)\.acquire\s*\(")
_NAME = re.compile(r"^[A-Za-z_][\w.\[\]'\"]*$")


class LockWait(Struct, frozen=True, gc=False):
    """A thread that stands at a lock."""

    thread: Thread
    lock: str  # as it is named where it is waited for
    place: Place
    holds: tuple[str, ...]
    holder: Thread | None


def lock_waits(stacks: Mapping[Thread, Sequence[Frame]]) -> list[LockWait]:
    """The threads that stand at a lock; ``stacks`` of threads at one moment, root first."""
    held = {thread: _held(frames) for thread, frames in stacks.items()}
    found = []
    for thread, frames in stacks.items():
        frame, locks = _waiting(frames)
        if frame is None:
            continue
        holders = [(lock, other) for lock in locks for other in _holders(lock, thread, held)]
        lock, holder = holders[0] if holders else (locks[0], None)
        place = Place(frame.file, frame.line, frame.function, frame.source)
        found.append(LockWait(thread, lock, place, held[thread], holder))
    return found


def deadlock(waits: Sequence[LockWait]) -> list[LockWait]:
    """Threads of which each holds what the one before waits for, in a circle; [] without."""
    by_thread = {wait.thread: wait for wait in waits}
    for first in waits:
        circle = [first]
        while (following := by_thread.get(circle[-1].holder or first.thread)) is not None:
            if following is first:
                return circle if circle[-1].holder == first.thread else []
            if following in circle:
                break
            circle.append(following)
    return []


def stands_at_lock(frames: Sequence[Frame]) -> bool:
    """Whether a thread (frames root first) stands at a lock."""
    return _waiting(frames)[0] is not None


def _holders(lock: str, thread: Thread, held: Mapping[Thread, Sequence[str]]) -> list[Thread]:
    """The other threads of its process that hold this lock."""
    return [
        other
        for other, locks in held.items()
        if other != thread and other[0] == thread[0] and any(_bare(lock) == _bare(own) for own in locks)
    ]


def _waiting(frames: Sequence[Frame]) -> tuple[Frame | None, Sequence[str]]:
    """The line at which a thread waits for a lock, and the locks that this may be."""
    for frame in reversed(frames):
        if frame.user:
            found = _ACQUIRE.search(frame.source)
            locks = [found[1]] if found is not None else _names(_with_head(frame.source).split(","))
            return (frame, locks) if locks else (None, ())
        if not frame.file.endswith("threading.py"):
            break
    return None, ()


def _with_head(source: str) -> str:
    """What a ``with`` line enters; nothing of any other line."""
    return source[len("with") :].partition("#")[0].strip().removesuffix(":") if _WITH.match(source) else ""


def _held(frames: Sequence[Frame]) -> tuple[str, ...]:
    return tuple(name for frame in frames if frame.user for name in _names(frame.inside.split(",")))


def _names(expressions: Sequence[str]) -> list[str]:
    """The expressions that are names: what a block's head calls is made there, and is no lock that others know."""
    plain = (expression.strip().partition(" as ")[0] for expression in expressions)
    return [name for name in plain if _NAME.match(name)]


def _bare(lock: str) -> str:
    return lock.rpartition(".")[2]
