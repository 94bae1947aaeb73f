"""When steps were made, by the windows that they ended in."""

from __future__ import annotations

from collections.abc import Sequence

from tuimon.session.counter_means import SteppingSpan
from tuimon.session.course import StepStretch


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
