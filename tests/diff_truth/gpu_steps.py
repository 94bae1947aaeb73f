"""Runs made of steps of recorded GPU trainings: what a comparison tells where only the steps themselves vary.

Steps are drawn with replacement, so that one does not depend on those before it; most recordings have only a few. Each
run has a level of its own, as runs of one program differ by about half a percent.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import fmean, stdev

from tests.diff_truth.judging import Judged, figures, judge
from tests.gpu_simulator.recording import load, names
from tests.session import records
from tuimon.agent.ring import layout
from tuimon.diagnosis.comparison.side import RUN_DEVIATION
from tuimon.records import Record

#: A recording with fewer whole steps says nothing of how they vary.
_LEAST_STEPS = 3


def recorded_steps() -> dict[str, list[float]]:
    """The steps of each recording in ms, from the end of one update to that of the next, without its warm-up."""
    found = {}
    for name in names():
        recording = load(name)
        ends = [mark.time_ns for mark in recording.marks if mark.kind == layout.OPTIMIZER_END]
        steps = [(end - begin) / 1e6 for begin, end in pairwise(ends)][recording.skip_first_steps :]
        if len(steps) >= _LEAST_STEPS:
            found[name] = steps
    return found


def deviation(steps_ms: Sequence[float]) -> float:
    """Their standard deviation as a ratio of the mean."""
    return stdev(steps_ms) / fmean(steps_ms)


def drawn_pairs(steps_ms: Sequence[float], number: int, seconds: float, slower: float = 1.0) -> Iterator[Judged]:
    """Pairs of runs, the second slower; always the same."""
    chance = random.Random(f"{number} {seconds} {slower} {steps_ms[0]}")
    for _ in range(number):
        before, after = (figures(_run(steps_ms, seconds, factor, chance), "drawn") for factor in (1.0, slower))
        yield judge(before, after)


def _run(steps_ms: Sequence[float], seconds: float, slower: float, chance: random.Random) -> list[Record]:
    """Windows of a second with the steps that end in them."""
    level = slower * chance.gauss(1.0, RUN_DEVIATION)
    found: list[Record] = [records.header(), records.process(start_unix_s=chance.random())]
    now_s, first = 0.0, 0
    for t in range(1, round(seconds) + 1):
        ended = []
        while now_s < t:
            ended.append(level * chance.choice(steps_ms))
            now_s += ended[-1] / 1000
        phases = {"forward": fmean(ended)} if ended else {}
        found.append(records.steps(float(t), phases, count=len(ended), first_index=first))
        first += len(ended)
    return found
