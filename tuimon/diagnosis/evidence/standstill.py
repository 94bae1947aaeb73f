"""Signs of a hang: what the ranks of one training do while none of them comes further."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from msgspec import Struct

from tuimon.diagnosis.evidence.standstill_waits import (
    First,
    Rank,
    Wait,
    first_of,
    forked_in_vain,
    peers_of,
    sampled_stack,
    stack_of,
    wait_of,
)
from tuimon.records import Frame, Place, Process, Threads
from tuimon.records import Standstill as Taken
from tuimon.session.session import Session
from tuimon.session.stacks.activity import activity_of, innermost_wait
from tuimon.session.stacks.trie import user_place
from tuimon.session.standing import Stuck, is_at_exit, waits_for_thread, waits_for_work

#: Reading and writing of files that was seen this long ago (s) still counts: it is measured every 5 s.
MOVED_S = 12.0
#: Nothing is inspected before so long without a boundary (s): it costs 0.1 ms a rank, and steps are usually shorter.
LEAST_S = 10.0
#: CPU of a main thread from which it may compute what a training in another thread waits for: our choice, what one that
#: computes gets of a core that two share; one that serves or draws takes less.
COMPUTING_CPU = 0.5
#: The reason why a program is there after its training: it sleeps, or waits for a thread of its own.
Rest = Literal["sleep", "thread"]


class StandingRank(Struct, frozen=True, gc=False):
    """One training process of a standstill; what was not measured is None."""

    pid: int
    tid: int | None  # of the thread that trains, where it is not the main one
    rank: int | None
    phase: str | None  # it is in
    first: First | None  # what is known of its first step; None once a whole one has ended
    forked: bool  # whether forked workers wait for threads that they do not have
    median_ms: float | None  # of its steps
    longest_ms: float | None
    cpu_ratio: float | None  # without a main thread that trains nothing
    worker_cpu_ratios: tuple[float, ...]
    is_still: bool | None  # whether its training thread shows one and the same stack
    wait: Wait | None  # for what outside the training it waits, or a worker of its
    peers: tuple[int, ...]  # who is at the other end of what it is blocked on, where these are known to wait as well
    is_stopped: bool  # by a signal or a debugger
    main_moves: bool  # whether its main thread, which is not the one that trains, goes on
    rests: Rest | None  # below every loop that it trained in
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
    idle_s: float | None  # since all stacks were taken, or files were read or written after that


def standstills(evidence: Rank, all_ranks: Sequence[Rank], session: Session) -> Iterator[Standstill]:
    """Standstills of the training in focus, then of others with several ranks; none that has come further lately."""
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
        idle_s=session.now_s - max(taken.t, moved_s or 0.0) if taken is not None else None,
    )


def _standing(evidence: Rank, begun_s: float, taken: Taken | None, session: Session) -> StandingRank:
    pid, steps, threads = evidence.pid, evidence.steps, evidence.threads
    stats, sampled, tid = session.step_stats.get(pid), session.stacks.get(pid), _training_tid(pid, session)
    workers = [session.threads.of(worker.pid) for worker in evidence.child_workers]
    main = next((row for row in threads.threads if row.tid == pid), None) if threads is not None else None
    return StandingRank(
        pid=pid,
        tid=tid if tid != pid else None,
        rank=evidence.process.rank if evidence.process is not None else None,
        phase=steps.open_phase if steps is not None else None,
        first=first_of(evidence, tid, begun_s, taken, session) if stats is None or not stats.total else None,
        forked=forked_in_vain(evidence, tid, begun_s, taken, session),
        median_ms=stats.over().quantile_ms(0.5) if stats is not None else None,
        longest_ms=stats.over().quantile_ms(1.0) if stats is not None else None,
        cpu_ratio=_cpu_ratio(threads, tid, stack_of(pid, tid, begun_s, taken, session))
        if threads is not None
        else None,
        worker_cpu_ratios=tuple(w.cpu_ratio for w in workers if w is not None and w.cpu_ratio is not None),
        is_still=sampled.threads.is_still(tid, begun_s) if sampled is not None else None,
        wait=wait_of(evidence, tid, begun_s, taken, session),
        peers=tuple(peers_of(taken, pid)),
        # the threads may have been read after the stop
        is_stopped=(main is not None and main.state == "stopped") or (stats is not None and stats.was_stopped),
        main_moves=_main_moves(pid, tid, session),
        rests=_rests(pid, tid, taken),
        place=sampled.threads.place_of(tid) if sampled is not None else None,
        others=tuple(_other_places(pid, tid, evidence.child_workers, session)),
    )


def _cpu_ratio(threads: Threads, tid: int, stack: Sequence[Frame]) -> float | None:
    """CPU of a process; of one that trains in another thread than the main one, without that.

    Unless the training may wait for what the main thread computes.
    """
    main = next((row for row in threads.threads if row.tid == threads.pid != tid), None)
    if threads.cpu_ratio is None or main is None or main.cpu_ratio is None:
        return threads.cpu_ratio
    if main.cpu_ratio > COMPUTING_CPU and (not stack or waits_for_thread(stack)):
        return threads.cpu_ratio
    return max(0.0, threads.cpu_ratio - main.cpu_ratio)


def _training_tid(pid: int, session: Session) -> int:
    """The thread that trains, by the markers."""
    stats = session.step_stats.get(pid)
    return stats.latest.tid or pid if stats is not None and stats.latest is not None else pid


def _main_moves(pid: int, tid: int, session: Session) -> bool:
    """True if the main thread of a process that trains in another goes on, such as one that draws a progress bar."""
    sampled = session.stacks.get(pid)
    return tid != pid and sampled is not None and sampled.threads.same_stack_s(pid) == 0.0


def _rests(pid: int, tid: int, taken: Taken | None) -> Rest | None:
    """How a main thread passes its time whose training is over; None of a server, and where that is not known."""
    row = next((each for each in taken.processes if each.pid == pid), None) if taken is not None else None
    if taken is None or row is None or not row.has_left or row.listens or tid != pid:
        return None
    stack = next((group.frames for group in taken.groups if (pid, tid) in group.threads), [])
    if activity_of(stack) == "sleep":
        return "sleep"
    return (
        "thread"
        if stack and innermost_wait(stack) is None and waits_for_work(stack) and waits_for_thread(stack)
        else None
    )


def _other_places(pid: int, tid: int, workers: Sequence[Process], session: Session) -> Iterator[Place]:
    """The places of the threads that its training waits for, or of the workers; nobody else holds it up.

    Not the main thread of one that trains in another, as long as it goes on: it polls whether that has ended. At the
    exit any thread keeps the program alive, also one that waits for work.
    """
    stack = sampled_stack(pid, tid, session)
    at_exit = is_at_exit(stack)
    sampled = session.stacks.get(pid)
    others = [(pid, each) for each in sampled.tids("now") if each != tid] if sampled and waits_for_thread(stack) else []
    if _main_moves(pid, tid, session):
        others = [(pid, each) for _, each in others if each != pid]
    if innermost_wait(stack) == "batch":
        others = [(worker.pid, worker.pid) for worker in workers]
    for each, thread in others:
        stack = sampled_stack(each, thread, session)
        place = user_place(stack)
        if place is not None and (at_exit or not waits_for_work(stack)):
            yield place


def last_places(pid: int, session: Session) -> dict[int, Place]:
    """The user's line in the last samples of a training thread, and of its DataLoader workers, by process."""
    workers = (each.pid for each in session.processes() if each.role == "worker" and each.ppid == pid)
    places = {}
    for each, tid in ((pid, _training_tid(pid, session)), *((worker, worker) for worker in workers)):
        sampled = session.stacks.get(each)
        place = sampled.threads.place_of(tid) if sampled is not None else None
        if place is not None:
            places[each] = place
    return places


def _world_size(evidence: Rank) -> int:
    process = evidence.process
    return process.world_size or 1 if process is not None and process.rank is not None else 1


def _has_ended(evidence: Rank) -> bool:
    return evidence.process is not None and evidence.process.ended
