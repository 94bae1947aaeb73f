"""The loops of a process's threads: which of them trains, and when each is forgotten."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from tuimon.agent.ring.layout import GAP_BEGIN, GAP_PAUSE, PROFILER_ON, TRACED_STEPS, Marker, Passed
from tuimon.sources.loop.machine import LoopMachine
from tuimon.sources.loop.step import Stretch
from tuimon.sources.markers.ranges import RangeTracker
from tuimon.sources.source_blocks import SourceBlocks

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
