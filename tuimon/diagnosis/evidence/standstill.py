"""Signs of a hang: what the ranks of one training do, and wait for, while none of them comes further."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import takewhile
from typing import Literal, NamedTuple

from msgspec import Struct

from tuimon.diagnosis.evidence.steps import step_evidence
from tuimon.node_ids import own_id
from tuimon.records import Frame, Place, StandingProcess, Threads
from tuimon.records import Standstill as Taken
from tuimon.session.ranks import training_of
from tuimon.session.session import Session, SessionView
from tuimon.session.stacks.activity import OutsideWait, activity_of, awaits_process, innermost_wait, outside_wait
from tuimon.session.stacks.process import ProcessStacks
from tuimon.session.stacks.trie import user_place
from tuimon.session.standing import (
    Stuck,
    is_at_exit,
    outer_calls,
    stands_at_lock,
    waits_for_thread,
    waits_for_work,
)
from tuimon.session.threads import thread_count
from tuimon.torch_code import is_loader_code

#: Reading and writing of files that was seen this long ago (s) still counts: it is measured every 5 s.
MOVED_S = 12.0
#: Nothing is inspected before so long without a boundary (s): it costs 0.1 ms a rank, and steps are usually shorter.
LEAST_S = 10.0
#: CPU of a main thread from which it may compute what a training in another thread waits for: our choice, what one that
#: computes gets of a core that two share; one that serves or draws takes less.
COMPUTING_CPU = 0.5
#: Who ended so long before nothing moved, or less, may be missed only then (s): our choice, a queue that nobody empties
#: is full by then.
_GONE_S = 60.0
#: The reason why a program is there after its training: it sleeps, or waits for a thread of its own.
Rest = Literal["sleep", "thread"]
#: ``work``: to be given work, or whatever it waits for once the training is over; ``unknown``: its stack has not been
#: sampled since it stands still, nor taken.
Wait = Literal[OutsideWait, "work", "unknown"]
_WAITS: tuple[Wait, ...] = ("prompt", "work", "slow", "unknown", "file")
#: One training process in its first step: at a lock, or all its workers wait for a thread and have none; it waits for a
#: batch, a thread or a rank; or it may go on, as far as is known: somebody imports, compiles, waits outside.
First = Literal["stuck", "waits", "may_go_on"]
#: Calls into C by which a server of the user's own gets its requests.
_RECEIVES = frozenset({"recv", "recv_into", "recvfrom", "recvfrom_into", "recvmsg"})


class Gone(NamedTuple):
    """A thread or a child process that has ended, for which a training may wait."""

    who: str  # "thread event-writer", "process 4711"
    place: Place | None  # of the user's, where it was sampled last
    queue: Literal["full", "empty"] | None  # if the training waits for a queue


class StandingRank(Struct, frozen=True, gc=False):
    """One training process of a standstill; what was not measured is None."""

    pid: int
    tid: int | None  # of the thread that trains, where it is not the main one
    rank: int | None
    phase: str | None  # it is in
    first: First | None  # None once a whole step has ended
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
    gone: Gone | None


class Standstill(Struct, frozen=True, gc=False):
    """The live ranks of one training, the process in focus first, and what was found when all stacks were taken."""

    ranks: tuple[StandingRank, ...]
    lost: tuple[int, ...]  # ranks that have ended, and were not started again
    quiet_s: float  # since the latest boundary of any
    taken: Taken | None
    stuck: tuple[Stuck, ...]  # collectives that do not end, as flight recorders have it
    has_moved: bool  # whether files were read or written lately
    idle_s: float | None  # since all stacks were taken, or files were read or written after that


def standstills(view: SessionView, focus: int, trainers: Sequence[int]) -> Iterator[Standstill]:
    """Standstills of the training in focus, then of others with several ranks; none that has come further lately.

    ``trainers``: all training processes of the run, by rank.
    """
    seen: set[int] = set()
    for pid in (focus, *trainers):
        members = [pid, *(each.pid for each in training_of(view, pid) if each.pid != pid and each.pid in trainers)]
        if pid in seen or (pid != focus and len(members) < 2):
            continue
        seen.update(members)
        live = [each for each in members if (process := view.process(each)) is None or not process.ended]
        open_s = (step_evidence(view, each).open_for_s or 0.0 for each in live)
        quiet_s = list(takewhile(lambda quiet_s: quiet_s >= LEAST_S, open_s))  # one that goes on is enough
        if quiet_s and len(quiet_s) == len(live):
            yield _standstill(view, live, members, min(quiet_s))


def _standstill(view: SessionView, live: Sequence[int], members: Sequence[int], quiet_s: float) -> Standstill:
    session = view.session
    begun_s = session.now_s - quiet_s
    past = session.standstills.since(begun_s)
    taken = past.taken if past is not None else None
    ranks = tuple(_Standing(each, begun_s, taken, view).rank() for each in live)
    moved_s = session.standstills.moved_s
    ended = (process for each in members if (process := view.process(each)) is not None and process.ended)
    lost = {process.rank for process in ended} - {rank.rank for rank in ranks}
    return Standstill(
        ranks=ranks,
        lost=tuple(sorted(rank for rank in lost if rank is not None)),
        quiet_s=quiet_s,
        taken=taken,
        stuck=tuple(past.stuck) if past is not None else (),
        has_moved=moved_s is not None and moved_s > max(begun_s, session.now_s - MOVED_S),
        idle_s=session.now_s - max(taken.t, moved_s or 0.0) if taken is not None else None,
    )


class _Standing(Struct, frozen=True, dict=True):
    """One training process since it stands still, by the latest samples, and by all stacks once they are taken."""

    pid: int
    begun_s: float
    taken: Taken | None
    view: SessionView

    @property
    def session(self) -> Session:
        return self.view.session

    @cached_property
    def threads(self) -> Threads | None:
        """CPU figures of its threads."""
        return self.view.process_threads(self.pid)

    @cached_property
    def worker_pids(self) -> list[int]:
        """Its live DataLoader workers."""
        return [worker.pid for worker in self.view.workers(self.pid)]

    @cached_property
    def tid(self) -> int:
        return self.session.training_tid(self.pid)

    @cached_property
    def sampled(self) -> ProcessStacks | None:
        return self.session.stacks.get(self.pid)

    @cached_property
    def own(self) -> list[Frame]:
        """The stack of the training thread."""
        return self.stack(self.pid, self.tid)

    @cached_property
    def workers(self) -> dict[int, list[Frame]]:
        """The workers that are in the user's code, with the stacks of their main threads."""
        stacks = {each: self.stack(each, each) for each in self.worker_pids}
        return {pid: stack for pid, stack in stacks.items() if user_place(stack) is not None}

    @property
    def main_moves(self) -> bool:
        """True if a main thread that trains nothing goes on, such as one that draws a progress bar."""
        return self.tid != self.pid and self.sampled is not None and self.sampled.threads.same_stack_s(self.pid) == 0.0

    def process(self, pid: int) -> StandingProcess | None:
        """What was found of a process when all stacks were taken."""
        return next((each for each in self.taken.processes if each.pid == pid), None) if self.taken else None

    def taken_stack(self, pid: int, tid: int) -> list[Frame]:
        """The stack of a thread then, root first; empty if it is unknown, as those below."""
        groups = self.taken.groups if self.taken is not None else []
        return next((group.frames for group in groups if (pid, tid) in group.threads), [])

    def sampled_stack(self, pid: int, tid: int) -> list[Frame]:
        """The most frequent stack of a thread in the latest window."""
        sampled = self.session.stacks.get(pid)
        latest = sampled.threads.stack_of(tid) if sampled is not None else None
        return list(latest[0].frames) if latest is not None else []

    def stack(self, pid: int, tid: int) -> list[Frame]:
        """The stack of a thread since the process stands still."""
        if found := self.taken_stack(pid, tid):
            return found
        sampled = self.session.stacks.get(pid)
        is_of_now = sampled is not None and sampled.threads.is_still(tid, self.begun_s) is not None
        return self.sampled_stack(pid, tid) if is_of_now else []

    def rank(self) -> StandingRank:
        """All of it."""
        pid, tid, threads, sampled = self.pid, self.tid, self.threads, self.sampled
        process, stats = self.view.process(pid), self.session.step_stats.get(pid)
        workers = [self.session.threads.of(worker) for worker in self.worker_pids]
        main = next((row for row in threads.threads if row.tid == pid), None) if threads is not None else None
        return StandingRank(
            pid=pid,
            tid=tid if tid != pid else None,
            rank=process.rank if process is not None else None,
            phase=step_evidence(self.view, pid).open_phase,
            first=self.first() if stats is None or not stats.total else None,
            forked=self.forked_in_vain(),
            median_ms=stats.over().quantile_ms(0.5) if stats is not None else None,
            longest_ms=stats.over().quantile_ms(1.0) if stats is not None else None,
            cpu_ratio=self.cpu_ratio(),
            worker_cpu_ratios=tuple(w.cpu_ratio for w in workers if w is not None and w.cpu_ratio is not None),
            is_still=sampled.threads.is_still(tid, self.begun_s) if sampled is not None else None,
            wait=self.wait(),
            peers=tuple(self.peers(pid)),
            # the threads may have been read after the stop
            is_stopped=(main is not None and main.state == "stopped") or (stats is not None and stats.was_stopped),
            main_moves=self.main_moves,
            rests=self.rests(),
            place=sampled.threads.place_of(tid) if sampled is not None else None,
            others=tuple(self.other_places()),
            gone=_gone(self.pid, self.session, self.own, self.begun_s),
        )

    def cpu_ratio(self) -> float | None:
        """CPU of the process; of one that trains in another thread than the main one, without that.

        Unless the training may wait for what the main thread computes.
        """
        threads = self.threads
        if threads is None:
            return None
        main = next((row for row in threads.threads if row.tid == self.pid != self.tid), None)
        if threads.cpu_ratio is None or main is None or main.cpu_ratio is None:
            return threads.cpu_ratio
        if main.cpu_ratio > COMPUTING_CPU and (not self.own or waits_for_thread(self.own)):
            return threads.cpu_ratio
        return max(0.0, threads.cpu_ratio - main.cpu_ratio)

    def peers(self, pid: int) -> list[int]:
        """Who is at the other end of what a process is blocked on, where that is known, and nobody there will send."""
        row = self.process(pid)
        return row.peers or [] if row is not None else []

    # -- what it waits for

    def wait(self) -> Wait | None:
        """The wait of the process and its workers for something outside the training; ``unknown`` without a stack."""
        found = [self.work_wait()]
        for pid, tid in ((self.pid, self.tid), *((each, each) for each in self.worker_pids)):
            if self.session.over("recent").disk_ratio(pid) == 1.0:
                found.append("slow")
            stack, row = self.stack(pid, tid), self.process(pid)
            wait: Wait | None = outside_wait(stack) if stack else None
            if not stack and pid == self.pid and self.taken is None:
                wait = "unknown"
            if wait == "slow" and self.peers(pid):
                wait = None
            if wait == "file" and self.taken is not None and (row is None or row.io_bytes_per_s is None):
                wait = "slow"
            found.append(wait)
        return next((kind for kind in _WAITS if kind in found), None)

    def work_wait(self) -> Wait | None:
        """``work`` if the training thread has nothing to train just now, so that its wait is no hang; None if it has.

        - Its stack has left all loops in which it trained, and waits or sleeps: ``work``.
        - It is the main thread, and only all stacks of the run could show that: ``unknown`` until they are taken.
        - It is another thread, and has ended or is idle in a pool: ``work``.
        - It is another thread and waits for a job: ``prompt`` while the main thread is at one, ``work`` if it is
          outside its loop while the main thread serves.
        """
        own, row = self.own, self.process(self.pid)
        if row is not None and row.has_left and own and innermost_wait(own) is None:
            receives = own[-1].user and not _RECEIVES.isdisjoint(outer_calls(own[-1].source))
            if waits_for_work(own) or receives:  # for what need not come: neither batch, rank nor lock
                return "work"
        is_outside = waits_for_work(own) and self.sampled is not None and self.sampled.calls_backward(own) is False
        if self.tid == self.pid:
            return "unknown" if self.taken is None and is_outside else None
        if self.thread_has_ended():
            return "work"
        if not own:
            return None
        if activity_of(own) == "idle":
            return "work"
        main = self.stack(self.pid, self.pid)
        if waits_for_work(own) and outside_wait(main) == "prompt":
            return "prompt"
        return "work" if is_outside and activity_of(main) in ("io", "idle") else None

    def thread_has_ended(self) -> bool:
        """True if the thread is known to have ended: not listed where all are, or without a stack to take."""
        threads, tid = self.threads, self.tid
        if threads and not threads.folded and all(row.count == 1 and row.tid != tid for row in threads.threads):
            return True
        return bool(self.taken_stack(self.pid, self.pid)) and not self.taken_stack(self.pid, tid)

    def rests(self) -> Rest | None:
        """How a main thread passes its time whose training is over; None of a server, and where that is not known."""
        row = self.process(self.pid)
        if row is None or not row.has_left or row.listens or self.tid != self.pid:
            return None
        stack = self.taken_stack(self.pid, self.tid)
        if activity_of(stack) == "sleep":
            return "sleep"
        waits = stack and innermost_wait(stack) is None and waits_for_work(stack) and waits_for_thread(stack)
        return "thread" if waits else None

    def other_places(self) -> Iterator[Place]:
        """The places of the threads that its training waits for, or of the workers; nobody else holds it up.

        Not the main thread of one that trains in another, as long as it goes on: it polls whether that has ended. At
        the exit any thread keeps the program alive, also one that waits for work.
        """
        pid, stack = self.pid, self.sampled_stack(self.pid, self.tid)
        at_exit, others = is_at_exit(stack), list[tuple[int, int]]()
        if self.sampled is not None and waits_for_thread(stack):
            others = [(pid, each) for each in self.sampled.tids(now=True) if each != self.tid]
        if self.main_moves:
            others = [(pid, each) for _, each in others if each != pid]
        if innermost_wait(stack) == "batch":
            others = [(worker, worker) for worker in self.worker_pids]
        for each, thread in others:
            stack = self.sampled_stack(each, thread)
            place = user_place(stack)
            if place is not None and (at_exit or not waits_for_work(stack)):
                yield place

    # -- in its first step

    def first(self) -> First:
        """What is known of it there."""
        waits_for = innermost_wait(self.own) or ("thread" if _waits_inside(self.own) else None)
        others: dict[int, list[list[Frame]]] = {pid: [] for pid in (self.pid, *self.workers)}
        for group in self.taken.groups if self.taken is not None else []:  # of threads beside these
            for pid in others.keys() & {pid for pid, tid in group.threads if tid not in (pid, self.tid)}:
                others[pid].append(group.frames)
        stacks = (self.own, *self.workers.values(), *(stack for each in others.values() for stack in each))
        for stack in map(_in_data_set, stacks):
            if activity_of(stack) in ("import", "compile") or outside_wait(stack) is not None:
                return "may_go_on"
        threads = self.threads_of_waiting()
        if waits_for is None or any(number is None or number > len(others[pid]) for pid, number in threads.items()):
            return "may_go_on"
        is_stuck = self.workers_have_none() if waits_for == "batch" else stands_at_lock(self.own)
        return "stuck" if is_stuck else "waits"

    def forked_in_vain(self) -> bool:
        """True if it waits for a batch, and all workers that make one wait for a thread that no fork has brought."""
        if innermost_wait(self.own) != "batch":
            return False
        loaders = self.session.over("recent").loaders(self.pid)
        return any(loader.facts.context == "fork" for loader in loaders) and self.workers_have_none()

    def threads_of_waiting(self) -> dict[int, int | None]:
        """How many threads each worker that waits for one has beside its main one; None where that is not known."""
        found: dict[int, int | None] = {}
        for pid, stack in self.workers.items():
            if _waits_inside(stack):
                threads = self.session.over("recent").process_threads(pid)
                found[pid] = thread_count(threads) - 1 if threads else None
        return found

    def workers_have_none(self) -> bool:
        """True if all workers at work wait for a thread, and have none."""
        more = self.threads_of_waiting()
        return bool(more) and len(more) == len(self.workers) and not any(more.values())


