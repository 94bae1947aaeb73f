"""The stacks of all threads of an interpreter at one instant, as places in code."""

from __future__ import annotations

from .code_objects import Code, CodeObjects
from .debug_offsets import DebugOffsets
from .memory import ProcessMemory, Unreadable, word

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator, Tuple

    #: A place: the code and the code unit that runs.
    Place = Tuple[Code, int]


#: Interpreters and threads that are followed, pieces of a thread's stack, and how large one may be.
_MAX_LISTED = 4096
_MAX_CHUNKS = 64
_CHUNK_BYTES = 1 << 20
_CHUNK_HEAD_BYTES = 24  # the previous piece, its size, what of it is in use
#: Frames from this owner on are no function's: the interpreter has one below each function that C has called.
_OWNED_BY_INTERPRETER = 3
#: A stack that changes while it is copied is copied again, so often at most.
_TRIES = 3
#: References carry marks in their lowest bits.
_REFERENCE_MARKS = 7


class ThreadStack:
    """A thread and its places, innermost first; None where it changed too fast. ``cut``: it is deeper than that."""

    __slots__ = ("cut", "ident", "places", "tid")

    def __init__(self, ident: int, tid: int, places: list[Place] | None, cut: bool = False) -> None:
        """``ident``: its pthread id."""
        self.ident = ident
        self.tid = tid
        self.places = places
        self.cut = cut


class ThreadStacks:
    """Reads one process; the code objects that it comes across are remembered until ``forget``."""

    def __init__(self, memory: ProcessMemory, offsets: DebugOffsets, max_depth: int) -> None:
        self._memory = memory
        self._offsets = offsets
        self._max_depth = max_depth
        self._codes = CodeObjects(memory, offsets)
        names = ("next", "current_frame", "thread_id", "native_thread_id", "datastack_chunk")
        self._thread_bytes = 8 + max(offsets["thread." + name] for name in names)

    def forget(self) -> None:
        """Read code anew from now on."""
        self._codes = CodeObjects(self._memory, self._offsets)

    def sample(self, without: int = 0, only: int = 0) -> Iterator[ThreadStack]:
        """All threads that run Python, or ``only`` one, but ``without`` (pthread ids).

        Raises Unreadable when their list cannot be followed.
        """
        for address in self._thread_states():
            state = self._memory.read(address, self._thread_bytes)
            ident, tid = (word(state, self._offsets["thread." + name]) for name in ("thread_id", "native_thread_id"))
            if tid and ident != without and only in (0, ident) and word(state, self._offsets["thread.current_frame"]):
                yield self._thread(address, ident, tid)

    def _thread_states(self) -> list[int]:
        offsets, memory = self._offsets, self._memory
        found: list[int] = []
        interpreter = memory.word(offsets.runtime + offsets["runtime.interpreters_head"])
        for _ in range(_MAX_LISTED):
            if not interpreter:
                break
            thread = memory.word(interpreter + offsets["interpreter.threads_head"])
            while thread and len(found) < _MAX_LISTED:
                found.append(thread)
                thread = memory.word(thread + offsets["thread.next"])
            interpreter = memory.word(interpreter + offsets["interpreter.next"])
        return found

    def _thread(self, address: int, ident: int, tid: int) -> ThreadStack:
        """A copy that was taken while the thread stayed in one frame; else the last copy that is whole.

        That one may hold frames of two moments some microseconds apart: up to 1 in 200 where functions take 1 us.
        """
        frame_at = address + self._offsets["thread.current_frame"]
        found = ThreadStack(ident, tid, None)
        for _ in range(_TRIES):
            try:
                state = self._memory.read(address, self._thread_bytes)
                # the frame is read before the pieces: what it calls meanwhile lies above it
                frame = word(state, self._offsets["thread.current_frame"])
                chunks = self._chunks(word(state, self._offsets["thread.datastack_chunk"]))
                is_still = self._memory.word(frame_at) == frame
                found = ThreadStack(ident, tid, *self._places(frame, chunks))
            except Unreadable:
                continue
            if is_still:
                break
        return found

    def _chunks(self, chunk: int) -> list[tuple[int, bytes]]:
        """The pieces of a thread's stack, the newest first."""
        found: list[tuple[int, bytes]] = []
        while chunk and len(found) < _MAX_CHUNKS:
            size = self._memory.word(chunk + 8)
            if not _CHUNK_HEAD_BYTES <= size <= _CHUNK_BYTES:
                raise Unreadable("a damaged stack")
            content = self._memory.read(chunk, size)
            found.append((chunk, content))
            chunk = word(content, 0)
        return found

    def _places(self, frame: int, chunks: list[tuple[int, bytes]]) -> tuple[list[Place], bool]:
        offsets = self._offsets
        places: list[Place] = []
        while len(places) < self._max_depth:
            content, at = self._frame(frame, chunks)
            previous = word(content, at + offsets["frame.previous"])
            if content[at + offsets["frame.owner"]] < _OWNED_BY_INTERPRETER:
                places.append(self._place(content, at))
            elif not previous:
                return places, False
            if not previous or previous == frame:
                raise Unreadable("a stack without its outermost frame")
            frame = previous
        return places, True

    def _frame(self, frame: int, chunks: list[tuple[int, bytes]]) -> Tuple[bytes, int]:
        """A frame in a copied piece, or on its own: those of generators and of the interpreter lie elsewhere."""
        for address, content in chunks:
            if address <= frame <= address + len(content) - self._offsets["frame.size"]:
                return content, frame - address
        return self._memory.read(frame, self._offsets["frame.size"]), 0

    def _place(self, content: bytes, at: int) -> Place:
        offsets = self._offsets
        code = self._codes.at(word(content, at + offsets["frame.executable"]) & ~_REFERENCE_MARKS)
        copy_at = offsets.get("frame.tlbc_index")
        copy = int.from_bytes(content[at + copy_at : at + copy_at + 4], "little") if copy_at else 0
        return code, self._codes.unit_of(code, word(content, at + offsets["frame.instr_ptr"]), copy)
