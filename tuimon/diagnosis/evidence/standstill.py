"""Signs of a hang: the places and the waits of the ranks of one training while none of them makes progress."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import takewhile
from typing import Literal, NamedTuple

from msgspec import Struct

from tuimon.node_ids import own_id
from tuimon.records import Frame, Place, StandingProcess, Standstill
from tuimon.session.session import ProcessView, SessionView
from tuimon.session.stacks.activity import Activity, activity_of, is_at_exit, outer_calls, standing_activity
from tuimon.session.stacks.trie import user_place
from tuimon.session.standstills import FOR_THREAD, FOR_WORK, OpenCollective
from tuimon.session.threads import thread_count
from tuimon.threshold import MOST
from tuimon.torch_code import is_checkpoint_io, is_loader_code

#: Files read or written this long ago (s) still count as progress: they are measured every 5 s.
MOVED_S = 12.0
#: Activities of a main thread that serves while another thread trains.
_SERVES: tuple[Activity, ...] = ("io", "network", "connection", "message", "child", "idle")
#: Time without a boundary (s) before anything is inspected: it costs 0.1 ms a rank, and steps are usually shorter.
MIN_QUIET_S = 10.0
#: A thread or process that ended at most this long before a standstill (s) may be its cause: our choice, a queue
#: that nobody empties is full by then.
_GONE_S = 60.0
#: The reason why a program stays after its training: it sleeps, or waits for a thread of its own.
StaysFor = Literal["sleep", "thread"]
#: The thing that a process waits for outside its training. ``prompt``: somebody at a debugger or a console; ``work``:
#: new work, or anything else once the training is over; ``slow``: something that may rightly take long, such as a
#: checkpoint, the network, another program, a sleep; ``unknown``: since it stands still, its stack has been neither
#: sampled nor taken; ``file``: a file that is opened or read.
OutsideWait = Literal["prompt", "work", "slow", "unknown", "file"]
_WAITS: tuple[OutsideWait, ...] = ("prompt", "work", "slow", "unknown", "file")
#: The state of a training process in its first step. ``stuck``: at a lock, or all its workers wait for a thread and
#: have none; ``waits``: for a batch, a thread or a rank; ``may_go_on``: it may make progress, since it imports,
#: compiles or waits for something outside.
First = Literal["stuck", "waits", "may_go_on"]
#: The text of a line that opens or reads a file.
_READS = re.compile(
    r"\bopen\(|\.(?:read|readlines?)\(|\bread_(?:csv|parquet)\(|\b(?:np|numpy|pickle|json)\.(?:load|loadtxt)\("
)


class Gone(NamedTuple):
    """A thread or a child process that has ended, and that a training may still wait for."""

    who: str  # "thread event-writer", "process 4711"
    place: Place | None  # the user's line at which it was last sampled
    queue: Literal["full", "empty"] | None  # the state of the queue that the training waits for, if it does


class StalledRank(ProcessView, frozen=True, dict=True):
    """One training process of a standstill, by its latest samples, and by all stacks once they are taken.

    Values that were not measured are None.
    """

    begun_s: float  # when it last made progress
    taken: Standstill | None

    @property
    def phase(self) -> str | None:
        latest = self.stats.latest
        return latest.open_phase if latest is not None else None

    def step_ms(self, quantile: float) -> float | None:
        """The length that this part (0..1) of its steps did not exceed, in ms."""
        return self.stats.over().quantile_ms(quantile)

    @property
    def has_same_stack(self) -> bool | None:
        """True if its training thread has shown the same stack all the time; None if unknown."""
        latest = self.stacks.threads.stack_of(self.tid)
        return latest.same_for_s > 0 if latest is not None and latest.begin_s >= self.begun_s else None

    @property
    def is_stopped(self) -> bool:
        """True if a signal or a debugger has stopped the process; its threads may have been read later."""
        rows = self.thread_figures.threads if self.thread_figures is not None else ()
        return self.stats.was_stopped or any(row.tid == self.pid and row.state == "stopped" for row in rows)

    @property
    def main_moves(self) -> bool:
        """True if a main thread that does not train goes on, such as one that draws a progress bar."""
        main = self.stacks.threads.stack_of(self.pid)
        return self.tid != self.pid and main is not None and not main.same_for_s

    @property
    def peers(self) -> list[int]:
        """The processes at the other end of the connection that blocks it, if they are known and none will send."""
        row = self._process(self.pid)
        return row.peers or [] if row is not None else []

    @cached_property
    def gone(self) -> Gone | None:
        """The thread or process that it waits for and that has ended; None if there is none."""
        return _ended_lately(self, self._own, self.begun_s)

    # -- its threads and stacks

    @cached_property
    def _own(self) -> list[Frame]:
        """The stack of the training thread."""
        return self._stack(self.pid, self.tid)

    @cached_property
    def _activity(self) -> Activity:
        """The activity of the training thread."""
        return standing_activity(self._own)

    @cached_property
    def _workers(self) -> dict[int, list[Frame]]:
        """The stacks of the main threads of the workers that are in the user's code, by process."""
        stacks = {each.pid: self._stack(each.pid, each.pid) for each in self.workers}
        return {pid: stack for pid, stack in stacks.items() if user_place(stack) is not None}

    def _process(self, pid: int) -> StandingProcess | None:
        """The facts about a process that were found with all stacks; None before these were taken."""
        return next((each for each in self.taken.processes if each.pid == pid), None) if self.taken else None

    def _taken_stack(self, pid: int, tid: int) -> list[Frame]:
        """The stack of a thread at that moment, root first; empty if unknown, as in the methods below."""
        groups = self.taken.groups if self.taken is not None else []
        return next((group.frames for group in groups if (pid, tid) in group.threads), [])

    def _sampled_stack(self, pid: int, tid: int, since_s: float = -math.inf) -> list[Frame]:
        """The most frequent stack of a thread in the latest window, if that began at this moment or later."""
        latest = self.view.of(pid).stacks.threads.stack_of(tid)
        return list(latest.node.frames) if latest is not None and latest.begin_s >= since_s else []

    def _stack(self, pid: int, tid: int) -> list[Frame]:
        """The stack of a thread since the process began to stand still."""
        if found := self._taken_stack(pid, tid):
            return found
        return self._sampled_stack(pid, tid, self.begun_s)

    @cached_property
    def cpu_ratio(self) -> float | None:
        """The CPU use of the process or of its busiest worker, whichever is more.

        It leaves out a main thread that does not train, unless the training may wait for what it computes: one that
        serves or draws takes less than half a core.
        """
        threads = self.thread_figures
        if threads is None or threads.cpu_ratio is None:
            return None
        beside = next((row.cpu_ratio or 0.0 for row in threads.threads if row.tid == self.pid != self.tid), 0.0)
        if beside > MOST and (not self._own or self._activity in FOR_THREAD):
            beside = 0.0
        workers = (self.view.session.threads[worker.pid].latest for worker in self.workers)
        ratios = (each.cpu_ratio or 0.0 for each in workers if each is not None)
        return max(threads.cpu_ratio - beside, *ratios, 0.0)

    # -- its waits

    @cached_property
    def wait(self) -> OutsideWait | None:
        """The thing that the process or a worker waits for outside the training; ``unknown`` without a stack."""
        found = [self._work_wait()]
        for pid, tid in ((self.pid, self.tid), *((each.pid, each.pid) for each in self.workers)):
            threads = self.view.of(pid).thread_figures
            if any(
                each.tid == pid and each.state == "disk" for each in (threads.threads if threads is not None else ())
            ):
                found.append("slow")
            stack, row = self._stack(pid, tid), self._process(pid)
            wait = _outside_wait(stack)
            if not stack and pid == self.pid and self.taken is None:
                wait = "unknown"
            if wait == "slow" and row is not None and row.peers:
                wait = None
            if wait == "file" and self.taken is not None and (row is None or row.io_bytes_per_s is None):
                wait = "slow"
            found.append(wait)
        return next((kind for kind in _WAITS if kind in found), None)

    def _work_wait(self) -> OutsideWait | None:
        """``work`` if the training thread has nothing to train now, so that its wait is not a hang; None if it has.

        - Its stack has left all loops in which it trained, and waits or sleeps: ``work``.
        - It is the main thread, and only the stacks of all threads could show it: ``unknown`` until they are taken.
        - It is another thread, and has ended or is idle in a pool: ``work``.
        - It is another thread and waits for a job: ``prompt`` while the main thread is at one, ``work`` if it is
          outside its loop while the main thread serves.
        """
        row, is_for_work = self._process(self.pid), self._activity in FOR_WORK  # not for a batch, a rank or a lock
        if row is not None and row.has_left and is_for_work:
            return "work"
        is_outside = is_for_work and self.stacks.calls_backward(self._own) is False
        if self.tid == self.pid:
            return "unknown" if self.taken is None and is_outside else None
        if self._thread_has_ended():
            return "work"
        if self._activity == "idle":
            return "work"
        main = activity_of(self._stack(self.pid, self.pid))
        if is_for_work and main == "prompt":
            return "prompt"
        return "work" if is_outside and main in _SERVES else None

    def _thread_has_ended(self) -> bool:
        """True if the thread has ended for sure: a full list of threads lacks it, or its stack could not be taken."""
        threads, tid = self.thread_figures, self.tid
        if threads and not threads.folded and all(row.count == 1 and row.tid != tid for row in threads.threads):
            return True
        return bool(self._taken_stack(self.pid, self.pid)) and not self._taken_stack(self.pid, tid)

    @cached_property
    def stays_for(self) -> StaysFor | None:
        """The reason why the main thread stays after its training; None for a server, and if it is unknown."""
        row = self._process(self.pid)
        if row is None or not row.has_left or row.listens or self.tid != self.pid:
            return None
        activity = standing_activity(self._taken_stack(self.pid, self.tid))
        return activity if activity in ("sleep", "thread") else None

    @cached_property
    def others(self) -> tuple[Place, ...]:
        """The user's lines of the threads or workers that the training waits for; nothing else can hold it up.

        A main thread other than the training thread is left out while it goes on: it polls whether the training has
        ended. At the exit any thread keeps the program alive, even one that waits for work.
        """
        pid, stack = self.pid, self._sampled_stack(self.pid, self.tid)
        activity, others = standing_activity(stack), list[tuple[int, int]]()
        if activity in FOR_THREAD:
            others = [(pid, each) for each in self.stacks.tids(now=True) if each != self.tid]
        if self.main_moves:
            others = [(pid, each) for _, each in others if each != pid]
        if activity == "data":
            others = [(worker.pid, worker.pid) for worker in self.workers]
        stacks = [self._sampled_stack(each, thread) for each, thread in others]
        if not is_at_exit(stack):
            stacks = [each for each in stacks if standing_activity(each) not in FOR_WORK]
        return tuple(place for each in stacks if (place := user_place(each)) is not None)

    # -- in its first step

    @cached_property
    def first(self) -> First | None:
        """The state of a process in its first step; None once a whole step has ended."""
        if self.stats.total:
            return None
        others: dict[int, list[list[Frame]]] = {pid: [] for pid in (self.pid, *self._workers)}
        for group in self.taken.groups if self.taken is not None else []:  # of all other threads
            for pid in others.keys() & {pid for pid, tid in group.threads if tid not in (pid, self.tid)}:
                others[pid].append(group.frames)
        stacks = (self._own, *self._workers.values(), *(stack for each in others.values() for stack in each))
        for stack in map(_dataset_frames, stacks):
            if activity_of(stack) in ("import", "compile") or _outside_wait(stack) is not None:
                return "may_go_on"
        threads = self._threads_of_waiting()
        is_waiting = self._activity in ("data", "ranks") or _waits_inside(self._own)
        if not is_waiting or any(number is None or number > len(others[pid]) for pid, number in threads.items()):
            return "may_go_on"
        is_stuck = self._workers_have_none() if self._activity == "data" else self._activity == "lock"
        return "stuck" if is_stuck else "waits"

    @property
    def waits_for_thread_lost_in_fork(self) -> bool:
        """True if it waits for a batch whose workers all wait for a thread that a fork did not bring along."""
        if self._activity != "data":
            return False
        return any(loader.facts.context == "fork" for loader in self.loaders) and self._workers_have_none()

    def _threads_of_waiting(self) -> dict[int, int | None]:
        """For each worker that waits for a thread, how many it has besides its main one; None if unknown."""
        found: dict[int, int | None] = {}
        for pid, stack in self._workers.items():
            if _waits_inside(stack):
                threads = self.view.of(pid).thread_figures
                found[pid] = thread_count(threads) - 1 if threads else None
        return found

    def _workers_have_none(self) -> bool:
        """True if all workers in the user's code wait for a thread, and none of them has any."""
        more = self._threads_of_waiting()
        return bool(more) and len(more) == len(self._workers) and not any(more.values())


