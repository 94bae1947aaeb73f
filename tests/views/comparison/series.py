"""Made-up runs whose steps depend on one another, always the same for the same seed."""

import math
import random

from tests.session import records
from tuimon.records import Record
from tuimon.session.steps import StepStretch
from tuimon.views.report_types import RunFacts

FACTS = RunFacts(command=["python", "train.py"], host="here", cpu_count=8, torch="2.13.0", batch_size=32, workers=0)


#: What a step of 50 ms consists of.
SHARES = {"data": 0.6, "forward": 0.15, "backward": 0.2, "optimizer": 0.04, "other": 0.01}


def correlated(number: int, phi: float, seed: int, middle: float = 50.0, spread: float = 0.02) -> list[float]:
    """Values around ``middle`` of which each follows from the one before by ``phi`` (AR(1)); ``spread`` of it."""
    chance = random.Random(seed)
    value, found = chance.gauss(0, 1), []
    for _ in range(number):
        found.append(middle * (1 + spread * value))
        value = phi * value + math.sqrt(1 - phi * phi) * chance.gauss(0, 1)
    return found


def wandering(number: int, seed: int, middle: float = 50.0, spread: float = 0.06) -> list[float]:
    """Values that change as much over a minute as over seconds (about 1/f): a sum of AR(1) of lengths from 1 to 64."""
    parts = [correlated(number, math.exp(-1 / 4**power), 7 * seed + power, 1.0, 1.0) for power in range(4)]
    return [middle * (1 + spread * (sum(each) - 4) / 2) for each in zip(*parts, strict=True)]


def stretches(step_ms: list[float]) -> tuple[StepStretch, ...]:
    """A second each, filled with steps of that length."""
    found, first = [], 0.0
    for at, ms in enumerate(step_ms):
        count = max(1, round(1000 / ms))
        total = count * ms * 1e6
        parts = [SHARES[name] * total for name in SHARES]
        found.append(StepStretch(at, at + 1.0, first, count, 1.0, total, *parts, 0.0, 0.0, 0.0))
        first += count
    return tuple(found)


def run_records(step_ms: list[float], **process: object) -> list[Record]:
    """A log of a run, a window of a second for each value."""
    found: list[Record] = [records.header(), records.process(**process)]
    first = 0
    for at, ms in enumerate(step_ms, 1):
        count = max(1, round(1000 / ms))
        phases = {name: share * ms for name, share in SHARES.items()}
        found.append(records.steps(float(at), phases, count=count, first_index=first))
        first += count
    return found
