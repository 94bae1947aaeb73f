"""The stack samples of one window, in the shape of the stack file (ring/files.py)."""

import sys
from types import CodeType, FrameType
from typing import Any, Dict, List, Optional, Tuple, Type

from ..own_threads import dump, dumped, has_unsafe_dumps, has_unsafe_frames, place_of

#: Frames of a stack, counted from the innermost, and threads of a process.
MAX_DEPTH = 192
MAX_THREADS = 128


class CannotRead(Exception):
    """The stacks cannot be read; the text says why."""


class StackWindow:
    """A stack is a tuple of places, a place a line of a function; each is kept once."""

    def __init__(self) -> None:
        self.instants = self.cut = 0
        self._stacks: Dict[Tuple[int, ...], int] = {}
        self._threads: Dict[int, List[int]] = {}  # ident -> stacks in the order of the samples

    def sample(self, own: int) -> None:
        """Add the stacks of all threads but ``own``, a pthread id."""
        raise NotImplementedError

    def stack_of_thread(self, ident: int) -> Optional[int]:
        """The number of a thread's stack now; None where it has ended."""
        raise NotImplementedError

    def frames(self) -> List[Dict[str, Any]]:
        """The places by their numbers: name, file, line."""
        raise NotImplementedError

    def has_room(self, ident: int) -> bool:
        """True if samples of this thread are kept; one that has no room counts as cut."""
        if ident in self._threads or len(self._threads) < MAX_THREADS:
            return True
        self.cut += 1
        return False

    def add(self, ident: int, stack: Tuple[int, ...]) -> None:
        """Add a thread's stack, innermost place first."""
        self._threads.setdefault(ident, []).append(self.number_of(stack))

    def number_of(self, stack: Tuple[int, ...]) -> int:
        """The number of a stack, new or known."""
        return self._stacks.setdefault(stack, len(self._stacks))

    def stacks(self) -> List[Tuple[int, ...]]:
        """The stacks by their numbers, each from the outermost place to the innermost."""
        return [stack[::-1] for stack in self._stacks]

    def content(self) -> Dict[str, Any]:
        """The samples as the stack file holds them."""
        frames, stacks = self.frames(), self.stacks()
        profiles = [
            {"name": _label_of(ident), "samples": [stacks[number] for number in numbers]}
            for ident, numbers in self._threads.items()
        ]
        return {"profiles": profiles, "shared": {"frames": frames}, "instants": self.instants, "cut": self.cut}


class FrameWindow(StackWindow):
    """A window of stacks from the interpreter's frames; a frame whose thread goes on meanwhile keeps what it was."""

    def __init__(self) -> None:
        super().__init__()
        self._places: Dict[Tuple[int, int], int] = {}
        self._lines: List[Tuple[CodeType, int]] = []  # by place; keeps the code, so that its id is not reused

    def sample(self, own: int) -> None:
        """Add the stacks of all threads but ``own``."""
        self.instants += 1
        # No frame outlives this function: its locals would end later than in the plain program.
        for ident, frame in sys._current_frames().items():
            if ident != own and self.has_room(ident):
                self.add(ident, self._stack_of(frame))

    def stack_of_thread(self, ident: int) -> Optional[int]:
        """The number of a thread's stack now; None where it has ended."""
        frame = sys._current_frames().get(ident)
        return None if frame is None else self.number_of(self._stack_of(frame))

    def _stack_of(self, frame: Any) -> Tuple[int, ...]:
        places = self._places
        stack: List[int] = []
        while frame is not None and len(stack) < MAX_DEPTH:
            code = frame.f_code
            key = (id(code), frame.f_lasti)
            place = places.get(key)
            if place is None:
                place = self._add_place(key, code, frame)
            stack.append(place)
            frame = frame.f_back
        self.cut += frame is not None
        return tuple(stack)

    def _add_place(self, key: Tuple[int, int], code: CodeType, frame: FrameType) -> int:
        place = self._places[key] = len(self._lines)
        self._lines.append((code, frame.f_lineno or code.co_firstlineno))
        return place

    def frames(self) -> List[Dict[str, Any]]:
        """The places by their numbers."""
        return [{"name": code.co_name, "file": code.co_filename, "line": line} for code, line in self._lines]


class DumpedWindow(StackWindow):
    """A window of dumped stacks, for where frames of other threads are unsafe."""

    def __init__(self) -> None:
        super().__init__()
        self._places: Dict[bytes, int] = {}

    def sample(self, own: int) -> None:
        """Add the stacks of all threads but ``own``."""
        self.instants += 1
        for thread in dump():
            if thread.ident != own and self.has_room(thread.ident):
                self.cut += thread.is_cut
                self.add(thread.ident, tuple(map(self._number, thread.frames)))

    def stack_of_thread(self, ident: int) -> Optional[int]:
        """The number of a thread's stack now; None where it has ended."""
        for thread in dump():
            if thread.ident == ident:
                return self.number_of(tuple(map(self._number, thread.frames)))
        return None

    def frames(self) -> List[Dict[str, Any]]:
        """The places by their numbers."""
        return [{"name": at.name, "file": at.file, "line": at.line} for at in map(place_of, self._places)]

    def _number(self, frame: bytes) -> int:
        return self._places.setdefault(frame, len(self._places))


def safe_window() -> Type[StackWindow]:
    """The kind of window that harms nothing in this interpreter. Raises CannotRead."""
    if not has_unsafe_frames():
        return FrameWindow
    if has_unsafe_dumps():
        raise CannotRead("this Python has no GIL, and its stacks can be read from 3.13.2 on")
    if dumped() is None:
        raise CannotRead("the stacks of this Python cannot be written down")
    return DumpedWindow


def _label_of(ident: int) -> str:
    """How py-spy names a thread; where its OS id is unknown, which only ``threading`` has, by its pthread id."""
    known = getattr(sys.modules.get("threading"), "_active", {}).get(ident)
    tid = getattr(known, "native_id", None)
    return 'Thread %d "%s"' % (tid, getattr(known, "_name", "")) if tid else 'Thread 0x%X ""' % ident