def _waits_inside(stack: Sequence[Frame]) -> bool:
    """True if it waits for another thread of its process."""
    inside = _in_data_set(stack)
    return waits_for_thread(inside) and not awaits_process(inside)


def _in_data_set(stack: Sequence[Frame]) -> Sequence[Frame]:
    """The part of a stack inside the DataLoader's, where the user's code runs there; else all of it."""
    loader = max((at for at, frame in enumerate(stack) if is_loader_code(frame.file)), default=-1)
    inside = stack[loader + 1 :]
    return inside if any(frame.user for frame in inside) else stack


def last_places(pid: int, session: Session) -> dict[int, Place]:
    """The user's line in the last samples of a training thread, and of its DataLoader workers, by process."""
    workers = (each.pid for each in session.processes() if each.role == "worker" and each.ppid == pid)
    places = {}
    for each, tid in ((pid, session.training_tid(pid)), *((worker, worker) for worker in workers)):
        sampled = session.stacks.get(each)
        place = sampled.threads.place_of(tid) if sampled is not None else None
        if place is not None:
            places[each] = place
    return places


def last_gone(pid: int, view: SessionView) -> Gone | None:
    """Of a run that has ended while it stood still: who had ended before."""
    sampled, session = view.session.stacks.get(pid), view.session
    stack = sampled.last_of(session.training_tid(pid)) if sampled is not None else ()
    return _gone(pid, session, stack, session.now_s - (step_evidence(view, pid).open_for_s or 0.0))


