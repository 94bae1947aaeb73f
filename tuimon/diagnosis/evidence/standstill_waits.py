"""The waits of a training that stands still, by the stacks of its threads and workers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, Protocol

from msgspec import Struct

from tuimon.diagnosis.evidence.steps import StepEvidence
from tuimon.records import Frame, Process, Threads
from tuimon.records import Standstill as Taken
from tuimon.session.session import Session
from tuimon.session.stacks.activity import OutsideWait, activity_of, awaits_process, innermost_wait, outside_wait
from tuimon.session.stacks.trie import user_place
from tuimon.session.standing import outer_calls, stands_at_lock, waits_for_thread, waits_for_work
from tuimon.torch_code import is_loader_code

#: ``work``: to be given work, or whatever it waits for once the training is over; ``unknown``: its stack has not been
#: sampled since it stands still, nor taken.
Wait = Literal[OutsideWait, "work", "unknown"]
_WAITS: tuple[Wait, ...] = ("prompt", "work", "slow", "unknown", "file")
#: Calls into C by which a server of the user's own gets its requests.
_RECEIVES = frozenset({"recv", "recv_into", "recvfrom", "recvfrom_into", "recvmsg"})


class Rank(Protocol):
    """The evidence of one process, as far as it matters here."""

    @property
    def pid(self) -> int:
        """Its process id."""

    @property
    def process(self) -> Process | None:
        """Its facts."""

    @property
    def steps(self) -> StepEvidence | None:
        """Its steps."""

    @property
    def threads(self) -> Threads | None:
        """CPU figures of its threads."""

    @property
    def child_workers(self) -> tuple[Process, ...]:
        """Its live DataLoader workers."""


def wait_of(evidence: Rank, tid: int, begun_s: float, taken: Taken | None, session: Session) -> Wait | None:
    """The wait of a process and its workers for something outside the training; ``unknown`` without a stack."""
    pid = evidence.pid
    found: list[Wait | None] = [_work_wait(evidence, tid, begun_s, taken, session)]
    for each, thread in ((pid, tid), *((worker.pid, worker.pid) for worker in evidence.child_workers)):
        if session.over("recent").disk_ratio(each) == 1.0:
            found.append("slow")
        stack = stack_of(each, thread, begun_s, taken, session)
        wait = outside_wait(stack) if stack else "unknown" if each == pid and taken is None else None
        if wait == "slow" and peers_of(taken, each):
            wait = None
        found.append("slow" if wait == "file" and not _is_io_known(taken, each) else wait)
    return next((kind for kind in _WAITS if kind in found), None)


def _work_wait(evidence: Rank, tid: int, begun_s: float, taken: Taken | None, session: Session) -> Wait | None:
    """``work`` if the training thread has nothing to train at the moment, so that its wait is no hang; None if it has.

    - Its stack has left all loops in which it trained, and waits or sleeps: ``work``.
    - It is the main thread, and only all stacks of the run could show that: ``unknown`` until they are taken.
    - It is another thread, and has ended or is idle in a pool: ``work``.
    - It is another thread and waits for a job: ``prompt`` while the main thread is at one, ``work`` if it is outside
      its loop while the main thread serves.
    """
    stack = stack_of(evidence.pid, tid, begun_s, taken, session)
    if _is_over(evidence.pid, taken) and _may_wait_for_ever(stack):
        return "work"
    if tid == evidence.pid:
        return "unknown" if taken is None and _may_be_over(stack, evidence.pid, session) else None
    if _has_ended_thread(evidence, tid, taken):
        return "work"
    main = stack_of(evidence.pid, evidence.pid, begun_s, taken, session)
    if not stack:
        return None
    if activity_of(stack) == "idle":
        return "work"
    if not waits_for_work(stack):
        return None
    if outside_wait(main) == "prompt":
        return "prompt"
    is_outside = _is_outside(stack, evidence.pid, session)
    return "work" if is_outside and activity_of(main) in ("io", "idle") else None


def _may_wait_for_ever(stack: Sequence[Frame]) -> bool:
    """True if a thread whose training is over waits for what need not come: neither batch, rank nor lock."""
    if not stack or innermost_wait(stack) is not None:
        return False
    return waits_for_work(stack) or (stack[-1].user and not _RECEIVES.isdisjoint(outer_calls(stack[-1].source)))


def _is_outside(stack: Sequence[Frame], pid: int, session: Session) -> bool:
    """True if a stack is known to be in no function of the user's that calls backward."""
    sampled = session.stacks.get(pid)
    return sampled is not None and sampled.calls_backward(stack) is False


def _may_be_over(stack: Sequence[Frame], pid: int, session: Session) -> bool:
    """True if only all stacks, once they are taken, can tell a training that is over from one that hangs."""
    return waits_for_work(stack) and _is_outside(stack, pid, session)


def _is_over(pid: int, taken: Taken | None) -> bool:
    """True if a process's training thread was outside every loop that it trained in when all stacks were taken."""
    return taken is not None and any(each.pid == pid and each.has_left for each in taken.processes)


def peers_of(taken: Taken | None, pid: int) -> list[int]:
    """Who is at the other end of what a process is blocked on, where that is known, and nobody there will send."""
    processes = taken.processes if taken is not None else []
    return next((each.peers for each in processes if each.pid == pid and each.peers is not None), [])


def _has_ended_thread(evidence: Rank, tid: int, taken: Taken | None) -> bool:
    """True if a thread is known to have ended: it is not listed where all are, or its stack was not there to take."""
    threads = evidence.threads
    if threads is not None and not threads.folded and all(row.count == 1 and row.tid != tid for row in threads.threads):
        return True
    return bool(_taken_stack(taken, evidence.pid, evidence.pid)) and not _taken_stack(taken, evidence.pid, tid)


