"""The stacks of all threads of this process as ``faulthandler`` writes them, for Python 3.11.

There ``sys._current_frames()`` and ``f_back`` make frame objects on demand, which may begin a garbage
collection. Whatever that runs can let another thread go on, and if this is the one whose frame it is, it returns: the
frame object is then made of memory that is free (``_PyFrame_MakeAndSetFrameObject``). Trainings whose stacks were
sampled that way while threads came and went crashed within minutes. Before 3.11 frames are objects from the start, and
from 3.12 on a collection waits for the next instruction. ``faulthandler`` makes none, and nobody runs meanwhile.
"""

import os
import re
from typing import Dict, Iterator, List, NamedTuple, Optional

from .stack_window import StackWindow, label_of

_THREAD = re.compile(rb"(?:Current thread|Thread) 0x([0-9a-f]+) \(most recent call first\):")
_PLACE = re.compile(rb'  File (?:"(.*)"|\?\?\?), line (\d+|\?\?\?) in (.*)')
#: Stands for the frames that are left out: of a stack of more than 100, its outermost ones.
_CUT = b"  ..."
_ESCAPED = re.compile(r"\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|U([0-9a-f]{8}))")


class DumpedThread(NamedTuple):
    """A thread by its pthread id, and its frames as they were written, innermost first."""

    ident: int
    frames: List[bytes]
    is_cut: bool


class DumpedPlace(NamedTuple):
    """What a frame runs."""

    file: str
    line: int
    name: str


def dump() -> Iterator[DumpedThread]:
    """All threads that run Python now, the calling one among them; raises OSError where no file can be made."""
    import faulthandler

    handle = os.memfd_create("stacks", os.MFD_CLOEXEC)
    try:
        faulthandler.dump_traceback(handle, all_threads=True)
        raw = os.pread(handle, os.fstat(handle).st_size, 0)
    finally:
        os.close(handle)
    for text in raw.split(b"\n\n"):
        head, *lines = text.splitlines() or [b""]
        thread = _THREAD.match(head)
        if thread is not None:
            frames = [line for line in lines if line.startswith(b"  File ")]
            yield DumpedThread(int(thread[1], 16), frames, _CUT in lines)


def place_of(frame: bytes) -> DumpedPlace:
    """A frame of a dump, read."""
    found = _PLACE.match(frame)
    if found is None:
        return DumpedPlace("", 0, "?")
    file, line, name = found.groups()
    return DumpedPlace(_text(file or b""), int(line) if line.isdigit() else 0, _text(name))


def _text(raw: bytes) -> str:
    """Characters beyond ASCII stand as Python's escapes."""
    return _ESCAPED.sub(lambda found: chr(int(found[1] or found[2] or found[3], 16)), raw.decode("ascii", "replace"))


class DumpedWindow(StackWindow):
    """A window of such stacks."""

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

    def frames(self) -> "List[Dict[str, object]]":
        """The places by their numbers."""
        return [{"name": at.name, "file": at.file, "line": at.line} for at in map(place_of, self._places)]

    def label(self, ident: int) -> str:
        """The thread's name in ``threading``."""
        return label_of(ident)

    def _number(self, frame: bytes) -> int:
        return self._places.setdefault(frame, len(self._places))