def _gone(pid: int, session: Session, stack: Sequence[Frame], begun_s: float) -> Gone | None:
    """Who has ended lately, of those that a training at ``stack`` may wait for: a thread, or another process.

    Not a thread whose like are there yet, at the same work.
    """
    inner = list(takewhile(lambda frame: not frame.user, reversed(stack)))
    calls = {frame.function for frame in inner if frame.file.endswith(("/queue.py", "/queues.py"))}
    if stack and stack[-1].user:
        calls.update(outer_calls(stack[-1].source))
    queue: Literal["full", "empty"] | None = "full" if "put" in calls else "empty" if "get" in calls else None
    if awaits_process(stack) or any("/multiprocessing/" in frame.file for frame in inner):
        ended = [each for each in session.run_processes.known.values() if each.ended and each.ppid == pid]
        last = max(ended, key=lambda each: each.t, default=None)
        if last is None or last.t < begun_s - _GONE_S:
            return None
        own = session.stacks.get(last.pid)
        place = user_place(own.last_of(last.pid)) if own is not None else None
        return Gone(f"process {own_id(last.pid)}", place, queue)
    sampled = session.stacks.get(pid)
    if sampled is None or not waits_for_thread(stack):
        return None
    gone = {tid: t for t, tid in session.threads.ended.get(pid, ())}
    live = {user_place(sampled.last_of(tid)) for tid in sampled.tids(now=True) if tid not in gone}
    works = {place.function for place in live if place is not None}
    for tid, t in sorted(gone.items(), key=lambda each: -each[1]):
        place, name = user_place(sampled.last_of(tid)), sampled.threads.name_of(tid)
        if t >= begun_s - _GONE_S and place is not None and place.function not in works:
            return Gone(f"thread {name}", place, queue)
    return None