def stack_of(pid: int, tid: int, begun_s: float, taken: Taken | None, session: Session) -> list[Frame]:
    """The stack of a thread, root first; empty if it is unknown."""
    return _taken_stack(taken, pid, tid) or _latest_stack(pid, tid, begun_s, session)


def _is_io_known(taken: Taken | None, pid: int) -> bool:
    """True if a process is known to have read and written nothing when all stacks were taken."""
    return taken is None or any(each.pid == pid and each.io_bytes_per_s is not None for each in taken.processes)


def _taken_stack(taken: Taken | None, pid: int, tid: int) -> list[Frame]:
    """The stack of a thread when all stacks were taken, root first."""
    groups = taken.groups if taken is not None else []
    return next((group.frames for group in groups if (pid, tid) in group.threads), [])


def _latest_stack(pid: int, tid: int, begun_s: float, session: Session) -> list[Frame]:
    """The most frequent stack of a thread in the latest window, root first; empty if that began before ``begun_s``."""
    sampled = session.stacks.get(pid)
    if sampled is None or sampled.threads.is_still(tid, begun_s) is None:
        return []
    return sampled_stack(pid, tid, session)


def sampled_stack(pid: int, tid: int, session: Session) -> list[Frame]:
    """The most frequent stack of a thread in the latest window, root first."""
    sampled = session.stacks.get(pid)
    latest = sampled.threads.stack_of(tid) if sampled is not None else None
    return list(latest[0].frames) if latest is not None else []


class First(Struct, frozen=True, gc=False):
    """One training process in its first step."""

    waits_for: Literal["batch", "thread", "ranks"] | None  # None: it stands elsewhere, or its stack is unknown
    may_go_on: bool  # a process or a thread imports, compiles, waits for what may rightly take long, or is not known
    is_stuck: bool  # at a lock; or all workers that make a batch wait for a thread, and have none


def first_of(evidence: Rank, tid: int, begun_s: float, taken: Taken | None, session: Session) -> First:
    """By the stacks that were taken, or before that by the latest samples."""
    pid = evidence.pid
    own = stack_of(pid, tid, begun_s, taken, session)
    waits_for = innermost_wait(own) or ("thread" if _waits_inside(own) else None)
    at_work = _at_work(evidence, begun_s, taken, session)
    others = [frames for each in (pid, *at_work) for frames in _other_stacks(taken, each, tid)]
    more = _more_of_waiting(at_work, session)
    return First(
        waits_for=waits_for,
        may_go_on=any(_may_go_on(stack) for stack in (own, *at_work.values(), *others))
        or any(number is None or number > len(list(_other_stacks(taken, each, tid))) for each, number in more.items()),
        is_stuck=_have_none(at_work, session) if waits_for == "batch" else stands_at_lock(own),
    )


def forked_in_vain(evidence: Rank, tid: int, begun_s: float, taken: Taken | None, session: Session) -> bool:
    """True if it waits for a batch, and all workers that make one wait for a thread that no fork has brought along."""
    if innermost_wait(stack_of(evidence.pid, tid, begun_s, taken, session)) != "batch":
        return False
    loaders = session.over("recent").loaders(evidence.pid)
    return any(loader.facts.context == "fork" for loader in loaders) and _have_none(
        _at_work(evidence, begun_s, taken, session), session
    )


def _at_work(evidence: Rank, begun_s: float, taken: Taken | None, session: Session) -> dict[int, list[Frame]]:
    """The workers that are in the user's code, with the stacks of their main threads."""
    stacks = {each.pid: stack_of(each.pid, each.pid, begun_s, taken, session) for each in evidence.child_workers}
    return {pid: stack for pid, stack in stacks.items() if user_place(stack) is not None}


def _more_of_waiting(at_work: Mapping[int, Sequence[Frame]], session: Session) -> dict[int, int | None]:
    """How many more threads each has of these workers that waits for one."""
    return {pid: _more_threads(pid, session) for pid, stack in at_work.items() if _waits_inside(stack)}


def _have_none(at_work: Mapping[int, Sequence[Frame]], session: Session) -> bool:
    more = _more_of_waiting(at_work, session)
    return bool(more) and len(more) == len(at_work) and not any(more.values())


def _more_threads(pid: int, session: Session) -> int | None:
    """How many threads a process has beside its main one; None where that is not known."""
    threads = session.over("recent").process_threads(pid)
    return None if threads is None else sum(row.count for row in threads.threads) + threads.folded - 1


def _may_go_on(stack: Sequence[Frame]) -> bool:
    inside = _in_data_set(stack)
    return bool(inside) and (activity_of(inside) in ("import", "compile") or outside_wait(inside) is not None)


def _waits_inside(stack: Sequence[Frame]) -> bool:
    """True if it waits for another thread of its process."""
    inside = _in_data_set(stack)
    return waits_for_thread(inside) and not awaits_process(inside)


def _in_data_set(stack: Sequence[Frame]) -> Sequence[Frame]:
    """The part of a stack inside the DataLoader's, where the user's code runs there; else all of it."""
    loader = max((at for at, frame in enumerate(stack) if is_loader_code(frame.file)), default=-1)
    inside = stack[loader + 1 :]
    return inside if any(frame.user for frame in inside) else stack


def _other_stacks(taken: Taken | None, pid: int, tid: int) -> Iterator[list[Frame]]:
    """The taken stacks of a process's threads, but for its main thread and the one that trains."""
    for group in taken.groups if taken is not None else []:
        if any(each == pid and thread not in (pid, tid) for each, thread in group.threads):
            yield group.frames
