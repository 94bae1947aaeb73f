"""Metrics that compare the ranks of a training: who is behind, who waits, and for whom."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import get_args

from tuimon.session.rank_list import rank_rows
from tuimon.session.ranks.row import RankState
from tuimon.session.session import Session
from tuimon.views.metrics import table
from tuimon.views.metrics.metric import Sample, known


def rank_group_samples(session: Session, labels: Mapping[int, str]) -> Iterator[Sample]:
    """Samples of the training in focus; none of a single rank. ``labels``: those of the ranks, by pid."""
    rows = rank_rows(session)
    for state in get_args(RankState) if rows else ():
        yield Sample(table.RANK_STATES, (state,), sum(1 for row in rows if row.state == state))
    for row in rows:
        if row.pid in labels:
            rank = (labels[row.pid],)
            yield Sample(table.RANK_BEHIND, rank, row.behind)
            yield Sample(table.RANK_RESTARTS, rank, row.restarts)
            yield from known(table.RANK_WAIT, rank, row.wait_ratio)
            yield from known(table.RANK_LATE, rank, row.late_ratio)
