"""The join of stack samples to user ranges, by the places where these were opened and closed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from tuimon.records import Frame, RangePlace

#: The prefix of a filter by a user range; a filter by a phase is its bare name.
RANGE = "range:"
#: How many ranges of a process, and places of each, are held: names or places made in a loop must not fill memory.
_PATHS = 128
_PLACES_PER_PATH = 8


class RangeJoin:
    """The places of one process's ranges; which of its ranges a stack lies in."""

    def __init__(self) -> None:
        self._places: dict[str, list[RangePlace]] = {}  # by path, outer ones before those inside them

    @property
    def paths(self) -> tuple[str, ...]:
        """The ranges whose place is known."""
        return tuple(self._places)

    def add_places(self, places: Iterable[RangePlace]) -> bool:
        """Add places; whether any was new."""
        before = sum(map(len, self._places.values()))
        for place in places:
            if place.path in self._places or len(self._places) < _PATHS:
                known = self._places.setdefault(place.path, [])
                if place not in known and len(known) < _PLACES_PER_PATH:
                    known.append(place)
        if sum(map(len, self._places.values())) == before:
            return False
        self._places = dict(sorted(self._places.items()))
        return True

    def ranges_of(self, stack: Sequence[Frame]) -> tuple[str, ...]:
        """Paths of the ranges that a stack (root first) was sampled in, outer ones first.

        A range holds a stack if one of its frames lies within the range's place, inside the range around it.
        """
        if not self._places:
            return ()
        depths: dict[str, int] = {}  # path: the first frame within it
        for path in self._places:
            outer = next((outer for outer in _around(path) if outer in self._places), None)  # the innermost known one
            if outer is None or outer in depths:
                start, places = 0 if outer is None else depths[outer], self._places[path]
                inside = (i for i in range(start, len(stack)) if any(_holds(place, stack[i]) for place in places))
                depth = next(inside, None)
                if depth is not None:
                    depths[path] = depth
        return tuple(depths)


def _holds(place: RangePlace, frame: Frame) -> bool:
    return (
        place.first <= frame.line <= place.last and frame.function == place.function and place.file.endswith(frame.file)
    )


@lru_cache(maxsize=512)
def _around(path: str) -> tuple[str, ...]:
    """The paths around a path, innermost first."""
    names = path.split("/")
    return tuple("/".join(names[:length]) for length in range(len(names) - 1, 0, -1))
