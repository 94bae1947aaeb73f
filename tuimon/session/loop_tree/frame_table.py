"""Frames by id, each with what it is in a training loop."""

from __future__ import annotations

from collections.abc import Iterable
from typing import get_args

from msgspec.structs import astuple

from tuimon.records import CountSetting, Frame, Kept, Place
from tuimon.session.loop_tree.roles import Block, FrameKind, Role, block_of, frame_kind, roles_of

#: How many frames of a log are held; what lies beyond has no name.
_FRAMES_LIMIT = 50_000
#: Most lines that are held of those that set how many threads, or workers, there are; and of those that keep.
_COUNTS_LIMIT, _KEEPING_LIMIT = 16, 4
#: A function's file and its bare name.
Function = tuple[str, str]


class KnownFrame(Frame, frozen=True, gc=False, eq=False, kw_only=True):
    """A frame, and what it is in a training loop; there is one for each id, so that equal ones are the same."""

    id: int
    code: Function
    kind: FrameKind = "none"
    roles: frozenset[Role] = frozenset()
    block: Block | None = None

    @classmethod
    def of(cls, frame: Frame, number: int) -> KnownFrame:
        """The facts known of a frame, with this id."""
        return cls(
            *astuple(frame),
            id=number,
            code=(frame.file, frame.function),
            kind=frame_kind(frame),
            roles=roles_of(frame),
            block=block_of(frame),
        )


_UNKNOWN = KnownFrame("", 0, "?", id=-1, code=("", "?"))


class FrameTable:
    """Frames by id, over all processes of a stream; bounded."""

    def __init__(self) -> None:
        #: The lines of code that set these.
        self.counts: dict[CountSetting, list[Place]] = {what: [] for what in get_args(CountSetting)}
        self.keeping: dict[Kept, list[Place]] = {}  # lines that keep one more of these each step
        self._frames: dict[int, KnownFrame] = {}
        self._texts: dict[str, dict[int, str]] = {}  # lines of code by file and number, as far as frames brought them

    def add_frames(self, first: int, frames: list[Frame]) -> None:
        """Add frames, with ids from ``first`` on."""
        for number, frame in enumerate(frames, first):
            if len(self._frames) < _FRAMES_LIMIT:
                self._frames[number] = KnownFrame.of(frame, number)
                if frame.source:
                    self._texts.setdefault(frame.file, {})[frame.line] = frame.source
                for one in frame.counts:
                    self._note_count(one.what, Place(frame.file, one.line, one.function, one.source))
                for line in frame.keeping:
                    places = self.keeping.setdefault(line.kept, [])
                    if len(places) < _KEEPING_LIMIT:
                        places.append(Place(frame.file, line.line, line.function, line.source))

    def _note_count(self, what: CountSetting, place: Place) -> None:
        places = self.counts[what]
        if len(places) < _COUNTS_LIMIT and place not in places:
            places.append(place)

    def __getitem__(self, number: int) -> KnownFrame:
        return self._frames.get(number, _UNKNOWN)

    def stack(self, numbers: Iterable[int]) -> tuple[KnownFrame, ...]:
        """The frames with these ids."""
        known = self._frames
        return tuple([known.get(number, _UNKNOWN) for number in numbers])

    def lines_near(self, file: str, line: int, around: int) -> list[tuple[int, str]]:
        """The lines of code from ``around`` before to ``around`` after one that samples have brought, numbered."""
        texts = self._texts.get(file, {})
        return [(n, texts[n]) for n in range(line - around, line + around + 1) if n in texts]
