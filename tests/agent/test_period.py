"""A rest begins where the markers repeat a period."""

import pytest

from tuimon.agent.period import find_period
from tuimon.agent.ring import layout


def marker(kind, value=0, flag=0, tid=1):
    return (0, kind, flag, tid, value)


STEP = [
    marker(layout.FETCH_BEGIN, 65537, 3),
    marker(layout.FETCH_END, 65537),
    marker(layout.BACKWARD_BEGIN),
    marker(layout.BACKWARD_END),
    marker(layout.OPTIMIZER_BEGIN, 9),
    marker(layout.OPTIMIZER_END, 9),
]
STEP_KINDS = (layout.FETCH_BEGIN, layout.BACKWARD_BEGIN, layout.OPTIMIZER_BEGIN)


def test_a_period_is_the_shortest_that_repeats():
    found = find_period(STEP * 6, None)
    assert found is not None and found[0] == 6 and found[2:] == (65537, STEP_KINDS, 1, 1, 1)
    found = find_period((STEP[:4] * 2 + STEP) * 5, None)
    assert found is not None and (found.length, found.fetches, found.backwards, found.updates) == (14, 3, 3, 1)


@pytest.mark.parametrize(
    "markers",
    [
        [],
        STEP * 3,  # not often enough
        (STEP * 6)[:-1],  # not at its end
        [*STEP * 6, marker(layout.RANGE_PUSH, 1), marker(layout.RANGE_POP)],
        [*STEP, marker(layout.RANGE_PUSH, 1), marker(layout.RANGE_POP), *STEP[4:]] * 6,
        [*STEP[:2], marker(layout.FETCH_BEGIN, 65538), marker(layout.FETCH_END, 65538), *STEP[2:]] * 6,  # two iterators
        [STEP[0], marker(layout.FETCH_END, 65537, layout.EXHAUSTED), *STEP[2:]] * 6,
        [*STEP[:2], STEP[4], *STEP[2:4], STEP[5]] * 6,  # a closure
        [*STEP[:2], marker(layout.BACKWARD_BEGIN, tid=2), marker(layout.BACKWARD_END, tid=2), *STEP[4:]] * 6,
    ],
)
def test_other_markers_have_no_period(markers):
    assert find_period(markers, None) is None
