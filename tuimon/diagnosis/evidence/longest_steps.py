"""Tells time that each step takes from time in a few long steps."""

from __future__ import annotations

from msgspec import Struct

from tuimon.diagnosis.threshold import Threshold
from tuimon.records import bucket_length_ns
from tuimon.session.steps.totals import Totals

FEW_STEPS = Threshold(
    0.2,
    "share of the steps that hold most of the wait, up to which it is reported of these and not of every step",
    "our choice: what comes every fifth step and more often is a pattern of the loop, a pause or two are none",
)
#: Steps that hold this part hold most of it: our choice.
_PART = 0.5


class LongestSteps(Struct, frozen=True, gc=False):
    """How many of all steps are the long ones."""

    steps: int
    of: int


def longest_steps(totals: Totals, ms_per_step: float) -> LongestSteps | None:
    """The few steps that hold most of a time that averages ``ms_per_step``; None where it is spread over more.

    Worked example: of 40 steps one takes 4,100 ms, the others 100. A mean wait of 100 ms lies in that one: it is
    4,000 ms longer than usual. A wait of 50 ms in each of 40 equal steps lies in no longer one.
    """
    usual_ms, of = totals.quantile_ms(0.5), totals.histogram.total()
    if usual_ms is None or ms_per_step <= 0:
        return None
    left_ms, steps = _PART * ms_per_step * of, 0
    for bucket, count in sorted(totals.histogram.items(), reverse=True):
        longer_ms = bucket_length_ns(bucket) / 1e6 - usual_ms
        if longer_ms <= 0:
            return None
        needed = min(count, -int(-left_ms // longer_ms))
        steps, left_ms = steps + needed, left_ms - needed * longer_ms
        if left_ms <= 0:
            return LongestSteps(steps, of) if steps <= FEW_STEPS * of else None
    return None
