"""Stack samples of one process: which lines the time goes to, and how they divide what markers cannot."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from tuimon.records import Frame, Place, Stacks
from tuimon.session.rows import HotLine
from tuimon.session.stack_phase import FrameKind, frame_kind, stack_phase
from tuimon.session.steps import SplitShares
from tuimon.session.windows import Window

_FRAMES_LIMIT = 50_000
_UNKNOWN = Frame("", 0, "?")


class FrameTable:
    """Frames by id, over all processes of a stream; bounded."""

    def __init__(self) -> None:
        self._frames: dict[int, Frame] = {}
        self._kinds: dict[int, FrameKind] = {}

    def add(self, first: int, frames: list[Frame]) -> None:
        """Learn the frames with ids from ``first`` on."""
        for number, frame in enumerate(frames, first):
            if len(self._frames) < _FRAMES_LIMIT:
                self._frames[number] = frame
                self._kinds[number] = frame_kind(frame)

    def __getitem__(self, number: int) -> Frame:
        return self._frames.get(number, _UNKNOWN)

    def kind(self, number: int) -> FrameKind:
        """What this frame says about the phase."""
        return self._kinds.get(number, "none")

    def user_place(self, stack: list[int]) -> Place | None:
        """The innermost user line of a stack (ids root first); None where it holds none.

        A forked DataLoader worker carries the trainer's own frames below its loop: they are not what it does.
        """
        for number in reversed(stack):
            frame = self[number]
            if frame.user:
                return Place(frame.file, frame.line, frame.function, frame.source)
            if frame.function == "_worker_loop":
                return None
        return None

    def place(self, stack: list[int]) -> Place | None:
        """The innermost user line; without one the innermost line of an installed package, then of anything."""
        own = self.user_place(stack)
        if own is not None or not stack:
            return own
        package = next((n for n in reversed(stack) if "-packages/" in self[n].file), stack[-1])
        frame = self[package]
        return Place(frame.file, frame.line, frame.function, frame.source)


@dataclass(frozen=True, slots=True)
class _Sample:
    """A stack of the training thread with its phase."""

    stack: list[int]
    count: int
    phase: str


class HotSpots:
    """Samples of one process over the last 30 s."""

    def __init__(self, pid: int, frames: FrameTable) -> None:
        self.pid = pid
        self._frames = frames
        self._window: Window[Stacks] = Window(30.0, limit=120)
        self._split_at: float | None = None  # ``t`` for which the classification below holds
        self._classified: list[_Sample] = []
        self.latest: Stacks | None = None
        self.failed = 0
        self.samples = 0

    def add(self, record: Stacks) -> None:
        """Fold a window of samples."""
        self.latest = record
        self.failed += record.failed
        self.samples += record.samples
        self._window.add(record)

    def place(self, tid: int) -> Place | None:
        """Where a thread was most often in the latest window."""
        if self.latest is None:
            return None
        own = [stack for stack in self.latest.stacks if stack.tid == tid]
        best = max(own, key=lambda stack: stack.count, default=None)
        return self._frames.place(best.frames) if best else None

    def thread_name(self, tid: int) -> str | None:
        """Python's name of a thread, where a sample told it."""
        if self.latest is None:
            return None
        return next((stack.thread for stack in self.latest.stacks if stack.tid == tid), None)

    def hot_lines(self, phase: str | None = None) -> list[HotLine]:
        """Innermost user lines of the main thread in a phase (all if None), most samples first.

        Shares are of all its samples in that phase, also of those without user code.
        """
        counts: Counter[Place] = Counter()
        total = 0
        for sample in self._samples():
            if phase is not None and sample.phase != phase:
                continue
            total += sample.count
            place = self._frames.user_place(sample.stack)
            if place is not None:
                counts[place] += sample.count
        return [HotLine(place, n / total, n, total) for place, n in counts.most_common(20)]

    def share_with(self, function_part: str) -> float | None:
        """Share (0..1) of the main thread's samples with such a function in the stack; None without any."""
        total = hits = 0
        for sample in self._samples():
            total += sample.count
            if any(function_part in self._frames[number].function for number in sample.stack):
                hits += sample.count
        return hits / total if total else None

    def phase_counts(self) -> Counter[str]:
        """Samples of the main thread by phase, told by frames and by the loop's lines."""
        counts: Counter[str] = Counter()
        for sample in self._samples():
            counts[sample.phase] += sample.count
        return counts

    def between_shares(self) -> SplitShares | None:
        """How the samples outside fetch, backward and optimizer divide; None without any."""
        outside = {"data": 0, "forward": 0, "other": 0}
        for sample in self._samples():
            in_fetch = any(self._frames.kind(n) == "fetch" for n in sample.stack)
            if sample.phase in outside and not in_fetch:
                outside[sample.phase] += sample.count
        total = sum(outside.values())
        return SplitShares({name: n / total for name, n in outside.items()}, total) if total else None

    def _samples(self) -> list[_Sample]:
        newest = self.latest.t if self.latest else None
        if newest != self._split_at:
            self._split_at = newest
            self._classified = self._classify()
        return self._classified

    def _classify(self) -> list[_Sample]:
        merged: dict[tuple[int, ...], int] = {}
        for record in self._window.records:
            for stack in record.stacks:
                if stack.tid == self.pid:
                    key = tuple(stack.frames)
                    merged[key] = merged.get(key, 0) + stack.count
        phased = [
            _Sample(list(stack), count, stack_phase([self._frames.kind(n) for n in stack]))
            for stack, count in merged.items()
        ]
        loop = LoopLines(phased, self._frames)
        return [s if s.phase != "rest" else replace(s, phase=loop.phase_of(s.stack)) for s in phased]


