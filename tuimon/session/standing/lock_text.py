"""Threads at locks in words: who waits for which, and who holds it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from msgspec import Struct

from tuimon.records import Frame, Place, Standstill
from tuimon.session.standing.helpers import training_threads, waiting_processes
from tuimon.session.standing.lock_waits import LockWait, Thread, deadlock, lock_waits
from tuimon.text import code_place, plain

#: Most threads that are considered; of thousands in a pool, most are alike.
_THREADS = 512


class Locked(Struct, frozen=True, gc=False):
    """What holds a training up that waits for a lock."""

    text: str
    places: tuple[Place, ...]  # where a lock is waited for, and where it is held
    is_deadlock: bool


def locked(taken: Standstill) -> Locked | None:
    """Threads that wait for each other's locks, or the first that waits for one whose holder is known; else None.

    Only of processes whose training waits for another thread: what others do among themselves holds nothing up.
    """
    waiting, training = waiting_processes(taken), training_threads(taken)
    stacks = dict(islice((each for each in _stacks(taken) if each[0][0] in waiting), _THREADS))
    waits = lock_waits(stacks)
    circle = deadlock(waits)
    if circle:
        begin = next((n for n, wait in enumerate(circle) if _trains(wait.thread, training)), 0)
        circle = circle[begin:] + circle[:begin]  # the training first
        text = ", ".join(f"{_who(wait.thread, taken)} waits for {_at(wait)}{_holding(wait, circle)}" for wait in circle)
        return Locked(text, tuple(wait.place for wait in circle), True)
    held = sorted((wait for wait in waits if wait.holder is not None), key=lambda w: not _trains(w.thread, training))
    if not held or held[0].holder is None:
        return None
    place = _user_place(stacks[held[0].holder])
    at = f" at {plain(place.function)}() {code_place(place.file, place.line)}" if place is not None else ""
    text = f"{_who(held[0].thread, taken)} waits for {_at(held[0])}, which {_who(held[0].holder, taken)} holds{at}"
    return Locked(text, (*((place,) if place is not None else ()), held[0].place), False)


def _stacks(taken: Standstill) -> Iterator[tuple[Thread, Sequence[Frame]]]:
    return ((thread, group.frames) for group in taken.groups for thread in group.threads)


def _trains(thread: Thread, training: Mapping[int, int]) -> bool:
    pid, tid = thread
    return tid == training.get(pid, pid)


def _at(wait: LockWait) -> str:
    return f"{plain(wait.lock)} at {plain(wait.place.function)}() {code_place(wait.place.file, wait.place.line)}"


def _holding(wait: LockWait, circle: Sequence[LockWait]) -> str:
    """The lock that another of the circle waits for."""
    wanted = next((other.lock for other in circle if other.holder == wait.thread), None)
    return f" and holds {plain(wanted)}" if wanted is not None else ""


def _who(thread: Thread, taken: Standstill) -> str:
    process = next((process for process in taken.processes if process.pid == thread[0]), None)
    several = sum(other.role != "worker" for other in taken.processes) > 1
    rank = f"rank {process.rank}" if several and process is not None and process.rank is not None else ""
    is_other = not _trains(thread, training_threads(taken))
    kind = "a thread" if is_other else "a worker" if process is not None and process.role == "worker" else ""
    return (f"{kind} of {rank}" if rank else kind) if kind else rank or "the training"


def _user_place(frames: Sequence[Frame]) -> Place | None:
    frame = next((frame for frame in reversed(frames) if frame.user), None)
    return Place(frame.file, frame.line, frame.function, frame.source) if frame is not None else None
