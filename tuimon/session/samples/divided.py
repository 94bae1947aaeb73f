"""How the samples of a training thread divide its time, and what markers leave open of it; time outside its loop."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tuimon.records import BETWEEN, Stacks, Steps
from tuimon.session.loop_tree.stacks import StackSample, without_imports
from tuimon.session.steps.split_shares import Moved, SplitShares

#: Most windows of steps that are held; those that follow one another and are all outside are one.
_WINDOWS = 64
#: Times of records are rounded.
_TOLERANCE_S = 0.01


def phase_counts(samples: Sequence[StackSample]) -> Counter[str]:
    """How many samples each phase has, as markers would count them, without imports.

    The loop's own lines between the fetch and the model belong to the forward pass.
    """
    counts: Counter[str] = Counter()
    for sample in without_imports(samples):
        if not sample.is_lost:
            by_markers = sample.phase == "data" and sample.excluded and sample.moved_from is None
            counts["forward" if by_markers else sample.phase] += sample.count
    return counts


def split_shares(samples: Sequence[StackSample]) -> SplitShares | None:
    """How the samples outside fetch, backward and optimizer divide; None without any."""
    moved = _moved(samples)
    outside: Counter[str] = Counter({"data": 0, "forward": 0, "other": 0})
    unsure: Counter[str] = Counter()
    for sample in without_imports(samples):
        if sample.phase in outside and not sample.excluded and not sample.passes("fetch"):
            outside[sample.phase] += sample.count
            unsure[sample.phase] += sample.count if sample.unsure else 0
    if evaluated := sum(sample.count for sample in samples if sample.moved_from == BETWEEN):
        outside["eval"] = evaluated
    total = outside.total()
    if not total:
        return SplitShares({"forward": 1.0}, 0, moved=moved) if moved else None
    shares = {name: n / total for name, n in outside.items()}
    closures = any(sample.phase == "forward" and sample.passes("optimizer") for sample in samples)
    optimizer = sum(sample.count for sample in samples if sample.phase == "optimizer") / _of_steps(samples)
    return SplitShares(
        shares,
        total,
        optimizer if closures else None,
        unsure["forward"] / total,
        unsure["other"] / total,
        moved,
    )


def _moved(samples: Sequence[StackSample]) -> tuple[Moved, ...]:
    counts: Counter[tuple[str, str]] = Counter()
    for sample in samples:
        if sample.moved_from is not None and sample.moved_from != BETWEEN:
            counts[sample.moved_from, sample.phase] += sample.count
    steps = _of_steps(samples)
    return tuple(Moved(*of_to, n / steps, steps) for of_to, n in counts.items())


def _of_steps(samples: Iterable[StackSample]) -> int:
    """How many samples lie in steps, by markers: those in evaluation that markers show do not."""
    return sum(sample.count for sample in samples if sample.phase != "eval" or sample.moved_from is not None)


class _Window(NamedTuple):
    begin_s: float
    end_s: float
    outside_ratio: float

    def outside_s(self, begin_s: float, end_s: float) -> float:
        """How long it was outside within a stretch of time, as if that were spread evenly."""
        return max(0.0, min(end_s, self.end_s) - max(begin_s, self.begin_s)) * self.outside_ratio


class OutsideTimes:
    """Windows of steps in which a program was outside its loop, for some of the time or for all of it."""

    def __init__(self) -> None:
        self._windows: deque[_Window] = deque(maxlen=_WINDOWS)

    def add_window(self, record: Steps) -> None:
        """Add a window with ``outside_s``."""
        begin_s = record.t - record.window_s
        ratio = min(1.0, (record.outside_s or 0.0) / record.window_s) if record.window_s else 0.0
        before = self._windows[-1] if self._windows and ratio >= 1.0 else None
        if before is not None and before.outside_ratio >= 1.0 and before.end_s >= begin_s - _TOLERANCE_S:
            begin_s = self._windows.pop().begin_s
        self._windows.append(_Window(begin_s, record.t, ratio))

    def covers(self, record: Stacks) -> bool:
        """True if the program was outside for at least half of a window of samples."""
        begin_s = record.t - record.window_s
        outside_s = sum(window.outside_s(begin_s, record.t) for window in self._windows)
        return outside_s > 0 and outside_s >= record.window_s / 2
