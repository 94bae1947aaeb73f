"""The time in which a GPU's main stream ran nothing, by cause; and the CPU's waits for the GPU."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import Literal, NamedTuple

from tuimon.trace.events import Events, Kind, Stretch, Stretches
from tuimon.trace.gpu import Gpu, Intervals, Launch
from tuimon.trace.nesting import Nesting

#: ``data``: the CPU waited for a batch. ``sync``: it had waited for the GPU, and had to launch anew. ``memory``: the
#: allocator called the driver, which waits. ``launch``: it was busy launching, or with Python. ``copy``: a copy ran.
#: ``other stream``: the work was launched, and waited for work of another stream. ``start``: the few microseconds that
#: a launched work takes to start. ``unknown``: the call that launched the work is not in the trace.
Cause = Literal["data", "sync", "memory", "launch", "copy", "other stream", "start", "unknown"]
#: A work that was launched starts within this time, unless it waits: 2-3 us on CUDA, on MI300X in 19 of 20 cases 10.
_STARTS_NS = 20_000
#: A gap is one from here on: works that are queued follow each other after 1-3 us.
_LEAST_NS = 4_000
_MEMORY = ("Malloc", "Free", "HostAlloc", "MemPool", "MemCreate", "MemMap", "MemUnmap", "MemRelease")
_COPIES = ("Memcpy", "memcpy")
#: A copy from pageable memory takes at most this long on the CPU by itself, to be staged: 12 to 26 us were recorded.
_STAGING_NS = 20_000


class Gap(NamedTuple):
    """A part of a gap in the main stream that has one cause."""

    begin_ns: int
    end_ns: int
    cause: Cause
    what: str  # the operator or call that the cause is of; "" where there is none
    phase: str  # that the CPU was in when it launched what came next
    python: int  # event of the user's function; -1 where it is not known

    @property
    def length_ns(self) -> int:
        """How long it is."""
        return self.end_ns - self.begin_ns


class _Calls:
    """The runtime calls of one thread that may hold it up, by their beginning."""

    def __init__(self) -> None:
        self.begins: list[int] = []
        self.indices: list[int] = []

    def overlapping(self, events: Events, begin_ns: int, end_ns: int) -> Iterator[int]:
        """The calls that were under way in a stretch; nested ones too, the longest back a thousand calls."""
        last = bisect_left(self.begins, end_ns)
        first = max(0, bisect_right(self.begins, begin_ns) - 8)
        return (i for i in self.indices[first:last] if events.end_ns[i] > begin_ns)


class GapFinder:
    """Finds the gaps of one GPU."""

    def __init__(self, events: Events, nesting: Nesting, phases: Stretches, gpu: Gpu) -> None:
        self._events = events
        self._nesting = nesting
        self._phases = phases
        self._gpu = gpu
        self._calls: dict[int, _Calls] = defaultdict(_Calls)  # of each thread
        for i in range(len(events)):
            if events.kind[i] == Kind.RUNTIME and _holds_up(events.name_of(i)):
                calls = self._calls[events.track[i]]
                calls.begins.append(events.begin_ns[i])
                calls.indices.append(i)
        others = (i for track, works in gpu.streams.items() if track != gpu.main for i in works)
        self._others = Intervals((events.begin_ns[i], events.end_ns[i]) for i in others)

    def gaps(self, whole: Stretch) -> Iterator[Gap]:
        """The gaps before works that were launched in a stretch."""
        events, gpu = self._events, self._gpu
        kernels = [i for i in gpu.streams[gpu.main] if events.kind[i] == Kind.KERNEL]
        done_ns = 0
        for before, after in pairwise(kernels):
            done_ns = max(done_ns, events.end_ns[before])
            called_ns = gpu.called_ns(events, after)
            if events.begin_ns[after] - done_ns >= _LEAST_NS and whole.begin_ns <= called_ns < whole.end_ns:
                yield from self._divided(done_ns, after)

    def _divided(self, begin_ns: int, after: int) -> Iterator[Gap]:
        """First nothing had been launched, or a copy came first; then the kernel was launched, and waited."""
        events, gpu = self._events, self._gpu
        end_ns = events.begin_ns[after]
        launch = gpu.launches.get(events.correlation[after])
        called_ns = min(max(begin_ns, launch.begin_ns), end_ns) if launch is not None else begin_ns
        phase = self._phases.name_at(launch.begin_ns) if launch is not None else ""
        cursor_ns = begin_ns
        for copy_begin_ns, copy_end_ns in gpu.copies.parts_in(begin_ns, end_ns):
            yield from self._host(cursor_ns, min(copy_begin_ns, called_ns), launch, phase, after)
            yield from self._held_up(max(cursor_ns, called_ns), copy_begin_ns, phase, after)
            yield Gap(copy_begin_ns, copy_end_ns, "copy", self._copy_name(copy_begin_ns), phase, self._user(launch))
            cursor_ns = copy_end_ns
        yield from self._host(cursor_ns, called_ns, launch, phase, after)
        yield from self._held_up(max(cursor_ns, called_ns), end_ns, phase, after)

    def _held_up(self, begin_ns: int, end_ns: int, phase: str, after: int) -> Iterator[Gap]:
        """A work that had been launched did not run."""
        if end_ns <= begin_ns:
            return
        launch = self._gpu.launches.get(self._events.correlation[after])
        cause: Cause = "start" if launch is not None else "unknown"
        what = ""
        others_ns = self._others.within_ns(begin_ns, end_ns)
        if launch is not None and (end_ns - begin_ns > _STARTS_NS or others_ns * 2 > end_ns - begin_ns):
            cause, what = "other stream", self._other_work(begin_ns, end_ns)
        yield Gap(begin_ns, end_ns, cause, what, phase, self._user(launch))

    def _host(self, begin_ns: int, end_ns: int, launch: Launch | None, phase: str, after: int) -> Iterator[Gap]:
        """The CPU had launched nothing."""
        if end_ns <= begin_ns or launch is None:
            return
        events = self._events
        held = self._held_by(begin_ns, end_ns, events.track[launch.call])
        operator = self._nesting.operator[launch.call]
        cause: Cause = "launch"
        what = events.name_of(operator) if operator >= 0 else events.name_of(launch.call)
        python = self._user(launch)
        if held is not None:
            cause, what, python = self._cause_of(held), self._call_name(held), self._nesting.python[held]
        elif self._in_data_ns(begin_ns, end_ns) * 2 > end_ns - begin_ns:
            cause, what, phase = "data", "", "data"
        yield Gap(begin_ns, end_ns, cause, what, phase, python)

    def _held_by(self, begin_ns: int, end_ns: int, track: int) -> int | None:
        """The call that held the launching thread up as the gap began, or for most of it."""
        events = self._events
        best, best_ns = None, 0
        for i in self._calls[track].overlapping(events, begin_ns, end_ns):
            length_ns = min(events.end_ns[i], end_ns) - max(events.begin_ns[i], begin_ns)
            if events.begin_ns[i] <= begin_ns and is_sync(events.name_of(i)):  # it waited until the stream was empty
                return i
            if length_ns > best_ns:
                best, best_ns = i, length_ns
        return best if best_ns * 2 > end_ns - begin_ns else None

    def _cause_of(self, call: int) -> Cause:
        name = self._events.name_of(call)
        if is_sync(name):
            return "sync"
        return "memory" if any(part in name for part in _MEMORY) else "copy"

    def _call_name(self, call: int) -> str:
        """``aten::item: cudaStreamSynchronize``."""
        operator = self._outermost(call)
        name = self._events.name_of(call)
        return f"{self._events.name_of(operator)}: {name}" if operator >= 0 else name

    def _outermost(self, index: int) -> int:
        """The operator that the user called: the outermost around an event."""
        found = -1
        operator = self._nesting.operator[index]
        while operator >= 0:
            found, operator = operator, self._nesting.operator[operator]
        return found

    def _in_data_ns(self, begin_ns: int, end_ns: int) -> int:
        parts = ((p.begin_ns, p.end_ns) for p in self._phases.all if p.name == "data")
        return sum(max(0, min(end, end_ns) - max(begin, begin_ns)) for begin, end in parts)

    def _copy_name(self, begin_ns: int) -> str:
        events = self._events
        for works in self._gpu.streams.values():
            at = bisect_right(works, begin_ns, key=lambda i: events.begin_ns[i]) - 1
            if at >= 0 and events.kind[works[at]] != Kind.KERNEL and events.end_ns[works[at]] > begin_ns:
                return events.name_of(works[at])
        return ""

    def _other_work(self, begin_ns: int, end_ns: int) -> str:
        """The work of another stream that ran longest in a stretch."""
        events = self._events
        best, best_ns = "", 0
        for track, works in self._gpu.streams.items():
            if track == self._gpu.main:
                continue
            last = bisect_left(works, end_ns, key=lambda i: events.begin_ns[i])
            for i in works[max(0, last - 16) : last]:
                length_ns = min(events.end_ns[i], end_ns) - max(events.begin_ns[i], begin_ns)
                if length_ns > best_ns:
                    best, best_ns = events.name_of(i), length_ns
        return best

    def _user(self, launch: Launch | None) -> int:
        return self._nesting.python[launch.call] if launch is not None else -1


def _holds_up(name: str) -> bool:
    """True if a runtime call may make its thread wait."""
    return is_sync(name) or any(part in name for part in (*_MEMORY, *_COPIES))


def is_sync(name: str) -> bool:
    """True if a runtime call waits until the GPU has done what was queued."""
    return "Synchronize" in name or name in ("cudaMemcpy", "hipMemcpy", "hipMemcpyWithStream")


class CpuWait(NamedTuple):
    """A call that waited."""

    call: int  # event
    waited_ns: int


def cpu_waits(events: Events, nesting: Nesting, whole: Stretch) -> list[CpuWait]:
    """The waits that began in a stretch, of the threads with operators: the training thread and backward's.

    A copy and the synchronisation after it in the same operator are one wait, under the copy: ``.cpu()`` makes both.
    """
    threads = {events.track[i] for i in range(len(events)) if events.kind[i] == Kind.OPERATOR}
    found: list[CpuWait] = []
    latest: dict[int, int] = {}  # of each thread: its latest wait in ``found``
    for call, waited_ns in _calls(events, whole):
        track = events.track[call]
        if track not in threads:
            continue
        before = found[latest[track]] if track in latest else None
        if before is not None and _is_end_of(before.call, call, events, nesting):
            found[latest[track]] = before._replace(waited_ns=before.waited_ns + waited_ns)
        else:
            latest[track] = len(found)
            found.append(CpuWait(call, waited_ns))
    return found


def _is_end_of(copy: int, call: int, events: Events, nesting: Nesting) -> bool:
    """True if a call synchronises with the copy before it."""
    is_pair = is_sync(events.name_of(call)) and not is_sync(events.name_of(copy))
    return is_pair and nesting.operator[call] == nesting.operator[copy] >= 0


def _calls(events: Events, whole: Stretch) -> Iterator[tuple[int, int]]:
    """The calls of all threads that waited, and for how long (ns)."""
    pageable = {
        events.correlation[i]: events.end_ns[i]
        for i in range(len(events))
        if events.kind[i] == Kind.MEMCPY and events.correlation[i] and "Pageable" in events.name_of(i)
    }
    for i in events.begun_in(whole):
        if events.kind[i] != Kind.RUNTIME:
            continue
        length_ns = events.length_ns(i)
        copied_ns = pageable.get(events.correlation[i])
        if is_sync(events.name_of(i)) or (copied_ns is not None and events.end_ns[i] >= copied_ns):
            yield i, length_ns
        elif copied_ns is not None and length_ns > _STAGING_NS:
            yield i, length_ns - _STAGING_NS
