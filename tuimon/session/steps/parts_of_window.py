"""A window of steps without a part of it: set-up before the first step, or what lies before or after a late step.

A step is late when it is only known to have ended once the process has, as the last one of a loop without a DataLoader.
"""

from __future__ import annotations

from msgspec import structs

from tuimon.records import Steps


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
