"""Where user ranges were opened and closed: what joins stack samples to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tuimon.agent.ring.layout import PLACE_SEPARATOR
from tuimon.records import RangePlace
from tuimon.sources.source_blocks import SourceBlocks
from tuimon.text import whole_number

#: Of one thread: a path is opened at a few places at most.
_LIMIT = 256


class _Site(NamedTuple):
    file: str
    function: str
    line: int


class RangePlaces:
    """Reports the place of each path once, and every further place that it has."""

    def __init__(self, name_of: Callable[[int], str], blocks: SourceBlocks | None = None) -> None:
        self._name_of = name_of
        self._blocks = blocks or SourceBlocks()
        self._seen: set[tuple[str, int, int]] = set()
        self._fresh: list[RangePlace] = []

    def add_place(self, path: str, opened: int, closed: int) -> None:
        """A range with this path has ended; name ids of the places it was opened and closed at, 0: not known."""
        key = (path, opened, closed)
        if key not in self._seen and len(self._seen) < _LIMIT:
            self._seen.add(key)
            place = self._place(path, opened, closed)
            if place is not None and place not in self._fresh:
                self._fresh.append(place)

    def take_places(self) -> list[RangePlace]:
        """The places not reported yet."""
        fresh, self._fresh = self._fresh, []
        return fresh

    def _place(self, path: str, opened: int, closed: int) -> RangePlace | None:
        begin, end = self._site(opened), self._site(closed) if closed else None
        if begin is None:
            return None
        if end is not None and end[:2] == begin[:2] and end.line > begin.line:
            return RangePlace(path, begin.file, begin.function, begin.line, end.line)
        # a ``with`` statement is left at the line it was entered at: its end is known from the source alone
        block = self._blocks.block(begin.file, begin.line, begin.function)
        return RangePlace(path, begin.file, begin.function, *block) if block is not None else None

    def _site(self, number: int) -> _Site | None:
        parts = self._name_of(number).split(PLACE_SEPARATOR)
        line = whole_number(parts[3]) if len(parts) == 4 else None
        return _Site(self._blocks.name_of(parts[1]), parts[2], line) if line is not None else None
