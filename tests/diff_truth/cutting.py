"""A stretch of a recorded run as a run of its own, as it was or as if everything had taken longer."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from tuimon.records import Frames, Header, PhaseTime, Process, Record, Stacks, Steps, Threads


def cut(records: Iterable[Record], begin_s: float, seconds: float, slower: float = 1.0) -> list[Record]:
    """The records of windows that lie between two moments after the first step, ``slower`` times as long each."""
    found: list[Record] = []
    first_s: float | None = None
    for record in records:
        if isinstance(record, Header | Process | Frames):
            found.append(record)
            continue
        if isinstance(record, Steps) and record.count and first_s is None:
            first_s = record.t
        if first_s is None or not isinstance(record, Steps | Threads | Stacks):
            continue
        if begin_s <= record.t - record.window_s - first_s and record.t - first_s <= begin_s + seconds:
            found.append(_slowed(record, first_s, slower))
    return found


def _slowed(record: Steps | Threads | Stacks, from_s: float, slower: float) -> Record:
    times = {"t": from_s + slower * (record.t - from_s), "window_s": slower * record.window_s}
    if not isinstance(record, Steps):
        return replace(record, **times)
    phases = [PhaseTime(phase.name, round(slower * phase.total_ns)) for phase in record.phases]
    return replace(record, **times, total_ns=round(slower * record.total_ns), phases=phases)