class StalledRanks(Struct, frozen=True, gc=False):
    """The live ranks of one training, the process in focus first, and the facts found when all stacks were taken."""

    ranks: tuple[StalledRank, ...]
    lost: tuple[int, ...]  # ranks that have ended and were not restarted
    quiet_s: float  # since the latest boundary of any rank
    taken: Standstill | None
    stuck: tuple[OpenCollective, ...]  # collectives that do not end, according to flight recorders
    has_moved: bool  # True if files were read or written lately
    idle_s: float | None  # since all stacks were taken, or since files were read or written later


def standstills(view: SessionView, focus: int) -> Iterator[StalledRanks]:
    """The standstills of the training in focus, then of others of several ranks; only if no rank makes progress."""
    session, seen = view.session, set[int]()
    trainers = dict.fromkeys((focus, *session.trainers()))
    for pid in trainers:
        if pid in seen:
            continue
        members = [pid, *(each for each in session.group_of(pid) if each != pid and each in trainers)]
        if pid != focus and len(members) < 2:
            continue
        seen.update(members)
        live = [each for each in members if not view.of(each).process.ended]
        open_s = (_open_for_s(view.of(each)) for each in live)
        quiet_s = list(takewhile(lambda quiet_s: quiet_s >= MIN_QUIET_S, open_s))  # one rank that goes on decides
        if quiet_s and len(quiet_s) == len(live):
            yield _standstill(view, live, members, min(quiet_s))


