"""A standstill read for people: which ranks stand where, and which of them hold the others up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Literal, NamedTuple

from tuimon.records import Frame, Place, StandingProcess, Standstill
from tuimon.session.stacks.activity import innermost_wait
from tuimon.session.stacks.trie import user_place
from tuimon.session.standing.helpers import (
    outer_calls,
    stands_at_lock,
    training_threads,
    waiting_processes,
    waits_for_work,
)
from tuimon.torch_code import is_backward_entry, is_collective, is_fetch, is_loader_idle_loop

#: The state of a group. ``stopped``: by a signal or a debugger; ``ended``: it is gone; ``own``: by its own code, not by
#: waiting for others; ``helper``: waits for another thread; ``batch``: waits for its workers; ``ranks``: waits for
#: other ranks; ``thread``: beside the training, which does not wait for it; ``idle``: waits for work.
Kind = Literal["stopped", "ended", "own", "unknown", "helper", "batch", "ranks", "thread", "idle"]
#: Which come first.
_ORDER: tuple[Kind, ...] = ("stopped", "ended", "own", "unknown", "helper", "batch", "ranks", "thread", "idle")
#: Whom no headline names.
BESIDE: tuple[Kind, ...] = ("thread", "idle")
Role = Literal["rank", "worker", "thread"]
#: The root of every thread's stack but the main one's.
THREAD_ROOT = "_bootstrap"


class Standing(NamedTuple):
    """Threads at one place; of workers the ranks are their trainers'."""

    kind: Kind
    role: Role
    ranks: tuple[int, ...]  # of those whose rank is known, each once
    pids: tuple[int, ...]
    number: int  # threads; of processes without a stack, processes
    doing: str  # "open()", "all_reduce()", "backward()"; why it has no stack
    place: Place | None  # the innermost line of the user's
    frames: tuple[Frame, ...]  # root first
    outer: int = 0  # frames left out at the root


def standing(record: Standstill) -> list[Standing]:
    """All groups of a standstill, the odd one first: what holds others up before those that wait, few before many."""
    processes = {process.pid: process for process in record.processes}
    training, waited_for = training_threads(record), _waited_for(record)
    alike: dict[tuple[tuple[Frame, ...], int], list[tuple[int, int]]] = {}  # nodes have groups of their own
    for group in record.groups:
        alike.setdefault((tuple(group.frames), group.outer), []).extend(group.threads)
    found = [
        part
        for (frames, outer), threads in alike.items()
        for part in _parts(
            frames,
            outer,
            [(pid, tid, _role(pid, tid, processes, training)) for pid, tid in threads],
            processes,
            waited_for,
        )
    ]
    found += _without_stacks(record.processes, {pid for each in found if each.role != "thread" for pid in each.pids})
    waits_for_batch = any(each.kind == "batch" for each in found)
    spare = (
        () if waits_for_batch else ("own", "unknown")
    )  # of workers, which only stand by if no rank waits for a batch
    found = [each._replace(kind="idle") if each.role == "worker" and each.kind in spare else each for each in found]
    return sorted(found, key=lambda each: (_ORDER.index(each.kind), each.number, each.ranks, each.pids))


def odd_one(groups: Sequence[Standing]) -> Standing | None:
    """The group that holds the others up; None where all stand alike, or two of one size wait for each other."""
    ranks = [each for each in groups if each.kind not in BESIDE]
    if len(ranks) < 2:
        return None
    first, second = ranks[:2]
    if first.kind == second.kind == "ranks" and first.number == second.number:
        return None
    return first


def _waited_for(record: Standstill) -> dict[int, set[int]]:
    """The threads, by process, that its training may wait for: those that do not only wait for work."""
    waiting, training = waiting_processes(record), training_threads(record)
    found: dict[int, set[int]] = {}
    for group in record.groups:
        own = [(pid, tid) for pid, tid in group.threads if tid != training.get(pid, pid) and pid in waiting]
        if own and not waits_for_work(group.frames):
            for pid, tid in own:
                found.setdefault(pid, set()).add(tid)
    return found


def _parts(
    frames: Sequence[Frame],
    outer: int,
    threads: Sequence[tuple[int, int, Role]],
    processes: Mapping[int, StandingProcess],
    waited_for: Mapping[int, Set[int]],
) -> Iterable[Standing]:
    """A group of equal stacks, by what its threads are: ranks, workers, other threads."""
    place, doing = user_place(frames), _doing(frames)
    parts: dict[tuple[Role, Kind], list[int]] = {}
    for pid, tid, role in threads:
        if role == "thread":
            kind = _thread_kind(frames, tid in waited_for.get(pid, ()))
        elif pid in processes and processes[pid].state == "stopped":
            kind = "stopped"
        else:
            kind = _kind(role, frames, pid in waited_for)
        parts.setdefault((role, kind), []).append(pid)
    for (role, kind), pids in parts.items():
        ranks = _ranks(processes[pid] for pid in pids if pid in processes)
        yield Standing(kind, role, ranks, tuple(pids), len(pids), doing, place, tuple(frames), outer)


def _role(pid: int, tid: int, processes: Mapping[int, StandingProcess], training: Mapping[int, int]) -> Role:
    if tid != training.get(pid, pid):
        return "thread"
    return "worker" if pid in processes and processes[pid].role == "worker" else "rank"


def _thread_kind(frames: Sequence[Frame], is_waited_for: bool) -> Kind:
    if is_waited_for:
        return "helper" if stands_at_lock(frames) else innermost_wait(frames) or "own"
    return "idle" if waits_for_work(frames) else "thread"


def _kind(role: Role, frames: Sequence[Frame], has_helper: bool) -> Kind:
    """The kind of a rank or a worker; ``has_helper``: it waits for a thread that is busy."""
    if role == "worker":
        return "idle" if user_place(frames) is None else "own"
    return "helper" if has_helper else innermost_wait(frames) or "own"


def _without_stacks(processes: Sequence[StandingProcess], seen: set[int]) -> Iterable[Standing]:
    by_reason: dict[tuple[Kind, str, bool], list[StandingProcess]] = {}
    for each in processes:
        if each.pid not in seen:
            kind: Kind = "stopped" if each.state == "stopped" else "ended" if each.state == "ended" else "unknown"
            by_reason.setdefault((kind, each.unknown or "", each.role == "worker"), []).append(each)
    for (kind, reason, is_worker), rows in by_reason.items():
        pids = tuple(row.pid for row in rows)
        role: Role = "worker" if is_worker else "rank"
        yield Standing(kind, role, _ranks(rows), pids, len(rows), reason, None, ())


def _ranks(processes: Iterable[StandingProcess]) -> tuple[int, ...]:
    return tuple(sorted({each.rank for each in processes if each.rank is not None}))


def _doing(frames: Sequence[Frame]) -> str:
    """``all_reduce()``, ``backward()``, ``the DataLoader``; else what the innermost user line calls."""
    if not frames:
        return "no Python code"
    for frame in reversed(frames):
        if frame.user:
            break
        if is_collective(frame.file, frame.function) and frame.function != "wrapper":
            return f"{frame.function}()"
        if is_backward_entry(frame.file, frame.function):
            return "backward()"
        if is_fetch(frame.file, frame.function) or is_loader_idle_loop(frame.file, frame.function):
            return "the DataLoader"
    frame = next((frame for frame in reversed(frames) if frame.user), frames[-1])
    calls = outer_calls(frame.source) if frame.user else []
    return f"{calls[0] if len(calls) == 1 else frame.function}()"
