"""Markers: follows the rings of a run's processes and sums them up as Steps records."""

from __future__ import annotations

import os
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

from tuimon.records import Mark, PhaseTime, Record, SlowStep, Steps, length_bucket
from tuimon.sources import procfs
from tuimon.sources.gc_pauses import GcPauses
from tuimon.sources.gpu_time import GpuTracker
from tuimon.sources.loaders import LoaderTracker
from tuimon.sources.loops import StepFinder
from tuimon.sources.phases import PhaseMachine
from tuimon.sources.ranges import RangeTracker
from tuimon.sources.source_blocks import SourceBlocks
from tuimon.sources.step import Step
from tuimon.sources.targets import Targets
from tuimon.target import ring

#: Of a ring found late (attach), this much of the past is shown.
_HISTORY_NS = 60_000_000_000
_MARKS_PER_WINDOW = 20
#: Stands among the markers where some were overwritten before they were read; no kind that a ring holds.
_LOST = 0
#: Beside fetches, backwards and optimizer steps.
_OF_LOOPS = (ring.STEP, ring.ITER_BEGIN, ring.ITER_END)
#: A fast loop writes its markers every 20 ms. When none came for so long, it is not known what it is in.
_STALE_NS = 500_000_000


class ThreadLoop:
    """The loop of one thread: its phases, its steps, its ranges."""

    def __init__(self, name_of: Callable[[int], str], blocks: SourceBlocks) -> None:
        self.finder = StepFinder()
        self.ranges = RangeTracker(name_of, blocks)
        self.phases = PhaseMachine(self.finder, self.ranges.segment)

    @property
    def weight(self) -> tuple[int, int]:
        """How much this thread trains: the heaviest of a process is its training thread."""
        return self.finder.total_updates, self.finder.total_backwards


