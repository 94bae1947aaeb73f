"""The loops of a process's threads, with their user ranges: finds the one that trains, and forgets old ones."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from msgspec import Struct, field

from tuimon.agent.ring.layout import PLACE_SEPARATOR
from tuimon.bounds import HELD, has_room
from tuimon.proc.ring_facts import RawFrame
from tuimon.records import MORE_RANGES, RangePlace, RangeTime
from tuimon.sources.loop.machine import LoopMachine
from tuimon.sources.loop.step import MarkedStretch
from tuimon.sources.source_facts import ProcessCode
from tuimon.text import whole_number


class _Range(Struct):
    path: str
    start_ns: int
    opened: int  # name id, of the place as well
    end_ns: int = 0
    closed: int = 0  # name id of the place, 0: unknown
    by_phase: dict[str, int] = field(default_factory=dict)

    def add_time(self, label: str, begin_ns: int, end_ns: int) -> None:
        """Add the time that the range shares with a stretch."""
        overlap_ns = end_ns - max(begin_ns, self.start_ns)
        if overlap_ns > 0:
            self.by_phase[label] = self.by_phase.get(label, 0) + overlap_ns


class _Sum(Struct):
    count: int = 0
    total_ns: int = 0
    by_phase: dict[str, int] = field(default_factory=dict)


class RangeTracker:
    """Matches the ends of a thread's ranges with their beginnings; sums them by path, and reports each place once."""

    def __init__(self, name_of: Callable[[int], str], code: ProcessCode | None = None) -> None:
        self._name_of = name_of
        self._code = code or ProcessCode()
        self.open: list[_Range] = []
        self._depth = 0  # counts begins beyond the limit too, so that ends match
        self.awaiting: list[_Range] = []  # ended inside a stretch that has no label yet
        self._sums: dict[str, _Sum] = {}
        self._seen: set[tuple[str, int, int]] = set()  # path, and the name ids of places
        self._places: list[RangePlace] = []  # not reported yet

    def begin(self, time_ns: int, opened: int) -> None:
        """A range begins; ``opened``: name id, of the place as well."""
        self._depth += 1
        if self._depth > 16:
            return
        name = self._name_of(opened).split(PLACE_SEPARATOR, 1)[0].replace("/", "\u2215")
        path = f"{self.open[-1].path}/{name}" if self.open else name
        self.open.append(_Range(path, time_ns, opened))

    def end(self, time_ns: int, closed: int, *, counts: bool = True) -> None:
        """End the latest range; ``closed``: name id of the place, 0: unknown. Without ``counts`` it is in no sum."""
        self._depth = max(0, self._depth - 1)
        if self._depth >= len(self.open):
            return
        ended = self.open.pop()
        if not counts:
            return
        ended.end_ns, ended.closed = time_ns, closed
        self.awaiting.append(ended)
        if len(self.awaiting) > HELD:
            self._sum_up(self.awaiting.pop(0))

    def add_stretch(self, stretch: MarkedStretch) -> None:
        """Add a stretch, with its phase, to the ranges that it lies in."""
        label, begin_ns, end_ns = stretch.label, stretch.begin_ns, stretch.end_ns
        if begin_ns == end_ns:
            return
        for each in self.open:
            each.add_time(label, begin_ns, end_ns)
        awaiting, self.awaiting = self.awaiting, []
        for each in awaiting:
            each.add_time(label, begin_ns, min(end_ns, each.end_ns))
            if each.end_ns > end_ns:
                self.awaiting.append(each)
            else:
                self._sum_up(each)

    def take_sums(self) -> list[RangeTime]:
        """Sums since the last call, by path."""
        sums, self._sums = self._sums, {}
        return [
            RangeTime(path, s.count, s.total_ns, max(s.by_phase, key=s.by_phase.__getitem__, default="other"))
            for path, s in sorted(sums.items())
        ]

    def take_places(self) -> list[RangePlace]:
        """Places that have not been reported yet."""
        places, self._places = self._places, []
        return places

    def _sum_up(self, ended: _Range) -> None:
        path = ended.path if ended.path in self._sums or len(self._sums) < 64 else MORE_RANGES
        total = self._sums.setdefault(path, _Sum())
        if path is not MORE_RANGES:
            self.add_place(path, ended.opened, ended.closed)
        total.count += 1
        total.total_ns += max(ended.end_ns - ended.start_ns, 0)
        for label, duration_ns in ended.by_phase.items():
            total.by_phase[label] = total.by_phase.get(label, 0) + duration_ns

    def add_place(self, path: str, opened: int, closed: int) -> None:
        """Note where a range was opened and closed, by the name ids of these places; 0: unknown."""
        key = (path, opened, closed)
        if key in self._seen or not has_room(self._seen, key):
            return
        self._seen.add(key)
        begin, end = self._site(opened), self._site(closed) if closed else None
        if begin is None:
            return
        (file, line, function), last = begin, None
        if end is not None and end.code == begin.code and end.line > line:
            last = end.line
        else:
            # a ``with`` statement is left at the line it was entered at: its end is known from the source alone
            block = self._code.facts(file).block(line, function)
            if block is not None:
                line, last = block
        place = RangePlace(path, file, function, line, last) if last is not None else None
        if place is not None and place not in self._places:
            self._places.append(place)

    def _site(self, number: int) -> RawFrame | None:
        parts = self._name_of(number).split(PLACE_SEPARATOR)
        line = whole_number(parts[3]) if len(parts) == 4 else None
        return self._code.named(RawFrame(parts[1], line, parts[2])) if line is not None else None


