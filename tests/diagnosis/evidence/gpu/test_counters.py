"""Why bounds of idle time are wide: what hides the rest is named, and what would show it."""

import pytest

from tuimon.diagnosis.evidence.gpu import why_wide
from tuimon.interval import Interval

FAR_APART, CLOSE = Interval(0.1, 0.5), Interval(0.1, 0.25)


@pytest.mark.parametrize(
    ("idle", "counters", "are_shared", "reason"),
    [
        (FAR_APART, FAR_APART, False, "NVML does not count copies"),
        (FAR_APART, FAR_APART, True, "NVML counts other processes as busy"),
        (FAR_APART, None, False, "NVML's utilisation is not known"),
    ],
)
def test_the_reason_is_named_with_what_measures_it(idle, counters, are_shared, reason):
    why = why_wide(idle, counters, are_shared=are_shared)
    assert why.startswith(reason) and why.endswith("tuimon trace measures the idle time")


def test_close_bounds_need_none():
    assert why_wide(CLOSE, CLOSE, are_shared=False) is None
