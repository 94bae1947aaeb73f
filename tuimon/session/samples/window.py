"""Stack samples of one process: which lines the time goes to, and how they divide what markers cannot."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from tuimon.records import Place, RangePlace, Stacks
from tuimon.session.rows import HotLine
from tuimon.session.samples.classify import Sample, classify
from tuimon.session.samples.frames import FrameTable
from tuimon.session.samples.range_join import RangeJoin
from tuimon.session.samples.stack_phase import stack_phase
from tuimon.session.steps import SplitShares
from tuimon.session.windows import Window

_NAMES = 1024


class HotSpots:
    """Samples of one process over the last 30 s."""

    def __init__(self, pid: int, frames: FrameTable) -> None:
        self.pid = pid
        self._frames = frames
        self._window: Window[Stacks] = Window(30.0, limit=120)
        self._steps_begin_s = -math.inf
        self._trained = False  # whether a sample has shown backward or an update: without markers, steps begin there
        self._split_at: float | None = None  # ``t`` for which the classification below holds
        self._classified: list[Sample] = []
        self.join = RangeJoin()
        self.latest: Stacks | None = None
        self.failed = 0
        self.samples = 0
        self._names: dict[int, str] = {}  # of its Python threads
        self._still: dict[int, tuple[tuple[int, ...], float]] = {}  # tid: its one stack, since when

    def add(self, record: Stacks) -> None:
        """Fold a window of samples."""
        self.failed += record.failed
        self.samples += record.samples
        self._learn_names(record)
        if not record.samples:
            return
        self.latest = record
        self._still = self._standing_still(record)
        if not self._trained and self._shows_training(record):
            self._trained = True
            self.steps_begin(max(self._steps_begin_s, record.t - record.window_s))  # markers know better
        if record.t - record.window_s >= self._steps_begin_s:
            self._window.append(record)

    def steps_begin(self, t: float) -> None:
        """Leave out the windows that began before ``t``: the samples of the set-up are of no step."""
        self._steps_begin_s = t
        kept = [record for record in self._window.records if record.t - record.window_s >= t]
        self._window.records.clear()
        self._window.records.extend(kept)
        self._split_at = None

    def learn_ranges(self, places: Sequence[RangePlace]) -> None:
        """Where user ranges were opened and closed."""
        if places and self.join.learn(places):
            self._split_at = None

    def place(self, tid: int) -> Place | None:
        """Where a thread was most often in the latest window."""
        if self.latest is None:
            return None
        own = [stack for stack in self.latest.stacks if stack.tid == tid]
        best = max(own, key=lambda stack: stack.count, default=None)
        return self._frames.place(best.frames) if best else None

    def stack(self, tid: int) -> tuple[list[int], float] | None:
        """A thread's most frequent stack (frame ids, root first) of the latest window, and its share of it (0..1)."""
        own = [stack for stack in self.latest.stacks if stack.tid == tid] if self.latest is not None else []
        best = max(own, key=lambda stack: stack.count, default=None)
        return (best.frames, best.count / sum(stack.count for stack in own)) if best is not None else None

    def thread_name(self, tid: int) -> str | None:
        """Python's name of a thread, where a sample told it; None for native threads, and before any sample."""
        return self._names.get(tid)

    def same_stack_s(self, tid: int) -> float | None:
        """For how long all samples of a thread have been of one stack; None where the latest window has none of it."""
        if self.latest is None or all(stack.tid != tid for stack in self.latest.stacks):
            return None
        still = self._still.get(tid)
        return self.latest.t - still[1] if still else 0.0

    def _shows_training(self, record: Stacks) -> bool:
        own = (stack.frames for stack in record.stacks if stack.tid == self.pid)
        return any(stack_phase([self._frames.kind(n) for n in stack]) in ("backward", "optimizer") for stack in own)

    def _learn_names(self, record: Stacks) -> None:
        for tid, name in (*((stack.tid, stack.thread) for stack in record.stacks), *record.parked):
            self._names.pop(tid, None)
            self._names[tid] = name
        while len(self._names) > _NAMES:
            del self._names[next(iter(self._names))]

    def _standing_still(self, record: Stacks) -> dict[int, tuple[tuple[int, ...], float]]:
        """The threads that showed one stack only in this window, and since when they have."""
        seen: dict[int, set[tuple[int, ...]]] = {}
        for stack in record.stacks:
            seen.setdefault(stack.tid, set()).add(tuple(stack.frames))
        out = {}
        for tid, stacks in seen.items():
            if len(stacks) == 1:
                (only,) = stacks
                before = self._still.get(tid)
                out[tid] = before if before and before[0] == only else (only, record.t - record.window_s)
        return out

    def hot_lines(self, phase: str | None = None) -> list[HotLine]:
        """Innermost user lines of the main thread in a phase or range (all if None), most samples first.

        Shares are of all its samples in that phase, also of those without user code.
        """
        counts: Counter[Place] = Counter()
        total = 0
        for sample in self._samples():
            if not sample.lies_in(phase):
                continue
            total += sample.count
            place = self._frames.user_place(sample.stack)
            if place is not None:
                counts[place] += sample.count
        return [HotLine(place, n / total, n, total) for place, n in counts.most_common(20)]

    def hot_lines_under(self, function: str) -> list[HotLine]:
        """As ``hot_lines``, of the samples that have this function in their stack."""
        counts: Counter[Place] = Counter()
        total = 0
        for sample in self._samples():
            depth = next((i for i, n in enumerate(sample.stack) if self._frames[n].function == function), None)
            if depth is None:
                continue
            total += sample.count
            place = self._frames.user_place(sample.stack[depth:])
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
        everything = optimizer = 0
        closures = False
        for sample in self._samples():
            kinds = {self._frames.kind(n) for n in sample.stack}
            everything += sample.count
            optimizer += sample.count if sample.phase == "optimizer" else 0
            closures = closures or (sample.phase == "forward" and "optimizer" in kinds)
            if sample.phase in outside and "fetch" not in kinds and not sample.told:
                outside[sample.phase] += sample.count
        total = sum(outside.values())
        if not total:
            return None
        shares = {name: n / total for name, n in outside.items()}
        return SplitShares(shares, total, optimizer / everything if closures else None)

    def samples_of(self, tid: int) -> list[Sample]:
        """The samples of one thread; off the main thread only boundaries tell a phase, else it is "none"."""
        if tid == self.pid:
            return self._samples()
        merged: Counter[tuple[int, ...]] = Counter()
        for record in self._window.records:
            for stack in record.stacks:
                if stack.tid == tid:
                    merged[tuple(stack.frames)] += stack.count
        kinds = ((list(frames), n, stack_phase([self._frames.kind(f) for f in frames])) for frames, n in merged.items())
        return [Sample(frames, n, "none" if phase == "rest" else phase) for frames, n, phase in kinds]

    def tids(self) -> list[int]:
        """The threads with samples, the main one first."""
        tids = {stack.tid for record in self._window.records for stack in record.stacks}
        return sorted(tids, key=lambda tid: (tid != self.pid, tid))

    def _samples(self) -> list[Sample]:
        newest = self.latest.t if self.latest else None
        if newest != self._split_at:
            self._split_at = newest
            self._classified = self._classify()
        return self._classified

    def _classify(self) -> list[Sample]:
        merged: dict[tuple[int, ...], int] = {}
        for record in self._window.records:
            for stack in record.stacks:
                if stack.tid == self.pid:
                    key = tuple(stack.frames)
                    merged[key] = merged.get(key, 0) + stack.count
        return classify(merged, self._frames, self.join)
