"""Step lengths as few buckets: exact where they are few, bounded where they are many, quantiles that hold."""

from __future__ import annotations

import random

import pytest

from tests.session.records import totals_of
from tuimon.records import Steps, length_bucket
from tuimon.sources.markers.steps_record import BUCKETS, histogram, quantile

MS = 1_000_000


def quantiles(lengths_ns: list[int]) -> tuple[list[float], list[float]]:
    """p50, p95 and p99 in ms: of the histogram as a session reads it, and of the lengths themselves."""
    record = Steps(t=1.0, pid=1, window_s=1.0, count=len(lengths_ns), first_index=0, total_ns=sum(lengths_ns),
                   histogram=histogram(lengths_ns), phases=[])  # fmt: skip
    totals = totals_of(record)
    ordered = sorted(lengths_ns)
    wanted = (0.5, 0.95, 0.99)
    found = [totals.quantile_ms(q) or 0.0 for q in wanted]
    return found, [ordered[min(len(ordered) - 1, int(q * len(ordered)))] / MS for q in wanted]


def test_few_buckets_are_all_told() -> None:
    lengths = [10 * MS] * 90 + [20 * MS] * 9 + [200 * MS]
    assert histogram(lengths) == [(length_bucket(ns * MS), count) for ns, count in ((10, 90), (20, 9), (200, 1))]
    assert histogram([]) == []


@pytest.mark.parametrize("count", [33, 50, 1000, 5000])
@pytest.mark.parametrize("spread", [0.1, 0.5, 1.5])
def test_many_are_bounded_and_quantiles_hold(count: int, spread: float) -> None:
    chance = random.Random(count)
    lengths = [int(10 * MS * chance.lognormvariate(0.0, spread)) for _ in range(count)]
    entries = histogram(lengths)
    assert len(entries) <= BUCKETS
    assert sum(steps for _, steps in entries) == count
    assert [bucket for bucket, _ in entries] == sorted({bucket for bucket, _ in entries})
    found, true = quantiles(lengths)
    assert found[0] == pytest.approx(true[0], rel=0.05 + 0.1 * spread)
    assert found[1:] == pytest.approx(true[1:], rel=0.15 + 0.15 * spread)


def test_quantile():
    assert quantile([], 0.5) is None
    assert quantile([1, 2, 3, 4], 0.5) == 3
    assert quantile([1, 2, 3, 4], 1.0) == 4