def _open_for_s(own: ProcessView) -> float:
    """The time since the latest boundary of a process; 0 without markers."""
    latest = own.stats.latest
    return latest.open_for_s or 0.0 if latest is not None else 0.0


def _standstill(view: SessionView, live: Sequence[int], members: Sequence[int], quiet_s: float) -> StalledRanks:
    session = view.session
    begun_s = session.now_s - quiet_s
    past = session.standstills.since(begun_s)
    taken = past.taken if past is not None else None
    ranks = tuple(StalledRank(each, view, begun_s, taken) for each in live)
    moved_s = session.standstills.moved_s
    processes = (view.of(each).process for each in members)
    lost = {each.rank for each in processes if each.ended} - {rank.process.rank for rank in ranks}
    return StalledRanks(
        ranks=ranks,
        lost=tuple(sorted(rank for rank in lost if rank is not None)),
        quiet_s=quiet_s,
        taken=taken,
        stuck=tuple(past.stuck) if past is not None else (),
        has_moved=moved_s is not None and moved_s > max(begun_s, session.now_s - MOVED_S),
        idle_s=session.now_s - max(taken.t, moved_s or 0.0) if taken is not None else None,
    )


def _waits_inside(stack: Sequence[Frame]) -> bool:
    """True if a stack waits for another thread of its process."""
    inside = _dataset_frames(stack)
    return standing_activity(inside) in FOR_THREAD and "/multiprocessing/" not in inside[-1].file