class RingFollower:
    """Turns one ring's markers into one Steps record a window."""

    def __init__(self, reader: ring.RingReader, interval_s: float, now_ns: int) -> None:
        self.reader = reader
        self.pid = reader.pid
        self.trains = False
        self._interval_ns = int(interval_s * 1e9)
        self._waiting: deque[ring.Marker] = deque(reader.read())
        first_ns = self._waiting[0].time_ns if self._waiting else now_ns
        # windows end on multiples of the interval, so that the processes of a run line up
        start_ns = max(first_ns, now_ns - _HISTORY_NS)
        self._begin_ns = start_ns // self._interval_ns * self._interval_ns
        self._loops: dict[int, ThreadLoop] = {}
        self._blocks = SourceBlocks(procfs.boot_unix_s() + reader.start_ticks / procfs.TICKS_PER_S)
        self._loaders = LoaderTracker(reader)
        self._gpu = GpuTracker(self.pid)
        self._gc = GcPauses(bool(reader.meta().get("gc")))
        self._marks: list[tuple[int, str]] = []
        self._index = 0  # number of the next step
        self._backwards = self._updates = 0
        self._dropped = 0
        self._latest_ns = first_ns
        self._feed_until(self._begin_ns)
        self._skip_past()

    def windows(self, now_ns: int) -> Iterator[Record]:
        """The records of all windows that have ended by now."""
        self._read()
        while self._begin_ns + self._interval_ns <= now_ns:
            end_ns = self._begin_ns + self._interval_ns
            self._feed_until(end_ns)
            yield from self._window(end_ns)
            yield from self._loaders.records(end_ns, self._interval_ns / 1e9, now_ns)
            yield from self._gpu.records(end_ns, self._interval_ns / 1e9)
            self._begin_ns = end_ns

    def last(self, now_ns: int) -> Iterator[Record]:
        """The process has ended: everything that is left."""
        self._read()
        self._feed_until(now_ns)
        for loop in self._loops.values():
            loop.finder.finish()
        if now_ns > self._begin_ns:
            yield from self._window(now_ns, ended=True)
            yield from self._loaders.records(now_ns, (now_ns - self._begin_ns) / 1e9, now_ns)
            yield from self._gpu.records(now_ns, (now_ns - self._begin_ns) / 1e9)

    def _read(self) -> None:
        dropped = self.reader.dropped
        found = self.reader.read()
        if self.reader.dropped > dropped:
            self._waiting.append(ring.Marker(found[0].time_ns if found else self._latest_ns, _LOST, 0, 0, 0))
        self._waiting.extend(found)
        if self._waiting:
            self._latest_ns = self._waiting[-1].time_ns

    def _feed_until(self, end_ns: int) -> None:
        waiting, loops = self._waiting, self._loops
        while waiting and waiting[0].time_ns < end_ns:
            time_ns, kind, flag, tid, value = waiting.popleft()
            if kind == ring.GC_PAUSE:  # stops all threads: of no loop
                self._gc.add(value)
                continue
            if kind == _LOST:
                self._gpu.lose()
                continue
            loop = loops.get(tid)
            if loop is None:
                loop = loops[tid] = ThreadLoop(self.reader.name, self._blocks)
            if kind < ring.RANGE_PUSH or kind in _OF_LOOPS:
                loop.phases.feed(time_ns, kind, flag, value)
                self._loaders.feed(time_ns, kind, flag, tid, value)
                self._gpu.boundary(time_ns, kind, flag, tid, value)
            elif kind < ring.STEP:
                loop.ranges.feed(time_ns, kind, flag, value)
            elif kind == ring.MARK and len(self._marks) < _MARKS_PER_WINDOW:
                self._marks.append((time_ns, self.reader.name(value).split("\x1f", 1)[0]))
            elif kind == ring.WORKER:
                self._loaders.feed(time_ns, kind, flag, tid, value)
            else:
                self._gpu.feed(time_ns, kind, flag, value)

    def _training_loop(self) -> ThreadLoop | None:
        return max(self._loops.values(), key=lambda loop: loop.weight, default=None)

    def _skip_past(self) -> None:
        """What ended before the first window is only counted."""
        loop = self._training_loop()
        if loop is not None:
            self._index = len(loop.finder.steps)
            loop.finder.steps.clear()
            loop.ranges.take()
        self._marks.clear()
        self._gc.take()
        self._loaders.skip_past()
        self._gpu.skip_past()

    def _window(self, end_ns: int, ended: bool = False) -> Iterator[Record]:
        t = end_ns / 1e9
        for time_ns, name in self._marks:
            yield Mark(t=time_ns / 1e9, pid=self.pid, name=name)
        self._marks.clear()
        loop = self._training_loop()
        if loop is None:
            return
        finder = loop.finder
        self.trains = finder.total_backwards > 0 or finder.total_updates > 0
        steps, finder.steps = finder.steps, []
        eval_ns, finder.eval_ns = finder.eval_ns, 0
        eval_count, finder.eval_count = finder.eval_count, 0
        gc_ns, gc_count, gc_longest_ns = self._gc.take()
        open_phase = None if ended or self._is_stale(end_ns) else loop.phases.open
        backwards, updates = finder.total_backwards, finder.total_updates
        lengths = sorted(step.total_ns for step in steps)
        yield Steps(
            t=t,
            pid=self.pid,
            window_s=(end_ns - self._begin_ns) / 1e9,
            count=len(steps),
            first_index=self._index,
            total_ns=sum(lengths),
            min_ns=lengths[0] if lengths else None,
            median_ns=quantile(lengths, 0.5),
            p95_ns=quantile(lengths, 0.95),
            histogram=sorted(Counter(map(length_bucket, lengths)).items()),
            phases=_phase_times(steps, eval_ns),
            ranges=loop.ranges.take(),
            range_places=loop.ranges.take_places(),
            slowest=self._slowest(steps),
            eval_count=eval_count,
            backwards=backwards - self._backwards,
            updates=updates - self._updates,
            open_phase=open_phase.name if open_phase else None,
            open_for_s=max(0.0, (end_ns - open_phase.since_ns) / 1e9) if open_phase else None,
            dropped=self.reader.dropped - self._dropped,
            gc_ns=gc_ns,
            gc_count=gc_count,
            gc_longest_ns=gc_longest_ns,
        )
        self._backwards, self._updates = backwards, updates
        self._dropped = self.reader.dropped
        self._index += len(steps)

    def _is_stale(self, now_ns: int) -> bool:
        """Whether markers of a fast loop that has come to a halt may still wait in the writer."""
        return self.reader.holds_back() and now_ns - self._latest_ns > _STALE_NS

    def _slowest(self, steps: list[Step]) -> SlowStep | None:
        if not steps:
            return None
        at = max(range(len(steps)), key=lambda i: steps[i].total_ns)
        return SlowStep(self._index + at, steps[at].total_ns, _phase_times(steps[at : at + 1], 0))


