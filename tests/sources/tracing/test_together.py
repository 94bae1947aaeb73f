"""A trace of several ranks: equally many steps of each, and the same."""

from __future__ import annotations

import pytest

from tuimon.agent.ring.control_words import TRACE_TRIAL, TRACE_TRIED
from tuimon.errors import TraceError
from tuimon.sources.tracing.taking import TraceAnswer
from tuimon.sources.tracing.together import Together

MS = 1_000_000


class Rank:
    """One rank whose steps take 10 ms; ``begins``: when each of its traces begins."""

    def __init__(self, fits: int, begins: list[int], lost_at: int = 99) -> None:
        self.fits, self.begins, self.lost_at = fits, list(begins), lost_at
        self.orders: list[tuple[int, int]] = []
        self.is_over = False
        self.closed = self.cancelled = 0

    def order(self, steps: int, held_ms: int, part: int = 0) -> None:
        self.orders.append((steps, part))
        self.is_over = False

    def poll(self) -> None:
        self.is_over = True

    def answer(self) -> TraceAnswer:
        if len(self.orders) >= self.lost_at:
            raise TraceError("it has ended")
        steps, part = self.orders[-1]
        if part == TRACE_TRIAL:
            return TraceAnswer(min(steps, self.fits), steps, 250, 0, 0, 0, 0.0, 0.0)
        begin = self.begins.pop(0) * MS
        return TraceAnswer(steps, steps, 250, begin, begin + steps * 10 * MS, 0, 0.0, 0.0)

    def discard(self) -> None:
        """Nothing was left."""

    def close(self) -> None:
        self.closed += 1

    def cancel(self) -> None:
        self.cancelled += 1


def taken(*ranks: Rank, steps: int = 5) -> Together:
    def order(pid: int, *rest: int) -> Rank:
        ranks[pid].order(*rest)
        return ranks[pid]

    together = Together(range(len(ranks)), steps, 250, order)
    for _ in range(12):
        if not together.is_over:
            together.poll()
    assert together.is_over
    return together


def test_all_make_as_many_steps_as_fit_everywhere() -> None:
    ranks = Rank(5, [100]), Rank(3, [104]), Rank(4, [101])
    together = taken(*ranks)
    assert all(rank.orders == [(5, TRACE_TRIAL), (3, TRACE_TRIED)] for rank in ranks)
    assert together.is_same and together.takings == list(ranks) and not together.lost


def test_ranks_that_began_with_different_steps_are_ordered_anew() -> None:
    ranks = Rank(5, [100, 300]), Rank(5, [110, 301])
    together = taken(*ranks)
    assert [len(rank.orders) for rank in ranks] == [3, 3]
    assert together.is_same


def test_ranks_that_never_begin_together_are_told_of() -> None:
    ranks = Rank(5, [100, 300, 500, 700]), Rank(5, [110, 310, 520, 720])
    together = taken(*ranks)
    assert [len(rank.orders) for rank in ranks] == [4, 4]
    assert not together.is_same and len(together.takings) == 2


@pytest.mark.parametrize("lost_at", [1, 2])
def test_a_rank_that_ends_meanwhile_is_left_out(lost_at: int) -> None:
    stays, goes = Rank(5, [100]), Rank(2, [100], lost_at)
    together = taken(stays, goes)
    assert together.takings == [stays] and [error.message for error in together.lost] == ["it has ended"]
    assert goes.closed == 1
    assert stays.orders[-1] == (5 if lost_at == 1 else 2, TRACE_TRIED)


def test_all_have_ended() -> None:
    assert len(taken(Rank(5, [], 1), Rank(5, [], 1)).lost) == 2


def test_where_one_cannot_be_ordered_the_others_are_taken_back() -> None:
    first = Rank(5, [])

    def order(pid: int, *rest: int) -> Rank:
        if pid:
            raise TraceError("no agent")
        return first

    with pytest.raises(TraceError):
        Together([0, 1], 5, 250, order)
    assert first.cancelled == 1
