"""The stack samples of a log, as the stack formats need them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tuimon.records import Frame, Record, Stacks, Threads
from tuimon.session.frames import FrameTable
from tuimon.session.samples import classify
from tuimon.session.session import Session


@dataclass(frozen=True, slots=True)
class Selection:
    """What of a log to export: seconds count from the log's first record, ``role`` is as shown ("main", "worker")."""

    phase: str | None = None
    role: str | None = None
    from_s: float = 0.0
    until_s: float = float("inf")


@dataclass(slots=True)
class ThreadProfile:
    """The samples of one thread: stacks of frames, root first, and how often each was seen."""

    pid: int
    tid: int
    role: str
    name: str
    stacks: list[tuple[tuple[Frame, ...], int]] = field(default_factory=list)


def thread_profiles(records: Iterable[Record], selection: Selection) -> list[ThreadProfile]:
    """The selected samples by thread, trainers' main threads first.

    A phase can be told for training threads only: with one selected, no other thread is given.
    """
    session = Session()
    merged: dict[tuple[int, int], dict[tuple[int, ...], int]] = {}
    names: dict[tuple[int, int], str] = {}
    roles: dict[tuple[int, int], str] = {}
    for record in records:
        session.add(record)
        if isinstance(record, Stacks) and _inside(record.t - (session.start_s or 0.0), selection):
            for stack in record.stacks:
                counts = merged.setdefault((record.pid, stack.tid), {})
                counts[tuple(stack.frames)] = counts.get(tuple(stack.frames), 0) + stack.count
                names[record.pid, stack.tid] = stack.thread
        if isinstance(record, Threads):
            roles.update({(row.pid, row.tid): row.role for row in session.threads_of(record.pid)})
    frames, trainers = session.frames, session.trainers()
    out = []
    for (pid, tid), counts in sorted(merged.items(), key=lambda item: (item[0][0] not in trainers, item[0])):
        trains = tid == pid and pid in trainers
        role = roles.get((pid, tid), "main" if trains else names[pid, tid] or "thread")
        if selection.role not in (None, role, role.split()[0]) or (selection.phase is not None and not trains):
            continue
        profile = ThreadProfile(pid, tid, role, names[pid, tid])
        for ids, count in _of_phase(counts, selection.phase, frames):
            profile.stacks.append((tuple(frames[n] for n in ids), count))
        if profile.stacks:
            out.append(profile)
    return out


def _of_phase(
    counts: dict[tuple[int, ...], int], phase: str | None, frames: FrameTable
) -> Iterable[tuple[Sequence[int], int]]:
    if phase is None:
        return counts.items()
    return ((sample.stack, sample.count) for sample in classify(counts, frames) if sample.phase == phase)


def _inside(at_s: float, selection: Selection) -> bool:
    return selection.from_s <= at_s <= selection.until_s
