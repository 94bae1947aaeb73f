"""User ranges (``tuimon.phase``, NVTX) of one thread: nesting, times, their places, the phase most of each lay in."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from msgspec import Struct, field

from tuimon.agent.ring import layout
from tuimon.agent.ring.layout import PLACE_SEPARATOR
from tuimon.records import MORE_RANGES, RangePlace, RangeTime
from tuimon.sources.loop.step import Stretch
from tuimon.sources.source_blocks import SourceBlocks
from tuimon.text import whole_number

_DEPTH_LIMIT = 16
_PATH_LIMIT = 64
_AWAITING_LIMIT = 64
#: The limit of one thread: a path is opened at a few places at most.
_LIMIT = 256


class _Range(Struct):
    path: str
    start_ns: int
    opened: int  # name id, of the place as well
    end_ns: int = 0
    closed: int = 0  # name id of the place, 0: unknown
    by_phase: dict[str, int] = field(default_factory=dict)


class _Sum(Struct):
    count: int = 0
    total_ns: int = 0
    by_phase: dict[str, int] = field(default_factory=dict)


class RangeTracker:
    """Matches push with pop; ``take_sums`` gives the sums since the last call."""

    def __init__(self, name_of: Callable[[int], str], blocks: SourceBlocks | None = None) -> None:
        self._name_of = name_of
        self._places = RangePlaces(name_of, blocks)
        self._stack: list[_Range] = []
        self._depth = 0  # counts pushes beyond the limit too, so that pops match
        self._awaiting: list[_Range] = []  # ended inside a stretch that has no label yet
        self._sums: dict[str, _Sum] = {}
        self._counts = True

    def feed_marker(self, time_ns: int, kind: int, value: int, *, counts: bool = True) -> None:
        """Take a RANGE_* marker; without ``counts`` the range that ends here goes into no sum."""
        self._counts = counts
        if kind == layout.RANGE_PUSH:
            self._push(time_ns, value)
        elif kind == layout.RANGE_POP:
            self._pop(time_ns, value)

    @property
    def is_idle(self) -> bool:
        """True if no range is open, or waits for the phase that it ended in."""
        return not (self._stack or self._awaiting)

    def add_stretch(self, stretch: Stretch) -> None:
        """A stretch of the thread's time has got its phase."""
        if self.is_idle:
            return
        label, start_ns, end_ns = stretch.label, stretch.begin_ns, stretch.end_ns
        if start_ns == end_ns:
            return
        for open_range in self._stack:
            self._share(open_range, label, start_ns, end_ns)
        waiting, self._awaiting = self._awaiting, []
        for ended in waiting:
            self._share(ended, label, start_ns, min(end_ns, ended.end_ns))
            if ended.end_ns > end_ns:
                self._awaiting.append(ended)
            else:
                self._sum_up(ended)

    def take_sums(self) -> list[RangeTime]:
        """Sums since the last call, by path."""
        out = [
            RangeTime(path, s.count, s.total_ns, max(s.by_phase, key=s.by_phase.__getitem__, default="other"))
            for path, s in sorted(self._sums.items())
        ]
        self._sums = {}
        return out

    def take_places(self) -> list[RangePlace]:
        """Places that have not been reported yet."""
        return self._places.take_places()

    def _name(self, number: int) -> str:
        return self._name_of(number).split(PLACE_SEPARATOR, 1)[0].replace("/", "\u2215")

    def _push(self, time_ns: int, number: int) -> None:
        self._depth += 1
        if self._depth > _DEPTH_LIMIT:
            return
        name = self._name(number)
        path = f"{self._stack[-1].path}/{name}" if self._stack else name
        self._stack.append(_Range(path, time_ns, number))

    def _pop(self, time_ns: int, closed: int) -> None:
        self._depth = max(0, self._depth - 1)
        if self._depth < len(self._stack):
            self._end(self._stack.pop(), time_ns, closed)

    def _end(self, ended: _Range, time_ns: int, closed: int) -> None:
        if not self._counts:
            return
        ended.end_ns = time_ns
        ended.closed = closed
        self._awaiting.append(ended)
        if len(self._awaiting) > _AWAITING_LIMIT:
            self._sum_up(self._awaiting.pop(0))

    @staticmethod
    def _share(range_: _Range, label: str, start_ns: int, end_ns: int) -> None:
        overlap_ns = end_ns - max(start_ns, range_.start_ns)
        if overlap_ns > 0:
            range_.by_phase[label] = range_.by_phase.get(label, 0) + overlap_ns

    def _sum_up(self, ended: _Range) -> None:
        path = ended.path if ended.path in self._sums or len(self._sums) < _PATH_LIMIT else MORE_RANGES
        total = self._sums.setdefault(path, _Sum())
        if path is not MORE_RANGES:
            self._places.add_place(path, ended.opened, ended.closed)
        total.count += 1
        total.total_ns += max(ended.end_ns - ended.start_ns, 0)
        for label, duration_ns in ended.by_phase.items():
            total.by_phase[label] = total.by_phase.get(label, 0) + duration_ns


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
