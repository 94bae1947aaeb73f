"""Signs of a hang: what the ranks of one training do while none of them comes further."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, Protocol

from msgspec import Struct

from tuimon.diagnosis.evidence.steps import StepEvidence
from tuimon.records import Frame, Place, Process, Threads
from tuimon.records import Standstill as Taken
from tuimon.session.samples.activity import OutsideWait, activity_of, outside_wait
from tuimon.session.session import Session
from tuimon.session.standing.collectives import Stuck
from tuimon.session.standing.helpers import waits_for_thread, waits_for_work
from tuimon.session.standing.standing import innermost_wait, user_place

#: Reading and writing of files that was seen this long ago (s) still counts: it is measured every 5 s.
MOVED_S = 12.0
#: Nothing is looked at before so long without a boundary (s): it costs 0.1 ms a rank, and steps are usually shorter.
LEAST_S = 10.0


#: ``work``: to be given work; ``unknown``: its stack has not been sampled since it stands still, nor taken.
Wait = Literal[OutsideWait, "work", "unknown"]
_WAITS: tuple[Wait, ...] = ("prompt", "work", "slow", "unknown", "file")


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


class StandingRank(Struct, frozen=True, gc=False):
    """One training process of a standstill; what was not measured is None."""

    pid: int
    tid: int | None  # of the thread that trains, where it is not the main one
    rank: int | None
    phase: str | None  # it is in
    has_steps: bool
    median_ms: float | None  # of its steps
    longest_ms: float | None
    cpu_ratio: float | None
    worker_cpu_ratios: tuple[float, ...]
    is_still: bool | None  # whether its training thread shows one and the same stack
    wait: Wait | None  # for what outside the training it waits, or a worker of its
    is_stopped: bool  # by a signal or a debugger
    place: Place | None
    others: tuple[Place, ...]  # the user's lines that the threads or workers are at which it waits for


class Standstill(Struct, frozen=True, gc=False):
    """The live ranks of one training, the process in focus first, and what was found when all stacks were taken."""

    ranks: tuple[StandingRank, ...]
    lost: tuple[int, ...]  # ranks that have ended, and were not started again
    quiet_s: float  # since the latest boundary of any
    taken: Taken | None
    stuck: tuple[Stuck, ...]  # collectives that do not end, as flight recorders have it
    has_moved: bool  # whether files were read or written lately


def standstills(evidence: Rank, all_ranks: Sequence[Rank], session: Session) -> Iterator[Standstill]:
    """Of the training in focus, then of each other that has several ranks; none that has come further lately."""
    seen: set[int] = set()
    for first in (evidence, *all_ranks):
        if first.pid in seen or (first is not evidence and _world_size(first) < 2):
            continue
        members = peers(first, all_ranks)
        seen.update(each.pid for each in members)
        live = [each for each in members if not _has_ended(each)]
        quiet_s = _quiet_s(live)
        if quiet_s is not None:
            yield _standstill(live, members, quiet_s, session)


def peers(evidence: Rank, ranks: Sequence[Rank]) -> list[Rank]:
    """The processes of one training, itself first: of its world size, and where ranks come twice, of its parent."""
    size = _world_size(evidence)
    if size < 2:
        return [evidence]
    same = [each for each in ranks if each is not evidence and _world_size(each) == size]
    live = [each.process.rank for each in (evidence, *same) if each.process is not None and not each.process.ended]
    if len(set(live)) < len(live):
        own = evidence.process.ppid if evidence.process is not None else None
        same = [each for each in same if each.process is not None and each.process.ppid == own]
    return [evidence, *same]


def _quiet_s(live: Sequence[Rank]) -> float | None:
    """How long none of them has come to another boundary; None where one has lately, or that is not known of one."""
    quiet_s = None
    for each in live:
        open_s = each.steps.open_for_s if each.steps is not None else None
        if open_s is None or open_s < LEAST_S:
            return None
        quiet_s = open_s if quiet_s is None else min(quiet_s, open_s)
    return quiet_s


def _standstill(live: Sequence[Rank], members: Sequence[Rank], quiet_s: float, session: Session) -> Standstill:
    begun_s = session.now_s - quiet_s
    past = session.standstills.since(begun_s)
    taken = past.taken if past is not None else None
    ranks = tuple(_standing(each, begun_s, taken, session) for each in live)
    moved_s = session.standstills.moved_s
    present = {rank.rank for rank in ranks}
    ended = (each.process.rank for each in members if _has_ended(each) and each.process is not None)
    return Standstill(
        ranks=ranks,
        lost=tuple(sorted({rank for rank in ended if rank is not None and rank not in present})),
        quiet_s=quiet_s,
        taken=taken,
        stuck=tuple(past.stuck) if past is not None else (),
        has_moved=moved_s is not None and moved_s > max(begun_s, session.now_s - MOVED_S),
    )


def _standing(evidence: Rank, begun_s: float, taken: Taken | None, session: Session) -> StandingRank:
    pid, steps, threads = evidence.pid, evidence.steps, evidence.threads
    stats, sampled, tid = session.step_stats(pid), session.process_samples(pid), _training_tid(pid, session)
    workers = [session.process_threads(worker.pid) for worker in evidence.child_workers]
    main = next((row for row in threads.threads if row.tid == pid), None) if threads is not None else None
    return StandingRank(
        pid=pid,
        tid=tid if tid != pid else None,
        rank=evidence.process.rank if evidence.process is not None else None,
        phase=steps.open_phase if steps is not None else None,
        has_steps=stats is not None and stats.total > 0,
        median_ms=stats.whole_run().quantile_ms(0.5) if stats is not None else None,
        longest_ms=stats.run.quantile_ms(1.0) if stats is not None else None,
        cpu_ratio=threads.cpu_ratio if threads is not None else None,
        worker_cpu_ratios=tuple(w.cpu_ratio for w in workers if w is not None and w.cpu_ratio is not None),
        is_still=sampled.threads.is_still(tid, begun_s) if sampled is not None else None,
        wait=_wait(evidence, tid, begun_s, taken, session),
        is_stopped=main is not None and main.state == "stopped",
        place=sampled.threads.place_of(tid) if sampled is not None else None,
        others=tuple(_other_places(pid, tid, evidence.child_workers, session)),
    )


def _training_tid(pid: int, session: Session) -> int:
    """The thread that trains, by the markers."""
    stats = session.step_stats(pid)
    return stats.latest.tid or pid if stats is not None and stats.latest is not None else pid


def _wait(evidence: Rank, tid: int, begun_s: float, taken: Taken | None, session: Session) -> Wait | None:
    """What a process and its workers wait for outside the training; ``unknown`` as long as its stack is not known."""
    pid = evidence.pid
    found: list[Wait | None] = [_work_wait(evidence, tid, begun_s, taken, session)] if tid != pid else []
    for each, thread in ((pid, tid), *((worker.pid, worker.pid) for worker in evidence.child_workers)):
        if session.disk_ratio(each) == 1.0:
            found.append("slow")
        stack = _stack(each, thread, begun_s, taken, session)
        wait = outside_wait(stack) if stack else "unknown" if each == pid and taken is None else None
        found.append("slow" if wait == "file" and not _is_io_known(taken, each) else wait)
    return next((kind for kind in _WAITS if kind in found), None)


def _work_wait(evidence: Rank, tid: int, begun_s: float, taken: Taken | None, session: Session) -> Wait | None:
    """Whether a thread that trains for a program that goes on without it has nothing to train.

    It has ended, stands by in a pool, or waits outside its loop for what a main thread that serves may give it. While
    the main thread is at a prompt it may wait anywhere.
    """
    if _has_left(evidence, tid, taken):
        return "work"
    main, stack = (_stack(evidence.pid, each, begun_s, taken, session) for each in (evidence.pid, tid))
    if not stack:
        return None
    if activity_of(stack) == "idle":
        return "work"
    if not waits_for_work(stack):
        return None
    if outside_wait(main) == "prompt":
        return "prompt"
    sampled = session.process_samples(evidence.pid)
    is_outside = sampled is not None and sampled.calls_backward(stack) is False
    return "work" if is_outside and activity_of(main) in ("io", "idle") else None


def _has_left(evidence: Rank, tid: int, taken: Taken | None) -> bool:
    """Whether a thread is known to have ended: it is not listed where all are, or its stack was not there to take."""
    threads = evidence.threads
    if threads is not None and not threads.folded and all(row.count == 1 and row.tid != tid for row in threads.threads):
        return True
    return bool(_taken_stack(taken, evidence.pid, evidence.pid)) and not _taken_stack(taken, evidence.pid, tid)


def _stack(pid: int, tid: int, begun_s: float, taken: Taken | None, session: Session) -> list[Frame]:
    """Where a thread stands, root first; empty where that is not known."""
    return _taken_stack(taken, pid, tid) or _latest_stack(pid, tid, begun_s, session)


def _is_io_known(taken: Taken | None, pid: int) -> bool:
    """Whether a process is known to have read and written nothing when all stacks were taken."""
    return taken is None or any(each.pid == pid and each.io_bytes_per_s is not None for each in taken.processes)


def _taken_stack(taken: Taken | None, pid: int, tid: int) -> list[Frame]:
    """Where a thread stood when all stacks were taken, root first."""
    groups = taken.groups if taken is not None else []
    return next((group.frames for group in groups if (pid, tid) in group.threads), [])


def _latest_stack(pid: int, tid: int, begun_s: float, session: Session) -> list[Frame]:
    """Where a thread mostly was in the latest window, root first; nothing where that began before ``begun_s``."""
    sampled = session.process_samples(pid)
    if sampled is None or sampled.threads.is_still(tid, begun_s) is None:
        return []
    return _sampled_stack(pid, tid, session)


def _other_places(pid: int, tid: int, workers: Sequence[Process], session: Session) -> Iterator[Place]:
    """Where the threads are that its training waits for, or the workers; nobody else holds it up.

    Not the main thread of one that trains in another, as long as it goes on: it looks whether that has ended.
    """
    stack = _sampled_stack(pid, tid, session)
    sampled = session.process_samples(pid)
    others = [(pid, each) for each in sampled.tids() if each != tid] if sampled and waits_for_thread(stack) else []
    if sampled is not None and tid != pid and sampled.threads.same_stack_s(pid) == 0.0:
        others = [(pid, each) for _, each in others if each != pid]
    if innermost_wait(stack) == "batch":
        others = [(worker.pid, worker.pid) for worker in workers]
    for each, thread in others:
        stack = _sampled_stack(each, thread, session)
        place = user_place(stack)
        if place is not None and not waits_for_work(stack):
            yield place


def _sampled_stack(pid: int, tid: int, session: Session) -> list[Frame]:
    """Where a thread mostly was in the latest window, root first."""
    sampled = session.process_samples(pid)
    latest = sampled.threads.stack_of(tid) if sampled is not None else None
    return [session.frames[number] for number in latest[0]] if latest is not None else []


def _world_size(evidence: Rank) -> int:
    process = evidence.process
    return process.world_size or 1 if process is not None and process.rank is not None else 1


def _has_ended(evidence: Rank) -> bool:
    return evidence.process is not None and evidence.process.ended
