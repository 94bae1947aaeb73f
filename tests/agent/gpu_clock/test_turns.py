"""Turns of a loop: where they begin, whether or not they are timed."""

import random
from concurrent.futures import ThreadPoolExecutor

import pytest

from tuimon.agent.gpu_clock.turns import IN_TURN, NESTED, TURN_BEGINS, Turns
from tuimon.agent.ring.layout import BACKWARD_BEGIN, BACKWARD_END, FETCH_END, OPTIMIZER_BEGIN, OPTIMIZER_END

BACKWARD = ((BACKWARD_BEGIN, 0), (BACKWARD_END, 0))
NESTED_BACKWARD = (BACKWARD[0], *BACKWARD, BACKWARD[1])
FETCH = ((FETCH_END, 0),)


def step(key=1, *inside):
    return ((OPTIMIZER_BEGIN, key), *inside, (OPTIMIZER_END, key))


#: name -> the boundaries of one turn, and which of them begins it
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
def turns():
    return Turns(lambda: 0)


def told(turns, boundaries, count, timed):
    """What ``turns`` says of each boundary of so many turns; ``timed(n)``: whether the n-th is timed."""
    now, begun, out = False, 0, []
    for _ in range(count):
        said = []
        for kind, key in boundaries:
            said.append(turns.boundary(kind, key) if now else turns.untimed(kind, key))
            if said[-1] == TURN_BEGINS:
                now = timed(begun)
                begun += 1
        out.append(said)
    return out


@pytest.mark.parametrize("name", LOOPS)
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_where_turns_begin(turns, name, share):
    """Timed, untimed, or now and then: each turn begins at the same boundary."""
    boundaries, first = LOOPS[name]
    chance = random.Random(3)
    begins = [
        [place for place, what in enumerate(said) if what == TURN_BEGINS]
        for said in told(turns, boundaries, 60, lambda _: chance.random() < share)
    ]
    assert begins[3:] == [[first]] * 57  # by then it is known whether there are optimizers


@pytest.mark.parametrize("name", LOOPS)
def test_begins_and_ends_that_count_come_in_pairs(turns, name):
    """However the turns before were taken."""
    boundaries, first = LOOPS[name]
    said = told(turns, boundaries, 12, lambda number: number >= 6)
    kinds = [kind for kind, _ in boundaries]
    counted = [kind for kind, what in zip(kinds, said[-1], strict=True) if what != NESTED]
    assert kinds[first] in counted
    for begin in (BACKWARD_BEGIN, OPTIMIZER_BEGIN):
        depth = 0
        for kind in counted:
            depth += (kind == begin) - (kind == begin + 1)
            assert depth in (0, 1)
        assert depth == 0


def test_an_untimed_turns_other_boundaries_count_for_nothing(turns):
    boundaries, _ = LOOPS["a DataLoader"]
    told = [[turns.untimed(kind, key) for kind, key in boundaries] for _ in range(4)]
    assert told[1:] == [[TURN_BEGINS, NESTED, NESTED, NESTED, NESTED]] * 3


def test_boundaries_of_other_threads(turns):
    boundaries, _ = LOOPS["a DataLoader"]
    for _ in range(2):
        for kind, key in boundaries:
            turns.boundary(kind, key)
    with ThreadPoolExecutor(1) as other:
        for ask in (lambda b: turns.boundary(*b), lambda b: turns.untimed(*b)):
            assert {other.submit(ask, b).result() for b in boundaries} == {NESTED}
    assert turns.untimed(FETCH_END, 0) == TURN_BEGINS
    with ThreadPoolExecutor(1) as other:
        other.submit(turns.untimed, OPTIMIZER_END, 1).result()
    assert turns.untimed(FETCH_END, 0) == NESTED
    assert turns.boundary(FETCH_END, 0) == IN_TURN


@pytest.mark.parametrize("fetch", [True, False])
def test_an_optimizer_that_raised_in_an_untimed_turn_is_forgotten(turns, fetch):
    boundaries, _ = LOOPS["a DataLoader" if fetch else "no DataLoader"]
    for _ in range(2):
        for kind, key in boundaries:
            turns.untimed(kind, key)
    turns.untimed(OPTIMIZER_BEGIN, 7)
    assert turns.untimed(*boundaries[0]) == TURN_BEGINS
    assert [turns.boundary(*b) for b in boundaries[1:]] == [IN_TURN] * (len(boundaries) - 1)


def test_a_turn_that_begins_within_a_step_knows_of_it(turns):
    boundaries, _ = LOOPS["a closure"]
    for _ in range(3):
        for kind, key in boundaries:
            turns.untimed(kind, key)
    assert turns.untimed(*boundaries[0]) == NESTED
    assert turns.untimed(*boundaries[1]) == TURN_BEGINS
    assert [turns.boundary(*b) for b in boundaries[2:]] == [IN_TURN] * (len(boundaries) - 2)