def _outside_wait(stack: Sequence[Frame]) -> OutsideWait | None:
    """The thing that a stack (root first) waits for outside the training; None if it does not wait for any."""
    match activity_of(stack):
        case "prompt":
            return "prompt"
        case "sleep" | "network" | "connection" | "message" | "child":
            return "slow"
        case "io":
            reads = stack[-1].user and _READS.search(stack[-1].source) is not None
            return "file" if reads and not any(is_checkpoint_io(frame.file) for frame in stack) else "slow"
    return None


def _dataset_frames(stack: Sequence[Frame]) -> Sequence[Frame]:
    """The part of a stack below the DataLoader's frames, if the user's code runs there; else all of it."""
    loader = max((at for at, frame in enumerate(stack) if is_loader_code(frame.file)), default=-1)
    inside = stack[loader + 1 :]
    return inside if any(frame.user for frame in inside) else stack


def last_seen(own: ProcessView) -> tuple[dict[int, Place], Gone | None]:
    """The last user lines of the training thread and the DataLoader workers, and the thread's wait."""
    session = own.view.session
    workers = (each.pid for each in session.processes() if each.role == "worker" and each.ppid == own.pid)
    places = {}
    for pid, tid in ((own.pid, own.tid), *((worker, worker) for worker in workers)):
        place = session.stacks[pid].threads.place_of(tid)
        if place is not None:
            places[pid] = place
    return places, _ended_lately(own, own.stacks.last_of(own.tid), session.now_s - _open_for_s(own))


def _ended_lately(own: ProcessView, stack: Sequence[Frame], begun_s: float) -> Gone | None:
    """The thread or process that has ended lately, if a training at ``stack`` may wait for it.

    Threads do not count if others at the same work are still there.
    """
    session, sampled = own.view.session, own.stacks
    inner = list(takewhile(lambda frame: not frame.user, reversed(stack)))
    calls = {frame.function for frame in inner if frame.file.endswith(("/queue.py", "/queues.py"))}
    if stack and stack[-1].user:
        calls.update(outer_calls(stack[-1].source))
    queue: Literal["full", "empty"] | None = "full" if "put" in calls else "empty" if "get" in calls else None
    if standing_activity(stack) == "message" or any("/multiprocessing/" in frame.file for frame in inner):
        ended = [each for each in session.run_processes.known.values() if each.ended and each.ppid == own.pid]
        last = max(ended, key=lambda each: each.t, default=None)
        if last is None or last.t < begun_s - _GONE_S:
            return None
        place = user_place(session.stacks[last.pid].last_of(last.pid))
        return Gone(f"process {own_id(last.pid)}", place, queue)
    if standing_activity(stack) not in FOR_THREAD:
        return None
    gone = {tid: t for t, tid in session.threads[own.pid].ended}
    live = {user_place(sampled.last_of(tid)) for tid in sampled.tids(now=True) if tid not in gone}
    works = {place.function for place in live if place is not None}
    for tid, t in sorted(gone.items(), key=lambda each: -each[1]):
        place, name = user_place(sampled.last_of(tid)), sampled.threads.name_of(tid)
        if t >= begun_s - _GONE_S and place is not None and place.function not in works:
            return Gone(f"thread {name}", place, queue)
    return None
