"""Pairs of runs: recorded one after the other, and cut from long ones."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.diff_truth.cutting import cut
from tests.diff_truth.judging import Judged, figures, judge
from tests.diff_truth.recording import Wanted, record
from tuimon.records import Record, Steps
from tuimon.sources.log.reader import read_log

KINDS = ("compute", "loader", "storage")


def real_pairs(folder: Path, number: int, seconds: float, slower: float = 1.0, busy: int = 0) -> Iterator[Judged]:
    """The same training twice, the second time slower, or beside busy programs; kinds take turns."""
    for index in range(number):
        kind = KINDS[index % len(KINDS)]
        runs = []
        for side, factor, beside in (("a", 1.0, 0), ("b", slower, busy)):
            name = f"{kind}-{index}{side}-{factor:g}-{beside}"
            runs.append(figures(read_log(str(record(Wanted(name, kind, seconds, factor, beside), folder))), name))
        yield judge(*runs)


def long_runs(folder: Path, seconds: float) -> list[list[Record]]:
    """A long run of each kind."""
    return [list(read_log(str(record(Wanted(f"{kind}-long", kind, seconds), folder)))) for kind in KINDS]


def cut_pairs(
    runs: Sequence[list[Record]], number: int, lengths: tuple[float, float], slower: float = 1.0, seed: int = 0
) -> Iterator[Judged]:
    """Two stretches of one run that do not overlap, the second slower; drawn at random, always the same."""
    chance = random.Random(seed)
    for index in range(number):
        records = runs[index % len(runs)]
        length = chance.uniform(*lengths)
        spare = _seconds(records) - 2 * length
        if spare < 0:
            continue
        first = chance.uniform(0, spare)
        second = first + length + chance.uniform(0, spare - first)
        begins = [first, second] if chance.random() < 0.5 else [second, first]
        pair = [
            figures(cut(records, begin, length, factor), f"{length:.0f} s from {begin:.0f} s")
            for begin, factor in zip(begins, (1.0, slower), strict=True)
        ]
        yield judge(*pair)


def _seconds(records: Sequence[Record]) -> float:
    ends = [record.t for record in records if isinstance(record, Steps) and record.count]
    return ends[-1] - ends[0] if ends else 0.0