def quantile(ordered: list[int], q: float) -> int | None:
    """The q-quantile (0..1) of sorted values by the nearest rank; None of nothing."""
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))] if ordered else None


def _phase_times(steps: list[Step], eval_ns: int) -> list[PhaseTime]:
    sums: dict[str, int] = {"eval": eval_ns} if eval_ns else {}
    for step in steps:
        for name, duration_ns in step.phases.items():
            sums[name] = sums.get(name, 0) + duration_ns
    return [PhaseTime(name, total_ns) for name, total_ns in sums.items() if total_ns > 0]


class MarkerSource:
    """Finds the rings of the run's processes and follows them."""

    name = "markers"
    #: A ring holds about 2 s of the fastest loops.
    period_s = 0.25

    def __init__(
        self, targets: Targets, interval_s: float = 1.0, clock_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._targets = targets
        self._interval_s = interval_s
        self._clock_ns = clock_ns
        self._followers: dict[str, RingFollower] = {}  # by path: pid and start time
        self._foreign: set[str] = set()  # rings that are not of this run
        self._looks = 0

    def read(self) -> Iterable[Record]:
        """Steps and marks of the windows that have ended."""
        if self._looks % 2 == 0:
            self._look_for_rings()
        self._looks += 1
        now_ns = self._clock_ns()
        out: list[Record] = []
        for path, follower in list(self._followers.items()):
            goes_on = _goes_on(follower.reader)  # asked before reading: what was written until then is read
            out.extend(follower.windows(now_ns))
            if not goes_on:
                out.extend(follower.last(now_ns))
                self._drop(path)
            if follower.trains:
                self._targets.mark_trainer(follower.pid)
            self._targets.facts[follower.pid] = follower.reader.meta() or self._targets.facts[follower.pid]
            if not goes_on:
                self._let_go(follower)
        return out

    def close(self) -> None:
        """Unmap all rings."""
        for follower in self._followers.values():
            follower.reader.close()
        self._followers.clear()

    def _let_go(self, follower: RingFollower) -> None:
        """Its process has ended: what it left of the run that we started is ours to remove."""
        reader = follower.reader
        if (
            self._targets.run_id is not None
            and reader.meta().get("run") == self._targets.run_id
            and reader.is_current()
        ):
            with suppress(OSError):
                os.unlink(reader.path)
        reader.close()

    def _drop(self, path: str) -> None:
        del self._followers[path]
        self._foreign.add(path)

    def _look_for_rings(self) -> None:
        ours = set(self._targets.pids())
        paths = {
            os.path.join(place, name): _pid_of(name) for place in ring.ring_directories() for name in _rings(place)
        }
        self._foreign &= paths.keys()
        for path, pid in paths.items():
            if path not in self._followers and (pid in ours or path not in self._foreign):
                self._consider(path, pid in ours)

    def _consider(self, path: str, descends: bool) -> None:
        """Follow the ring if it belongs to the run: a descendant of the root, or started by the same ``tuimon run``.

        A process of the run that has already ended left its markers behind: a short script is read after its end.
        """
        try:
            reader = ring.RingReader(path)
        except (OSError, ring.RingError):
            self._foreign.add(path)
            return
        meta = reader.meta()
        same_run = self._targets.run_id is not None and meta.get("run") == self._targets.run_id
        if not (same_run or (descends and _goes_on(reader))):
            reader.close()
            if meta:  # otherwise it is still being made: look again
                self._foreign.add(path)
            return
        self._targets.add(reader.pid)
        self._targets.facts[reader.pid] = meta
        self._followers[path] = RingFollower(reader, self._interval_s, self._clock_ns())


def _rings(directory: str) -> list[str]:
    try:
        return [name for name in os.listdir(directory) if name.endswith(".ring")]
    except OSError:
        return []


def _pid_of(ring_name: str) -> int:
    pid = ring_name.partition("-")[0]
    return int(pid) if pid.isdigit() else -1


def _goes_on(reader: ring.RingReader) -> bool:
    """Whether the process that wrote this ring still runs, and writes to this ring (an exec makes a new one)."""
    return procfs.start_ticks(reader.pid) == reader.start_ticks and reader.is_current()
