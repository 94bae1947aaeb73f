"""The loops of a process's threads, with their user ranges: which of them trains, and when each is forgotten."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

from msgspec import Struct, field

from tuimon.agent.ring import layout
from tuimon.agent.ring.layout import GAP_BEGIN, GAP_PAUSE, PLACE_SEPARATOR, PROFILER_ON, TRACED_STEPS, Marker, Passed
from tuimon.records import MORE_RANGES, RangePlace, RangeTime
from tuimon.sources.loop.machine import LoopMachine
from tuimon.sources.loop.step import Stretch
from tuimon.sources.source_facts import SourceBlocks
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


#: Threads followed at once, and how many are left when there are more: a ring may name any number of them.
_LOOPS = 256
_LEFT = 128


class ThreadLoop:
    """The loop of one thread and its user ranges."""

    def __init__(self, name_of: Callable[[int], str], blocks: SourceBlocks, tid: int = 0) -> None:
        self.tid = tid  # 0: not known
        self.machine = LoopMachine()
        self.ranges = RangeTracker(name_of, blocks)
        self.has_trained = False  # records cover it, or did once
        self.ended = False  # its thread
        self._passed = 0  # steps that ended while another thread was the training thread
        self._backwards = self._updates = 0  # until the last ``take_counts``

    @property
    def weight(self) -> tuple[int, int, int]:
        """How much this thread trains, or runs a model: the heaviest of a process is its training thread."""
        steps = self.machine.steps
        return steps.total_updates, steps.total_backwards, steps.total_forward

    @property
    def trains(self) -> bool:
        """True if it has made an update, or a backward."""
        return self.weight[:2] > (0, 0)

    @property
    def is_slowed(self) -> bool:
        """True if what goes on now is slowed, or was held up, by a profiler of ours."""
        return self.machine.steps.is_slowed

    def feed_profiler(self, marker: Marker) -> None:
        """A profiler of ours is switched on or off on the thread."""
        if marker.kind == PROFILER_ON:
            self.machine.steps.begin_profiler(marker.time_ns, traces=marker.flag == TRACED_STEPS)
        else:
            self.machine.steps.end_profiler()

    def feed_boundary(self, marker: Marker) -> Stretch:
        """The stretch that ends with this boundary of the thread."""
        stretch = self.machine.feed_marker(marker)
        self.ranges.add_stretch(stretch)
        return stretch

    def feed_gap(self, marker: Marker) -> Passed | None:
        """A GAP_* marker: in a gap boundaries were only counted; how many, at its end."""
        if marker.kind == GAP_BEGIN:
            self.ranges.add_stretch(self.machine.begin_gap(marker))
            return None
        if marker.kind == GAP_PAUSE:
            self.machine.steps.add_pause(marker.value)
            return None
        return self.machine.end_gap(marker)

    def lose_markers(self) -> None:
        """Markers were overwritten before they were read."""
        self.machine.lose_markers()

    def leave(self, time_ns: int) -> None:
        """The program has left the loop."""
        self.machine.leave_loop(time_ns)

    def take_counts(self) -> tuple[int, int]:
        """Backwards and updates since the last call."""
        steps = self.machine.steps
        counts = steps.total_backwards - self._backwards, steps.total_updates - self._updates
        self._backwards, self._updates = steps.total_backwards, steps.total_updates
        return counts

    def pass_window(self) -> None:
        """Let go of a window that no record covers; its steps are counted."""
        self._passed += self.machine.steps.take_ended().total
        self.ranges.take_sums()
        self.take_counts()

    def take_passed(self) -> int:
        """How many steps have ended in windows that no record covers."""
        passed, self._passed = self._passed, 0
        return passed


class ThreadLoops:
    """The loops of one process, by thread id; those of ended threads go, but for the latest that trained."""

    def __init__(self, name_of: Callable[[int], str], blocks: SourceBlocks) -> None:
        self.steps = 0  # of the process in windows that no record covers
        self._name_of = name_of
        self._blocks = blocks
        self._loops: dict[int, ThreadLoop] = {}

    def __len__(self) -> int:
        return len(self._loops)

    def of(self, tid: int) -> ThreadLoop:
        """The loop of a thread."""
        loop = self._loops.get(tid)
        if loop is None:
            if len(self._loops) >= _LOOPS:
                self._drop_lightest()
            loop = self._loops[tid] = ThreadLoop(self._name_of, self._blocks, tid)
        return loop

    def training(self) -> ThreadLoop | None:
        """The loop that trains: of a live thread, unless none of these does."""
        live = (loop for loop in self._loops.values() if loop.trains and not loop.ended)
        everything = self._loops.values()
        return max(live, key=_weight, default=None) or max(everything, key=_weight, default=None)

    def end_window(self, live: Callable[[], Collection[int] | None]) -> ThreadLoop | None:
        """The loop that the records of this window cover; ``live``: thread ids of the process, None: unknown."""
        training = self.training()
        if len(self._loops) > 1:
            self._drop_ended(live(), training)
            training = self.training()
        for loop in self._loops.values():
            if loop is not training:
                loop.pass_window()
        if training is not None:
            self.steps += training.take_passed()
            training.has_trained = True
        return training

    def finish(self) -> None:
        """The process has ended: what was held back is as whole as it will get."""
        for loop in self._loops.values():
            loop.machine.steps.finish()

    def lose_markers(self) -> None:
        """Markers of any thread were overwritten before they were read."""
        for loop in self._loops.values():
            loop.lose_markers()

    def pass_stop(self, duration_ns: int) -> None:
        """The process goes on after it was stopped for so long."""
        for loop in self._loops.values():
            loop.machine.pass_stop(duration_ns)

    def open_fetches(self) -> Iterator[Marker]:
        """The begin markers of fetches under way."""
        return (begin for loop in self._loops.values() for begin in loop.machine.open_fetches())

    def _drop_ended(self, live: Collection[int] | None, training: ThreadLoop | None) -> None:
        """Drop the loops of threads that had ended by the window before: by now their last markers are read."""
        if live is None:
            return
        for tid, loop in list(self._loops.items()):
            if loop.ended and loop is not training:
                self._drop(tid)
            loop.ended = tid not in live and tid != 0  # 0: not known which

    def _drop_lightest(self) -> None:
        training = self.training()
        ordered = sorted(self._loops, key=lambda tid: (self._loops[tid] is training, self._loops[tid].weight))
        for tid in ordered[:-_LEFT]:
            self._drop(tid)

    def _drop(self, tid: int) -> None:
        loop = self._loops.pop(tid)
        loop.machine.steps.finish()
        loop.pass_window()
        if loop.has_trained:
            self.steps += loop.take_passed()


def _weight(loop: ThreadLoop) -> tuple[int, int, int]:
    return loop.weight
