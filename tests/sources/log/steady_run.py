"""A training that goes on as it began, and its records merged."""

from __future__ import annotations

import random
from collections import Counter

from msgspec import structs

from tests.session import records
from tuimon.records import (
    Gpu,
    Loader,
    LoaderFacts,
    LoaderWorker,
    Record,
    SlowStep,
    StackCount,
    Stacks,
    Steps,
    ThreadCpu,
    Threads,
    Throttle,
    length_bucket,
)
from tuimon.session.steps.totals import Totals
from tuimon.sources.log.coarse.held import Coarse
from tuimon.sources.log.coarse.steadiness import Steadiness

PID = 100
AFTER_S = 60.0
PLACES = [("train.py", line, f"f{line}", "x = y", True) for line in range(3)]


def steps_at(t: float, rng: random.Random, first_index: int, ms: float = 100.0, data: float = 0.6) -> Steps:
    lengths = [int(ms * 1e6 * rng.uniform(0.9, 1.1)) for _ in range(rng.randint(8, 11))]
    whole = sum(lengths)
    parts = {"data": int(data * whole), "forward": int(0.15 * whole), "backward": int(0.2 * whole)}
    parts["optimizer"] = whole - sum(parts.values())
    return structs.replace(
        records.steps(t, dict.fromkeys(parts, 1.0), count=len(lengths), first_index=first_index),
        total_ns=whole,
        min_ns=min(lengths),
        histogram=sorted(Counter(map(length_bucket, lengths)).items()),
        phases=[records.PhaseTime(name, ns) for name, ns in parts.items()],
        slowest=SlowStep(first_index + lengths.index(max(lengths)), max(lengths), []),
        gc_ns=rng.randint(0, 10**6),
        gc_count=1,
        gc_longest_ns=rng.randint(0, 10**6),
    )


def second_of(t: float, rng: random.Random, first_index: int, **more: float) -> list[Record]:
    """What a training with two workers on a GPU makes in a second."""
    rows = [LoaderWorker(PID + n, n, 5, rng.uniform(600, 700), 20.0, 300.0, 10.0) for n in (1, 2)]
    frames = [0, 1] if rng.random() < 0.6 else [0, 2]
    return [
        steps_at(t, rng, first_index, **more),
        Loader(
            t=t,
            pid=PID,
            number=0,
            window_s=1.0,
            role="train",
            fetches=10,
            wait_ns=rng.randint(5, 7) * 10**8,
            p95_ns=rng.randint(6, 9) * 10**7,
            ready_fetches=10,
            ready_total=rng.randint(0, 4),
            ready_none=8,
            facts=LoaderFacts(dataset="Photos", kind="map", workers=2, prefetch=2) if t < 3 else None,
            workers=rows,
        ),
        Threads(
            t=t,
            pid=PID,
            window_s=1.0,
            cpu_ratio=0.5,
            rss_bytes=10**9,
            threads=[ThreadCpu(PID, "python", rng.uniform(0.4, 0.6), "running", 0.01, 1)],
        ),
        Stacks(t=t, pid=PID, window_s=0.9, rate_hz=20, samples=18, stacks=[StackCount(PID, "MainThread", frames, 18)]),
        Gpu(
            t=t,
            index=0,
            pid=0,
            uuid="GPU-1",
            name="Fake",
            util_ratio=rng.uniform(0.2, 0.4),
            memory_used_bytes=10**9,
            memory_total_bytes=10**10,
            throttled=[Throttle("power", 0.5)] if rng.random() < 0.5 else [],
        ),
    ]


def run_of(seconds: int, **more: float) -> list[Record]:
    rng = random.Random(1)
    made: list[Record] = [records.header(), records.process(), records.frames(*PLACES)]
    index = 0
    for t in range(1, seconds + 1):
        made += second_of(float(t), rng, index, **more)
        steps = made[-5]
        assert isinstance(steps, Steps)
        index += steps.count
    return made


def coarsened(made: list[Record], after_s: float = AFTER_S) -> list[Record]:
    coarse = Coarse(Steadiness(after_s))
    written = [each for record in made for each in coarse.add_record(record)]
    return written + coarse.rest()


def totals_of(made: list[Record]) -> Totals:
    totals = Totals()
    for record in made:
        if isinstance(record, Steps):
            totals.add_window(record)
    return totals
