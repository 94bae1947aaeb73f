"""The lengths of a window's steps: their quantiles, and buckets, few enough for a record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from tuimon.records import length_bucket

#: Most buckets of a record: a noisy loop fills one with each step, and this many take 300 bytes.
BUCKETS = 32
#: The longest steps keep their own buckets: of them the upper quantiles are made.
_KEPT = BUCKETS // 4
_GROUPS = BUCKETS // 2
#: Groups do not reach over the first gaps of 10 %.
_GAP = 10
_GAPS = BUCKETS - _KEPT - _GROUPS - 1
#: Entries in use, each in memory once: 64 ranks hold some 13,000 of them, of a few hundred kinds.
_SHARED: dict[tuple[int, int], tuple[int, int]] = {}
_MOST_SHARED = 4096


def histogram(lengths_ns: Iterable[int]) -> list[tuple[int, int]]:
    """(bucket, steps) in order, ``BUCKETS`` at most: where there are more, neighbours of few steps become one."""
    entries = sorted(Counter(map(length_bucket, lengths_ns)).items())
    if len(_SHARED) > _MOST_SHARED:
        _SHARED.clear()
    return [_SHARED.setdefault(entry, entry) for entry in _bounded(entries)]


def _bounded(entries: list[tuple[int, int]]) -> list[tuple[int, int]]:
    if len(entries) <= BUCKETS:
        return entries
    body, longest = entries[:-_KEPT], entries[-_KEPT:]
    full = sum(steps for _, steps in body) / _GROUPS
    out: list[tuple[int, int]] = []
    group: list[tuple[int, int]] = []
    gaps = 0
    for entry in body:
        apart = bool(group) and gaps < _GAPS and entry[0] - group[-1][0] > _GAP
        if group and (apart or sum(steps for _, steps in group) >= full):
            out.append(_middle(group))
            group = []
            gaps += apart
        group.append(entry)
    return [*out, _middle(group), *longest]


def _middle(group: list[tuple[int, int]]) -> tuple[int, int]:
    steps = sum(steps for _, steps in group)
    return round(sum(bucket * steps for bucket, steps in group) / steps), steps


def quantile(ordered: list[int], q: float) -> int | None:
    """The q-quantile (0..1) of sorted values by the nearest rank; None of nothing."""
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))] if ordered else None
