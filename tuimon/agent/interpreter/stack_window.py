"""The stack samples of one window, in the shape of the stack file (ring/stack_file.py)."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: Frames of a stack, counted from the innermost, and threads of a process.
MAX_DEPTH = 192
MAX_THREADS = 128


class StackWindow:
    """A stack is a tuple of places, a place a line of a function; each is kept once."""

    def __init__(self, max_threads: int = MAX_THREADS) -> None:
        self.instants = self.cut = 0
        self._max_threads = max_threads
        self._stacks: dict[tuple[int, ...], int] = {}
        self._threads: dict[int, list[int]] = {}  # ident -> stacks in the order of the samples

    def sample(self, own: int) -> None:
        """Add the stacks of all threads but ``own``, a pthread id."""
        raise NotImplementedError

    def stack_of_thread(self, ident: int) -> int | None:
        """The number of a thread's stack now; None where there is none."""
        raise NotImplementedError

    def frames(self) -> list[dict[str, Any]]:
        """The places by their numbers: name, file, line."""
        raise NotImplementedError

    def label(self, ident: int) -> str:
        """How py-spy names a thread: ``Thread <OS id> "<name>"``."""
        raise NotImplementedError

    def has_room(self, ident: int) -> bool:
        """Whether samples of this thread are kept; one that has no room counts as cut."""
        if ident in self._threads or len(self._threads) < self._max_threads:
            return True
        self.cut += 1
        return False

    def add(self, ident: int, stack: tuple[int, ...]) -> None:
        """Add a thread's stack, innermost place first."""
        self._threads.setdefault(ident, []).append(self.number_of(stack))

    def number_of(self, stack: tuple[int, ...]) -> int:
        """The number of a stack, new or known."""
        return self._stacks.setdefault(stack, len(self._stacks))

    def stacks(self) -> list[tuple[int, ...]]:
        """The stacks by their numbers, each from the outermost place to the innermost."""
        return [stack[::-1] for stack in self._stacks]

    def content(self) -> dict[str, Any]:
        """The samples as the stack file holds them."""
        frames, stacks = self.frames(), self.stacks()
        profiles = [
            {"name": self.label(ident), "samples": [stacks[number] for number in numbers]}
            for ident, numbers in self._threads.items()
        ]
        return {"profiles": profiles, "shared": {"frames": frames}, "instants": self.instants, "cut": self.cut}


def thread_label(tid: int, name: str) -> str:
    """A thread whose OS id is known."""
    return 'Thread %d "%s"' % (tid, name)


def known_thread(ident: int) -> tuple[str, int]:
    """Name and OS id of a thread as ``threading`` knows them; 0 where it does not."""
    known = getattr(sys.modules.get("threading"), "_active", {}).get(ident)
    return getattr(known, "_name", ""), getattr(known, "native_id", None) or 0


def label_of(ident: int) -> str:
    """A thread of this process; where the OS id is unknown, which only ``threading`` has, by its pthread id."""
    name, tid = known_thread(ident)
    return thread_label(tid, name) if tid else 'Thread 0x%X ""' % ident
