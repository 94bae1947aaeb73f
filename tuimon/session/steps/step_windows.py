"""Windows of a process's steps: the latest, packed; when steps were made; windows without a part of them.

64 ranks hold some twenty windows each. A step is late when it is only known to have ended once the process has, as the
last one of a loop without a DataLoader: what lies before or after it is cut off, as is set-up before the first step.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence

from msgspec import structs

from tuimon.records import Steps
from tuimon.session.counter_means import SteppingSpan
from tuimon.session.steps.course import StepStretch
from tuimon.session.steps.held_steps import HeldSteps, packed, unpacked
from tuimon.session.windows import WINDOW_S

#: The least number of windows with a step that the recent figures cover if steps are longer than the window.
_LEAST_WINDOWS = 3
_LIMIT = 600


class RecentSteps:
    """The windows of the last 30 s, and of those before as many with a step as make up three."""

    __slots__ = ("_numbers", "_older", "_packed")

    def __init__(self) -> None:
        self._packed: list[bytes] = []  # of the last 30 s
        self._numbers = array("d")  # of each when it ended, and how many steps it has
        self._older: list[bytes] = []  # of those with a step

    def append(self, record: Steps) -> None:
        """Append a window; drops what is too old."""
        held, numbers = self._packed, self._numbers
        held.append(packed(record))
        numbers.extend((record.t, record.usual))
        since_s, most_gone = record.t - WINDOW_S, len(held) - _LIMIT
        gone = 0
        while gone < most_gone or numbers[2 * gone] < since_s:
            if numbers[2 * gone + 1]:
                self._older = [*self._older, held[gone]][-_LEAST_WINDOWS:]
            gone += 1
        if gone:
            del held[:gone], numbers[: 2 * gone]

    def records(self) -> Iterator[HeldSteps]:
        """The records of the last 30 s, after older ones where fewer than three of them have a step."""
        missing = _LEAST_WINDOWS - sum(map(bool, self._numbers[1::2]))
        older = self._older[-missing:] if missing > 0 else []
        return map(unpacked, (*older, *self._packed))


def stepping_spans(stretches: Sequence[StepStretch], begin_s: float) -> list[SteppingSpan]:
    """The stretches of time in which steps were made, from a moment on; those that follow each other are one.

    A step belongs to the window that it ended in, and may have begun before. Worked example: windows end at 11, 12 and
    13 s; in the last one a step of 1.8 s ended, in the others none. The steps took the time from 11.2 to 13 s.
    """
    found: list[SteppingSpan] = []
    for stretch in stretches:
        if not stretch.steps or not stretch.total_ns:
            continue
        slowed_s = max(0.0, stretch.end_s - stretch.begin_s - stretch.span_s)
        taken_s = (stretch.total_ns + stretch.eval_ns) / 1e9 + slowed_s
        from_s = max(begin_s, min(stretch.begin_s, stretch.end_s - taken_s))
        from_s = max(from_s, found[-1].end_s) if found else from_s
        until_s = stretch.end_s
        if stretch is stretches[-1]:  # what follows its last step need not be one
            until_s = min(until_s, from_s + taken_s)
        if until_s <= from_s:
            continue
        step_s = stretch.total_ns / stretch.steps / 1e9
        is_whole = until_s - from_s <= taken_s + step_s  # what is left is of the step that follows
        ratio = min(1.0, stretch.total_ns / 1e9 / (taken_s if is_whole else until_s - from_s))
        if found and found[-1].end_s == from_s and found[-1].steps_ratio == ratio:
            from_s = found.pop().begin_s
        found.append(SteppingSpan(from_s, until_s, ratio))
    return found


def until_last_step(record: Steps) -> Steps:
    """A late step without the time after it; only a window that several were merged into has time before that."""
    left_s = _steps_s(record)
    if not left_s:
        record = structs.replace(record, gc_ns=record.gc_ns and 0, gc_count=0, gc_longest_ns=0)
    return structs.replace(record, window_s=left_s)


def without_steps(record: Steps) -> Steps:
    """The time after a late step, without that."""
    left_s = _steps_s(record)
    if left_s:
        record = structs.replace(record, gc_ns=record.gc_ns and 0, gc_count=0, gc_longest_ns=0)
    none = structs.replace(record, count=0, slowed=0, slowed_ns=0, total_ns=0, histogram=[], phases=[], ranges=[])
    return structs.replace(none, window_s=record.window_s - left_s, slowest=None)


def _steps_s(record: Steps) -> float:
    """How much of the window was before the end of its last step."""
    last_s = record.t if record.last_step_s is None else record.last_step_s
    return max(0.0, record.window_s - max(0.0, record.t - last_s))


def without_set_up(record: Steps, begin_s: float) -> Steps:
    """The first window with steps, without what was before them: time, and collections of imports and set-up."""
    if record.gc_count:
        record = structs.replace(record, gc_ns=record.gc_ns and 0, gc_count=0, gc_longest_ns=0)
    if record.first_step_s is not None and record.t - record.window_s < begin_s < record.t:
        record = structs.replace(record, window_s=record.t - begin_s)
    return record
