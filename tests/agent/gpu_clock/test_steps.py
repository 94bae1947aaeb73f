"""Steps of a loop: where they begin, whether or not they are timed."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tuimon.agent.gpu_clock.clock import IN_STEP, NESTED, STEP_BEGINS, StepFollower
from tuimon.agent.ring.layout import BACKWARD_BEGIN, BACKWARD_END, FETCH_END, OPTIMIZER_BEGIN, OPTIMIZER_END

BACKWARD = ((BACKWARD_BEGIN, 0), (BACKWARD_END, 0))
NESTED_BACKWARD = (BACKWARD[0], *BACKWARD, BACKWARD[1])
FETCH = ((FETCH_END, 0),)


def step(key=1, *inside):
    return ((OPTIMIZER_BEGIN, key), *inside, (OPTIMIZER_END, key))


#: name -> the boundaries of one step, and which of them begins it
LOOPS = {
    "a DataLoader": ((*FETCH, *BACKWARD, *step()), 0),
    "no DataLoader": ((*BACKWARD, *step()), 0),
    "no optimizer": ((*FETCH, *BACKWARD), 0),
    "no optimizer, no DataLoader": (BACKWARD, 0),
    "accumulation": ((*FETCH, *BACKWARD, *FETCH, *BACKWARD, *step()), 0),
    "one optimizer per parameter": ((*FETCH, *BACKWARD, *step(1), *step(2), *step(3)), 0),
    "a scaler": ((*FETCH, *BACKWARD, *step(1, *step(2))), 0),
    "a scaler that skips": ((*FETCH, *BACKWARD, *step(1)), 0),
    "checkpointing": ((*FETCH, *NESTED_BACKWARD, *step()), 0),
    "a closure": (step(1, *BACKWARD, *BACKWARD), 1),
    "a closure after a fetch": ((*FETCH, *step(1, *BACKWARD)), 0),
    "a penalty": ((*FETCH, *BACKWARD, *BACKWARD, *step()), 0),
    "optimizers within the backward": ((*FETCH, BACKWARD[0], *step(1), *step(2), BACKWARD[1]), 0),
}


@pytest.fixture
def follower():
    return StepFollower(lambda: 0)


def places(follower, boundaries, count):
    """The place of each boundary in so many steps."""
    return [[follower.place(kind, key) for kind, key in boundaries] for _ in range(count)]


@pytest.mark.parametrize("name", LOOPS)
def test_where_steps_begin(follower, name):
    boundaries, first = LOOPS[name]
    begins = [
        [place for place, what in enumerate(found) if what == STEP_BEGINS] for found in places(follower, boundaries, 60)
    ]
    assert begins[3:] == [[first]] * 57  # by then it is known whether there are optimizers


@pytest.mark.parametrize("name", LOOPS)
def test_begins_and_ends_that_count_come_in_pairs(follower, name):
    boundaries, first = LOOPS[name]
    found = places(follower, boundaries, 12)
    kinds = [kind for kind, _ in boundaries]
    counted = [kind for kind, what in zip(kinds, found[-1], strict=True) if what != NESTED]
    assert kinds[first] in counted
    for begin in (BACKWARD_BEGIN, OPTIMIZER_BEGIN):
        depth = 0
        for kind in counted:
            depth += (kind == begin) - (kind == begin + 1)
            assert depth in (0, 1)
        assert depth == 0


def test_boundaries_of_other_threads(follower):
    boundaries, _ = LOOPS["a DataLoader"]
    for _ in range(2):
        for kind, key in boundaries:
            follower.place(kind, key)
    with ThreadPoolExecutor(1) as other:
        assert {other.submit(follower.place, *boundary).result() for boundary in boundaries} == {NESTED}
    assert follower.place(FETCH_END, 0) == STEP_BEGINS
    with ThreadPoolExecutor(1) as other:
        other.submit(follower.place, OPTIMIZER_END, 1).result()
    assert follower.place(FETCH_END, 0) == IN_STEP


@pytest.mark.parametrize("name", LOOPS)
def test_what_ends_in_a_pause_is_not_open_after_it(follower, name):
    """The clock pauses at the beginning of a step, and goes on at the beginning of a backward."""
    boundaries, first = LOOPS[name]
    places(follower, boundaries, 6)
    for kind, key in boundaries[: first + 1]:
        follower.place(kind, key)
    follower.forget_open()
    again = [kind for kind, _ in boundaries].index(BACKWARD_BEGIN)
    for kind, key in boundaries[again:]:
        follower.place(kind, key)
    assert STEP_BEGINS in places(follower, boundaries, 1)[0]


@pytest.mark.parametrize("fetch", [True, False])
def test_an_optimizer_that_raised_is_forgotten(follower, fetch):
    boundaries, _ = LOOPS["a DataLoader" if fetch else "no DataLoader"]
    for _ in range(2):
        for kind, key in boundaries:
            follower.place(kind, key)
    follower.place(OPTIMIZER_BEGIN, 7)
    assert follower.place(*boundaries[0]) == STEP_BEGINS
    assert [follower.place(*b) for b in boundaries[1:]] == [IN_STEP] * (len(boundaries) - 1)