class LoopLines:
    """The lines of the user's loop: where backward is called, where the forward pass begins.

    A sample outside every boundary is placed by the frame at which its stack parts from the way to the backward call:
    on an earlier line than the first forward line it prepares data, up to the backward line it is forward, later it is
    side work.
    """

    def __init__(self, samples: list[_Sample], frames: FrameTable) -> None:
        self._frames = frames
        self._backward = self._way(samples, "backward")
        self._forward_line: dict[int, int] = {}  # depth -> first line of the forward pass in that frame of the way
        for sample in samples:
            if sample.phase == "forward":
                depth = self._parting(sample.stack)
                if depth is not None:
                    line = frames[sample.stack[depth]].line
                    self._forward_line[depth] = min(line, self._forward_line.get(depth, line))

    def phase_of(self, stack: list[int]) -> str:
        """``data``, ``forward`` or ``other``."""
        depth = self._parting(stack)
        if depth is None:
            return "other"
        line = self._frames[stack[depth]].line
        if line > self._frames[self._backward[depth]].line:
            return "other"
        first_forward = self._forward_line.get(depth)
        return "data" if first_forward is not None and line < first_forward else "forward"

    def _way(self, samples: list[_Sample], phase: str) -> list[int]:
        """Frames from the root to the innermost user frame of the most frequent stack of a phase."""
        best = max((s for s in samples if s.phase == phase), key=lambda s: s.count, default=None)
        if best is None:
            return []
        stack = best.stack
        boundary = next((i for i, n in enumerate(stack) if self._frames.kind(n) == phase), len(stack))
        while boundary and not self._frames[stack[boundary - 1]].user:
            boundary -= 1
        return stack[:boundary]

    def _parting(self, stack: list[int]) -> int | None:
        """Depth of the frame in which a stack leaves the way to the backward call; None if it never was on it."""
        depth = None
        for i, (own, way) in enumerate(zip(stack, self._backward, strict=False)):
            mine, theirs = self._frames[own], self._frames[way]
            if (mine.file, mine.function) != (theirs.file, theirs.function):
                break
            depth = i
            if mine.line != theirs.line:
                break
        return depth
