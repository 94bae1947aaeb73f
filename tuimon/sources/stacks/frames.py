"""Frames of a stream: each distinct place gets a number once, with its source text if it is the user's own code."""

from __future__ import annotations

from typing import NamedTuple

from tuimon.records import Frame
from tuimon.sources.source_text import SourceText
from tuimon.torch_code import is_call_wrapper, is_user_file, marked_part

FRAME_LIMIT = 20_000
_NAME_CHARS = 300


class Place(NamedTuple):
    """A frame as py-spy names it."""

    file: str
    line: int
    function: str


class Kind(NamedTuple):
    """How a frame counts when stacks are shortened."""

    user: bool
    telling: str  # part of torch, or our hooks, that tells the phase; "" for all else
    silent: bool


def bare_name(function: str) -> str:
    """``Thread.run`` -> ``run``: py-spy qualifies names on some versions of Python only, markers never."""
    return function.rpartition(".")[2] or function


class FrameNumbers:
    """Numbers for places, counting from 0 over the whole stream; bounded, the last number stands for all others."""

    def __init__(self, limit: int = FRAME_LIMIT) -> None:
        self._numbers: dict[Place, int] = {}
        self._kinds: dict[str, Kind] = {}
        self._source = SourceText()
        self._limit = limit
        self._fresh: list[Frame] = []
        self._full: int | None = None

    def kind(self, place: Place) -> Kind:
        """How this frame counts when stacks are shortened."""
        kind = self._kinds.get(place.file)
        if kind is None:
            if len(self._kinds) > self._limit:
                self._kinds.clear()
            kind = self._kinds[place.file] = Kind(is_user_file(place.file), marked_part(place.file), False)
        return kind._replace(silent=True) if is_call_wrapper(place.file, place.function) else kind

    def number(self, place: Place, not_after_unix_s: float | None = None) -> int:
        """The number of a place; a new one is listed by the next ``take_new``."""
        known = self._numbers.get(place)
        if known is not None:
            return known
        if len(self._numbers) >= self._limit:
            if self._full is None:
                self._full = len(self._numbers)
                self._fresh.append(Frame("", 0, "(more frames)"))
            return self._full
        user = self.kind(place).user
        file, line, function = place
        source = self._source.line(file, line, not_after_unix_s) if user else ""
        self._numbers[place] = number = len(self._numbers)
        self._fresh.append(Frame(file[-_NAME_CHARS * 4 :], line, function[:_NAME_CHARS], source, user))
        return number

    def take_new(self) -> tuple[int, list[Frame]]:
        """The frames numbered since the last call, and the number of the first of them."""
        fresh, self._fresh = self._fresh, []
        total = len(self._numbers) + (self._full is not None)
        return total - len(fresh), fresh
