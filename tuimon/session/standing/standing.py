"""A standstill read for people: which ranks stand where, and which of them hold the others up."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from tuimon.records import Frame, Place, StandingProcess, Standstill
from tuimon.torch_code import is_backward_entry, is_collective, is_fetch, is_loader_idle_loop, is_worker_loop

#: Of a group. ``stopped``: by a signal or a debugger; ``ended``: it is gone; ``own``: by its own code, not by waiting
#: for others; ``batch``: waits for its workers; ``ranks``: waits for other ranks; ``thread``: beside the training.
Kind = Literal["stopped", "ended", "own", "unknown", "batch", "ranks", "thread", "idle"]
#: Who is first to be looked at.
_ORDER: tuple[Kind, ...] = ("stopped", "ended", "own", "unknown", "batch", "ranks", "thread", "idle")
_CALL = re.compile(r"\b([A-Za-z_][\w.]*)\(")
_DEFINES = re.compile(r"^\s*(?:async\s+)?(?:def|class)\b")


class Standing(NamedTuple):
    """Threads at one place; of workers the ranks are their trainers'."""

    kind: Kind
    role: Literal["rank", "worker", "thread"]
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
    alike: dict[tuple[tuple[Frame, ...], int], list[tuple[int, int]]] = {}  # nodes have groups of their own
    for group in record.groups:
        alike.setdefault((tuple(group.frames), group.outer), []).extend(group.threads)
    found = [part for (frames, outer), threads in alike.items() for part in _parts(frames, outer, threads, processes)]
    found += _without_stacks(record.processes, {pid for each in found for pid in each.pids})
    waits_for_batch = any(each.kind == "batch" for each in found)
    found = [each._replace(kind="idle") if _is_spare(each, waits_for_batch) else each for each in found]
    return sorted(found, key=lambda each: (_ORDER.index(each.kind), each.number, each.ranks, each.pids))


def odd_one(groups: Sequence[Standing]) -> Standing | None:
    """The group that holds the others up; None where all stand alike, or two of one size wait for each other."""
    ranks = [each for each in groups if each.kind not in ("thread", "idle")]
    if len(ranks) < 2:
        return None
    first, second = ranks[:2]
    if first.kind == second.kind == "ranks" and first.number == second.number:
        return None
    return first


def _parts(
    frames: Sequence[Frame], outer: int, threads: Sequence[tuple[int, int]], processes: dict[int, StandingProcess]
) -> Iterable[Standing]:
    """A group of equal stacks, by what its threads are: ranks, workers, other threads."""
    place, doing = _user_place(frames), _doing(frames)
    parts: dict[tuple[Literal["rank", "worker", "thread"], bool], list[int]] = {}
    for pid, tid in threads:
        process = processes.get(pid)
        role: Literal["rank", "worker", "thread"] = "rank"
        if tid != pid:
            role = "thread"
        elif process is not None and process.role == "worker":
            role = "worker"
        is_stopped = role != "thread" and process is not None and process.state == "stopped"
        parts.setdefault((role, is_stopped), []).append(pid)
    for (role, is_stopped), pids in parts.items():
        kind = "stopped" if is_stopped else _kind(role, frames)
        yield Standing(kind, role, _ranks(pids, processes), tuple(pids), len(pids), doing, place, tuple(frames), outer)


def _kind(role: str, frames: Sequence[Frame]) -> Kind:
    if role == "thread":
        return "thread"
    if role == "worker":
        return "idle" if _user_place(frames) is None else "own"
    return _innermost_wait(frames) or "own"


def _innermost_wait(frames: Sequence[Frame]) -> Kind | None:
    """Whether a rank waits for other ranks or for a batch, with none of the user's code inside that wait."""
    for frame in reversed(frames):
        if frame.user:
            return None
        if is_collective(frame.file, frame.function) or is_backward_entry(frame.file, frame.function):
            return "ranks"
        if is_fetch(frame.file, frame.function):
            return "batch"
    return None


def _without_stacks(processes: Sequence[StandingProcess], seen: set[int]) -> Iterable[Standing]:
    by_reason: dict[tuple[Kind, str, bool], list[StandingProcess]] = {}
    for each in processes:
        if each.pid not in seen:
            kind: Kind = "stopped" if each.state == "stopped" else "ended" if each.state == "ended" else "unknown"
            by_reason.setdefault((kind, each.unknown or "", each.role == "worker"), []).append(each)
    for (kind, reason, is_worker), rows in by_reason.items():
        pids = tuple(row.pid for row in rows)
        ranks = tuple(sorted({row.rank for row in rows if row.rank is not None}))
        yield Standing(kind, "worker" if is_worker else "rank", ranks, pids, len(rows), reason, None, ())


def _is_spare(each: Standing, waits_for_batch: bool) -> bool:
    """Whether workers only stand by: none of the ranks waits for a batch."""
    return each.role == "worker" and each.kind in ("own", "unknown") and not waits_for_batch


def _ranks(pids: Iterable[int], processes: dict[int, StandingProcess]) -> tuple[int, ...]:
    known = (processes[pid].rank for pid in pids if pid in processes)
    return tuple(sorted({rank for rank in known if rank is not None}))


def _user_place(frames: Sequence[Frame]) -> Place | None:
    """The innermost line of the user's; of a forked worker none outside its own loop."""
    for frame in reversed(frames):
        if frame.user:
            return Place(frame.file, frame.line, frame.function, frame.source)
        if is_worker_loop(frame.file, frame.function):
            return None
    return None


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
    call = _outer_call(frame.source) if frame.user else None
    return f"{call or frame.function}()"


def _outer_call(source: str) -> str | None:
    """``open`` of ``with open(join(a, b)) as f:``, the one call that no other encloses; None where there are several.

    What Python code that line calls has a frame of its own: only a call into C is left.
    """
    if _DEFINES.match(source):
        return None
    depth, outer, until = 0, [], 0
    for found in _CALL.finditer(source):
        depth += source.count("(", until, found.start()) - source.count(")", until, found.start())
        until = found.start()
        if depth <= 0:
            outer.append(found[1])
    return outer[0].rpartition(".")[2] or None if len(outer) == 1 else None
