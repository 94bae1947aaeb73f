"""Follows one ring, and turns its markers into records, window by window."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing, suppress
from typing import NamedTuple, get_args

from tuimon.agent.ring import layout
from tuimon.agent.ring.files import ring_path
from tuimon.agent.ring.layout import BACKWARD, COMPILED, FIRST_EVENT, RECOMPILED, unpacked
from tuimon.agent.ring.reader import FLAG_SHIFT, LOW_BITS, TID_SHIFT, RingError, RingReader
from tuimon.proc import procfs
from tuimon.proc.processes import start_unix_s
from tuimon.proc.ring_facts import RawFrame
from tuimon.proc.target_files import OURS, TargetFiles
from tuimon.records import Compiler, CompilerEvents, CompilerWork, Mark, Record, Steps
from tuimon.sources.gpu_clock.tracker import GpuTracker
from tuimon.sources.loop.machine import OpenPhase
from tuimon.sources.markers.loaders import LoaderTracker
from tuimon.sources.markers.steps_record import StepsRecorder, rank_steps
from tuimon.sources.markers.thread_loops import ThreadLoop, ThreadLoops
from tuimon.sources.process_table import TimedPhase
from tuimon.sources.source_facts import ProcessCode
from tuimon.sources.trace_records import TraceRecords
from tuimon.sources.window_lengths import LONGEST_S, SETTLING_S, WindowEnds
from tuimon.text import plain

_TIMED = (BACKWARD, COMPILED, RECOMPILED)
_KNOWN: dict[str, CompilerWork] = {what: what for what in get_args(CompilerWork)}
#: Largest figure of a marker: beyond it is damage.
_LIMIT = 1 << 60


class CompilerTracker:
    """Counts events of torch.compile in a window."""

    def __init__(self, reader: RingReader, code: ProcessCode) -> None:
        self._reader = reader
        self._code = code
        self._sums: dict[str, tuple[int, int]] = {}  # by the marker's name: count, ns

    def add_marker(self, flag: int, value: int) -> None:
        """Add an event; ``flag``: id of the name that describes it, ``value``: its duration, or a number of events."""
        name = self._reader.name(flag)
        if not 0 <= value < _LIMIT or not name:
            return
        count, total_ns = self._sums.get(name, (0, 0))
        is_timed = name.startswith(_TIMED)
        self._sums[name] = (count + 1, total_ns + value) if is_timed else (count + value, 0)

    def skip_past(self) -> None:
        """Drop the events before the first window, except states that last."""
        self._sums = {name: sums for name, sums in self._sums.items() if not name.startswith(_TIMED)}

    def records(self, t: float, pid: int, window_s: float) -> Iterator[Compiler]:
        """The record of a window, if it has events."""
        sums, self._sums = self._sums, {}
        events = []
        for name, (count, total_ns) in sums.items():
            event = unpacked(name)
            what = _KNOWN.get(event.what) if event is not None else None
            if event is not None and what is not None and count >= 1:
                (file, line, function), why = event.code, (plain(event.reason), plain(event.guarded))
                at = self._code.named(RawFrame(plain(file), line, plain(function)))
                events.append(CompilerEvents(what, count, total_ns, *at, *why))
        if events:
            yield Compiler(t=t, pid=pid, window_s=window_s, events=events)


#: Up to this many markers a second a ring is read only at the end of each long window: it then is an eighth full.
_CALM_HZ = layout.SLOT_COUNT / 8 / LONGEST_S
#: Kind of the marker that stands for overwritten ones; a ring never holds it.
_LOST = 0
#: After these, the step under way is not timed by the GPU's clock.
_INTERRUPT_GPU = layout.GAPS | {layout.PROFILER_ON, layout.PROFILER_OFF, layout.LOOP_LEFT}
#: Boundaries that are of interest to a loader: its fetches, and what uses their batches.
_BATCH_MARKERS = frozenset((layout.FETCH_END, layout.ITER_END, layout.BACKWARD_BEGIN))
#: A marker whose time is further ahead of the moment of reading is damaged, and would hold up the markers behind it.
_AHEAD_NS = 1_000_000_000
#: If a stop was not itself seen, markers may be dated this long after its beginning, or before its end.
_EDGE_NS = 1_000_000_000
#: Later than any marker.
_NEVER = 1 << 63
#: A fast loop writes its markers every 50 ms. When none has come for this long, its phase is unknown.
_STALE_NS = 500_000_000


class RingFollower:
    """Makes one Steps record a window, and others, of one ring's markers."""

    def __init__(
        self, reader: RingReader, interval_s: float, now_ns: int, steps: int = 0, *, has_begun: bool = False
    ) -> None:
        """``steps``: made in earlier rings of the process, which an exec has replaced, or whose hooks were withdrawn.

        ``has_begun``: its loop has gone on meanwhile.
        """
        self.reader = reader
        self.pid = reader.pid
        self.phases: deque[TimedPhase] | None = None  # receives those of the thread that trains
        self.trains = False
        self.known_meta: Mapping[str, object] = {}  # the facts that the process table has already
        self.markers_per_s = 0.0  # of the latest read
        interval_ns = int(interval_s * 1e9)
        self._ends = WindowEnds(interval_ns)
        self._waiting = reader.read_columns()
        first_ns = next((time_ns for time_ns in self._waiting.times_ns if time_ns <= now_ns), now_ns)
        # windows end on multiples of the interval, so that the processes of a run line up
        start_ns = max(first_ns, now_ns - 60_000_000_000)  # of a ring found late (attach)
        self._begin_ns = start_ns // interval_ns * interval_ns
        # files of a process that has ended only if they are of our own user, as the ring is
        files = TargetFiles(reader.pid, start_unix_s(reader.start_ticks), ended=OURS)
        code = ProcessCode(files)
        self._loops = ThreadLoops(reader.name, code)
        self._loaders = LoaderTracker(reader, code)
        self._gpu = GpuTracker(self.pid, self._is_of_several_ranks)
        self._compiler = CompilerTracker(reader, code)
        self._recorder = StepsRecorder(self.pid, reports_gc=bool(reader.meta().get("gc")), has_begun=has_begun)
        self._traces = TraceRecords(reader)
        self._marks: list[Mark] = []
        self.steps = steps  # of the process until now
        self._dropped = 0
        self._damaged = 0  # markers dated ahead since the latest window
        self._read_ns = now_ns
        self._latest_ns = first_ns
        self._unread: tuple[int, int] | None = None  # since when until when nobody read the ring
        self._stop_ns = _NEVER  # a moment in a stop that no marker is known to have followed
        self._stopped_ns = 0  # how long that stop was, at least
        self._unrecorded_ns = 0  # how much of it no record has
        self._resumed_ns = 0  # the end of the latest stop, or a moment in one that goes on
        self._is_stopped = False
        self._training = self.pid, False  # id of the thread that trains, and whether it is another than the main one
        self._feed_until(self._begin_ns)
        self._skip_past()

    def is_due(self, now_ns: int, longest: int) -> bool:
        """True if it is due to be read; ``longest``: the most intervals in its windows from now on."""
        self._ends.longest = longest
        return longest == 1 or self._ends.of(self._begin_ns) <= now_ns or self.reader.is_filling()

    def note_pause(self, since_ns: int, until_ns: int) -> None:
        """Note that nobody read the ring for a time: if it has no markers from then, its process was stopped, too."""
        self._unread = since_ns + _EDGE_NS, until_ns - _EDGE_NS

    def note_process(self, process: procfs.Stat | None, since_ns: int, now_ns: int) -> None:
        """Note whether its process is stopped, if its loop is silent; ``since_ns``: time of the previous note."""
        is_stopped = process is not None and process.state in ("T", "t") and now_ns - self._latest_ns > _STALE_NS
        was_stopped, self._is_stopped = self._is_stopped, is_stopped
        if self._is_stopped:
            self._note_stop(since_ns if was_stopped else now_ns, now_ns)

    def _note_stop(self, since_ns: int, until_ns: int) -> None:
        since_ns = max(since_ns, self._resumed_ns)
        self._stop_ns = min(self._stop_ns, since_ns)
        stopped_ns = max(0, until_ns - since_ns)
        self._stopped_ns += stopped_ns
        self._unrecorded_ns += stopped_ns
        self._resumed_ns = max(self._resumed_ns, until_ns)

    def windows(self, now_ns: int) -> Iterator[Record]:
        self._read(now_ns)
        while (end_ns := self._ends.of(self._begin_ns)) <= now_ns:
            self._feed_until(end_ns)
            yield from self._window(end_ns, now_ns)
            # the next may be longer if steps are made, and have been for a while
            first_ns = self._recorder.first_step_ns
            settled = first_ns is not None and end_ns - first_ns >= SETTLING_S * 1e9
            is_calm = settled and self._latest_ns >= self._begin_ns and self.markers_per_s <= _CALM_HZ
            self._ends.note_window(is_calm=is_calm)
            self._begin_ns = end_ns

    def last(self, now_ns: int) -> Iterator[Record]:
        """All remaining records: the process has ended."""
        self._read(now_ns)
        self._feed_until(now_ns)
        for loop in self._loops:
            loop.steps.finish()
        if now_ns > self._begin_ns:
            yield from self._window(now_ns, now_ns, ended=True)

    def _read(self, now_ns: int) -> None:
        dropped = self.reader.dropped
        found = self.reader.read_columns()
        count = len(found.heads)
        if now_ns > self._read_ns:
            self.markers_per_s = count * 1e9 / (now_ns - self._read_ns)
        self._read_ns = now_ns
        has_lost = self.reader.dropped > dropped
        if has_lost:
            self._waiting.append(found.times_ns[0] if count else self._latest_ns, _LOST, 0)
        self._waiting.extend(found)
        if self._unread is not None:
            (since_ns, until_ns), self._unread = self._unread, None
            if not has_lost and not any(since_ns < time_ns < until_ns for time_ns in found.times_ns):
                self._note_stop(since_ns, until_ns)
        if self._waiting.heads:
            self._latest_ns = min(self._waiting.times_ns[-1], now_ns)

    def _feed_until(self, end_ns: int) -> None:
        """Pass the markers before a moment to the loops, and to all that needs their stretches."""
        waiting, loops, loaders, gpu = self._waiting, self._loops, self._loaders, self._gpu
        loop, passed, ahead_ns, stop_ns = None, 0, self._read_ns + _AHEAD_NS, self._stop_ns
        phases, training = self.phases, loops.training()
        for time_ns, head, value in zip(*waiting, strict=True):
            if time_ns >= end_ns:
                if time_ns <= ahead_ns:
                    break
                passed += 1
                self._damaged += 1
                continue
            passed += 1
            if time_ns > stop_ns:  # the process has gone on after a stop
                for each in loops:
                    each.machine.pass_stop(self._stopped_ns)
                gpu.interrupt()
                self._stop_ns, self._stopped_ns, stop_ns = _NEVER, 0, _NEVER
            kind, flag, tid = head & LOW_BITS, head >> FLAG_SHIFT & LOW_BITS, head >> TID_SHIFT
            if kind not in layout.BOUNDARIES:
                loop = None
                self._feed_other(time_ns, kind, flag, tid, value)
                continue
            if loop is None or loop.tid != tid:
                loop = loops.of(tid)
            stretch = loop.machine.feed(time_ns, kind, flag, value)
            if phases is not None and loop is training:
                phases.append((stretch.begin_ns, time_ns, "eval" if stretch.evaluated else stretch.label))
            if loop.ranges.open or loop.ranges.awaiting:
                loop.ranges.add_stretch(stretch)
            if kind in _BATCH_MARKERS:
                loaders.add_stretch(stretch, loop.steps)
            if (gpu.active or flag >= FIRST_EVENT) and not loop.steps.is_slowed:
                gpu.add_stretch(stretch, tid)
        waiting.drop(passed)

    def _feed_other(  # noqa: PLR0912  (one for each kind)
        self, time_ns: int, kind: int, flag: int, tid: int, value: int
    ) -> None:
        """Handle a marker that is not a boundary of its thread's loop."""
        # of no loop: a collection stops all threads, torch.compile's work is reported later, lost markers may be of any
        if kind == layout.GC_PAUSE:
            self._recorder.add_pause(time_ns, value)
            return
        if kind == layout.COMPILER:
            self._compiler.add_marker(flag, value)
            return
        if kind == _LOST:
            self._gpu.lose_markers()
            for each in self._loops:
                each.machine.lose_markers()
            return
        if kind in _INTERRUPT_GPU:
            self._gpu.interrupt()
        loop = self._loops.of(tid)
        steps = loop.steps
        if kind == layout.RANGE_PUSH:
            loop.ranges.begin(time_ns, value)
        elif kind == layout.RANGE_POP:
            loop.ranges.end(time_ns, value, counts=not steps.is_slowed)
        elif kind == layout.PROFILER_ON:
            steps.begin_profiler(time_ns, traces=flag == layout.FOR_TRACE)
        elif kind == layout.PROFILER_OFF:
            steps.end_profiler()
        elif kind == layout.LOOP_LEFT:
            loop.machine.leave_loop(time_ns)
        elif kind == layout.GAP_BEGIN:
            loop.ranges.add_stretch(loop.machine.begin_gap(time_ns, value))
        elif kind == layout.GAP_END:
            counted = layout.unpack_gap(value)
            loop.machine.end_gap(time_ns, counted, flag)
            self._loaders.add_counted(counted)
        elif kind == layout.MARK:
            if len(self._marks) < 20 * self._ends.longest:
                name = self.reader.name(value).split(layout.PLACE_SEPARATOR, 1)[0]
                self._marks.append(Mark(t=time_ns / 1e9, pid=self.pid, name=name))
        elif kind == layout.OPTIMIZER_MADE:
            steps.expect_optimizer()
        elif kind in layout.LOADER_KINDS:
            self._loaders.add_marker(kind, flag, value)
        elif kind == layout.STEP_SIZE:
            self._recorder.add_step_size(flag, value)
        else:
            self._gpu.feed_marker(time_ns, kind, flag, value)

    def _skip_past(self) -> None:
        """Count the steps that ended before the first window, and drop all else from before."""
        loop = self._loops.training()
        if loop is not None:
            loop.pass_window()
            self.steps, loop.passed = self.steps + loop.passed, 0
        self._marks.clear()
        self._recorder.skip_past()
        self._compiler.skip_past()
        self._loaders.skip_past()
        self._gpu.skip_past()

    def _window(self, end_ns: int, now_ns: int, ended: bool = False) -> Iterator[Record]:
        """All records of the window from ``_begin_ns`` on; ``ended``: there will be no other."""
        window_s = (end_ns - self._begin_ns) / 1e9
        yield from self._marks
        self._marks.clear()
        loop = self._loops.end_window(self.live_threads)
        if loop is not None:
            yield self._steps(loop, end_ns, is_last=ended)
        yield from self._traces.records(end_ns / 1e9)
        yield from self._compiler.records(end_ns / 1e9, self.pid, window_s)
        open_fetches = [begin for each in self._loops for begin in each.machine.open_fetches()]
        yield from self._loaders.records(end_ns, window_s, now_ns, open_fetches)
        yield from self._gpu.records(end_ns, window_s, ended=ended)

    def _steps(self, loop: ThreadLoop, end_ns: int, *, is_last: bool) -> Steps:
        self.trains = self.trains or loop.trains
        self.steps += self._loops.steps
        self._loops.steps = 0
        loop.machine.outside_ns += self._unrecorded_ns
        self._unrecorded_ns = 0
        ended = loop.steps.take_ended()
        if loop.steps.begins_anew:
            loop.steps.begins_anew, self.steps = False, 0
        first_index = self.steps
        for step in ended:
            step.index = self.steps
            self.steps += step.count
            if step.traced_ns:
                self._traces.add_begin(step.traced_ns, step.index)
        several = self._is_of_several_ranks()
        dropped = self.reader.dropped - self._dropped + self._damaged  # overwritten or damaged
        self._dropped, self._damaged = self.reader.dropped, 0
        intervals = self._ends.intervals(self._begin_ns, end_ns)
        return self._recorder.record(
            loop,
            ended,
            self._begin_ns,
            end_ns,
            None if is_last else self._open_phase(loop, end_ns),
            first_index=first_index,
            rank_steps=rank_steps(ended, end_ns, intervals) if several else [],
            dropped=dropped,
            tid=self._tid_of(loop),
        )

    def _tid_of(self, loop: ThreadLoop) -> int | None:
        """Id of its thread; None: the main one, or unknown, as a thread has another id inside a container."""
        if loop.tid != self._training[0]:
            self._training = loop.tid, loop.tid != self.pid and loop.tid in (self.live_threads() or ())
        return loop.tid if self._training[1] else None

    def live_threads(self) -> Collection[int] | None:
        """The threads of the process; None once it has ended, or if they cannot be read."""
        if procfs.start_ticks(self.pid) != self.reader.start_ticks:
            return None
        return frozenset(procfs.thread_ids(self.pid)) or None

    def _is_of_several_ranks(self) -> bool:
        world_size = self.reader.meta().get("world_size")
        return isinstance(world_size, int) and world_size > 1

    def _open_phase(self, loop: ThreadLoop, now_ns: int) -> OpenPhase | None:
        """The open phase; without its name while markers of a fast loop that stands still wait in the writer."""
        if loop.machine.left_ns is not None:
            return None
        held_ns = self.reader.held_until_ns() if now_ns - self._latest_ns > _STALE_NS else 0
        phase = OpenPhase(None, min(held_ns, now_ns)) if held_ns else loop.machine.open_phase
        if phase is None or self._is_stopped:
            return phase
        return phase._replace(since_ns=max(phase.since_ns, self._resumed_ns))


class StepRate(NamedTuple):
    """The pace of the steps in a ring."""

    per_s: float | None  # now; None if none has ended in the last minute
    has_stepped: bool  # True if the ring holds a step, or a part of one


def steps_of(pid: int) -> StepRate | None:
    """The steps of a live process; None if there is no ring."""
    try:
        reader = RingReader(ring_path(pid))
    except (OSError, RingError, ValueError):
        return None
    with closing(reader), suppress(OSError):  # its process may end meanwhile
        return steps_in(reader, time.monotonic_ns())
    return None


def steps_in(reader: RingReader, now_ns: int) -> StepRate:
    """Whole steps a second, and whether there were any. Takes about 0.04 s for a second of a fast loop."""
    follower = RingFollower(reader, 1.0, now_ns)
    windows = [record for record in follower.windows(now_ns) if isinstance(record, Steps)]
    for some in (windows[-10:], windows):  # of ten seconds; for a slower loop, of all that the ring holds
        if steps := sum(window.count for window in some):
            return StepRate(steps / sum(window.window_s for window in some), has_stepped=True)
    return StepRate(None, has_stepped=bool(follower.steps) or follower.trains)