class ThreadLoop:
    """The loop of one thread and its user ranges."""

    def __init__(self, name_of: Callable[[int], str], code: ProcessCode, tid: int = 0) -> None:
        self.tid = tid  # 0: not known
        self.machine = LoopMachine()
        self.steps = self.machine.steps
        self.ranges = RangeTracker(name_of, code)
        self.has_trained = False  # True if records cover it, or once did
        self.ended = False  # True if its thread has
        self.passed = 0  # steps that ended while another thread was the training thread
        self._backwards = self._updates = 0  # until the last ``take_counts``

    @property
    def weight(self) -> tuple[int, int, int]:
        """How much this thread trains, or runs a model: the heaviest of a process is its training thread."""
        return self.steps.total_updates, self.steps.total_backwards, self.steps.total_forward

    @property
    def trains(self) -> bool:
        """True if it has made an update, or a backward."""
        return self.steps.total_updates > 0 or self.steps.total_backwards > 0

    def take_counts(self) -> tuple[int, int]:
        """Backwards and updates since the last call."""
        counts = self.steps.total_backwards - self._backwards, self.steps.total_updates - self._updates
        self._backwards, self._updates = self.steps.total_backwards, self.steps.total_updates
        return counts

    def pass_window(self) -> None:
        """Drop a window that no record covers, except for the count of its steps."""
        self.passed += sum(step.count for step in self.steps.take_ended())
        self.steps.take_evaluation()
        self.steps.begins_anew = False
        self.ranges.take_sums()
        self.take_counts()


class ThreadLoops:
    """The loops of one process, by thread id; loops of ended threads are dropped, except the latest that trained."""

    def __init__(self, name_of: Callable[[int], str], code: ProcessCode) -> None:
        self.steps = 0  # of the process in windows that no record covers
        self._name_of = name_of
        self._code = code
        self._loops: dict[int, ThreadLoop] = {}

    def __iter__(self) -> Iterator[ThreadLoop]:
        return iter(self._loops.values())

    def of(self, tid: int) -> ThreadLoop:
        loop = self._loops.get(tid)
        if loop is None:
            if len(self._loops) >= HELD:  # the lighter half goes
                training = self.training()
                ordered = sorted(self._loops, key=lambda tid: (self._loops[tid] is training, self._loops[tid].weight))
                for lightest in ordered[: -HELD // 2]:
                    self._drop(lightest)
            loop = self._loops[tid] = ThreadLoop(self._name_of, self._code, tid)
        return loop

    def training(self) -> ThreadLoop | None:
        """The loop that trains; that of a live thread, if there is one."""
        if len(self._loops) == 1:
            return next(iter(self))
        live = [loop for loop in self if loop.trains and not loop.ended]
        return max(live or self, key=lambda loop: loop.weight, default=None)

    def end_window(self, live: Callable[[], Collection[int] | None]) -> ThreadLoop | None:
        """The loop that the records of this window cover; ``live``: thread ids of the process, None: unknown."""
        training = self.training()
        threads = live() if len(self._loops) > 1 else None
        if threads is not None:
            for tid, loop in list(self._loops.items()):
                if loop.ended and loop is not training:  # by the window before: by now its last markers are read
                    self._drop(tid)
                loop.ended = tid not in threads and tid != 0  # 0: not known which
            training = self.training()
        for loop in self:
            if loop is not training:
                loop.pass_window()
        if training is not None:
            self.steps += training.passed
            training.passed, training.has_trained = 0, True
        return training

    def _drop(self, tid: int) -> None:
        loop = self._loops.pop(tid)
        loop.steps.finish()
        loop.pass_window()
        if loop.has_trained:
            self.steps += loop.passed
