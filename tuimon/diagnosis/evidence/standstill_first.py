"""A standstill before the first whole step: who would have to go on, and whether anybody can."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from msgspec import Struct

from tuimon.diagnosis.evidence.standstill_waits import Rank, stack_of
from tuimon.records import Frame
from tuimon.records import Standstill as Taken
from tuimon.session.loop_tree.activity import activity_of, awaits_process, innermost_wait, outside_wait
from tuimon.session.loop_tree.stacks import user_place
from tuimon.session.session import Session
from tuimon.session.standing.helpers import stands_at_lock, waits_for_thread
from tuimon.torch_code import is_loader_code


class First(Struct, frozen=True, gc=False):
    """One training process in its first step."""

    waits_for: Literal["batch", "thread", "ranks"] | None  # None: it stands elsewhere, or its stack is unknown
    may_go_on: bool  # a process or a thread imports, compiles, waits for what may rightly take long, or is not known
    is_stuck: bool  # at a lock; or all workers that make a batch wait for a thread, and have none
    forked: bool  # these workers were forked


def first_of(evidence: Rank, tid: int, begun_s: float, taken: Taken | None, session: Session) -> First:
    """By the stacks that were taken, or before that by the latest samples."""
    pid = evidence.pid
    own = stack_of(pid, tid, begun_s, taken, session)
    waits_for = innermost_wait(own) or ("thread" if _waits_inside(own) else None)
    at_work = {
        worker.pid: stack
        for worker in evidence.child_workers
        if user_place(stack := stack_of(worker.pid, worker.pid, begun_s, taken, session)) is not None
    }
    others = [frames for each in (pid, *at_work) for frames in _other_stacks(taken, each, tid)]
    more = {each: _more_threads(each, session) for each, stack in at_work.items() if _waits_inside(stack)}
    have_none = bool(more) and len(more) == len(at_work) and not any(more.values())
    return First(
        waits_for=waits_for,
        may_go_on=any(_may_go_on(stack) for stack in (own, *at_work.values(), *others))
        or any(number is None or number > len(list(_other_stacks(taken, each, tid))) for each, number in more.items()),
        is_stuck=have_none if waits_for == "batch" else stands_at_lock(own),
        forked=waits_for == "batch"
        and have_none
        and any(loader.facts.context == "fork" for loader in session.over("recent").loader_figures(pid)),
    )


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
