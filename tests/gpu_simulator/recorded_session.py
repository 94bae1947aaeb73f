"""A recorded training as a whole session: markers and GPU times, with samples and counters that belong to it."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from functools import cache

from tests.diagnosis.gpu import (
    BACKWARD,
    FETCH,
    FORWARD,
    IN_BACKWARD,
    IN_FETCH,
    IN_STEP,
    ITEM,
    LINES,
    MAKE,
    MODULE,
    STEP,
    TO_DEVICE,
    gpu,
)
from tests.gpu_simulator.recorded_timeline import Timeline, blocking_copies
from tests.gpu_simulator.recorded_training import RecordedTraining, recorded
from tests.gpu_simulator.recorded_truth import truth
from tests.gpu_simulator.sessions import UUID
from tests.gpu_simulator.training import PID
from tests.session.records import header, process, session_of, stacks, threads
from tuimon.agent.ring import layout
from tuimon.records import Record, Steps
from tuimon.session.session import Session

#: Samples of a window: what py-spy takes in a second at its usual rate.
_SAMPLES = 100
#: Stacks by the boundary that was passed last.
_AFTER = {
    layout.FETCH_BEGIN: (FETCH, IN_FETCH),
    layout.FETCH_END: (FORWARD, MODULE),
    layout.BACKWARD_BEGIN: (BACKWARD, IN_BACKWARD),
    layout.BACKWARD_END: (MAKE,),
    layout.OPTIMIZER_BEGIN: (STEP, IN_STEP),
    layout.OPTIMIZER_END: (MAKE,),
}
_WAITS = {"synchronise": (ITEM,), "copy": (TO_DEVICE,)}


def records(name: str, *, counters: bool = True) -> list[Record]:
    """All records of a session, in order; ``counters``: with NVML's beside them."""
    training, marked = recorded(name)
    timeline = training.timeline
    busy = round(truth(name).kernel_ratio, 2)
    sampled = samples(timeline)
    out: list[Record] = _beginning(training, marked[0].t - 1.0)
    for record in marked:
        out.append(record)
        if isinstance(record, Steps):
            out += [gpu(record.t, busy)] if counters else []
            out.append(threads(record.t, (PID, "python", 0.99, "running", 0.0), cpu_ratio=0.99))
            out.append(stacks(record.t, *((list(ids), count) for ids, count in sampled.items()), pid=PID))
    return out


@cache
def session(name: str, *, counters: bool = True) -> Session:
    """``records`` folded."""
    return session_of(*records(name, counters=counters))


def samples(timeline: Timeline) -> Counter[tuple[int, ...]]:
    """Stacks of the training thread at regular moments of a period."""
    waits = [wait for wait in timeline.waits if wait.kind in _WAITS and wait.by_main_thread]
    waits += blocking_copies(timeline.works)
    times = [mark.time_ns for mark in timeline.marks]
    found: Counter[tuple[int, ...]] = Counter()
    for number in range(_SAMPLES):
        at_ns = timeline.begin_ns + (2 * number + 1) * timeline.period_ns // (2 * _SAMPLES)
        waiting = next((_WAITS[w.kind] for w in waits if w.begin_ns <= at_ns < w.end_ns), None)
        kind = timeline.marks[bisect_right(times, at_ns) - 1].kind
        after = _AFTER[kind]
        if kind == layout.OPTIMIZER_END and not _has_loader(timeline):
            after = _AFTER[layout.FETCH_END]
        found[waiting if waiting is not None and kind != layout.BACKWARD_BEGIN else after] += 1
    return found


def _has_loader(timeline: Timeline) -> bool:
    return any(mark.kind == layout.FETCH_END for mark in timeline.marks)


def _beginning(training: RecordedTraining, begun_s: float) -> list[Record]:
    world = training.timeline.recording.world_size
    ranks = {"rank": 0, "world_size": world} if world else {}
    return [
        header(pid=PID, cpu_count=8, t=begun_s),
        process(PID, t=begun_s, torch="2.13.0+cu130", gpu_uuids=[UUID], **ranks),
        LINES,
    ]
