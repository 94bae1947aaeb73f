"""The place of each thread: the main threads of all ranks, then the others, like stacks together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tuimon.node_ids import own_id
from tuimon.session.loop_tree.stacks import Stack
from tuimon.session.loop_tree.tree import program_part
from tuimon.session.rows import ThreadRow
from tuimon.session.session import Session
from tuimon.session.standing.text import rank_list
from tuimon.views.format import number, percent

_FRAMES = 12  # of a stack
_GROUPS = 12


class _Group(NamedTuple):
    """Threads of one role at one stack; without samples, all of the role that have none."""

    role: str
    is_main: bool  # of a training process
    rows: list[ThreadRow]


def stack_lines(session: Session) -> list[str]:
    """A few lines for each group, innermost frame first; the main threads first, then those that use most CPU."""
    groups = sorted(_groups(session), key=lambda group: (not group.is_main, -_most_cpu(group)))
    lines = [line for group in groups[:_GROUPS] for line in _group_lines(session, group)]
    if len(groups) > _GROUPS:
        lines.append(f"({sum(len(group.rows) for group in groups[_GROUPS:])} threads more, at other stacks)")
    return lines


def _groups(session: Session) -> list[_Group]:
    trainers = session.trainers()
    training = {(pid, session.training_tid(pid)) for pid in trainers}
    now = session.over("recent")
    mains = [row for pid in trainers for row in now.threads_of(pid) if (pid, row.tid) in training]
    rest = [row for row in now.threads() if (row.pid, row.tid) not in training]
    found: dict[tuple[str, bool, Stack], _Group] = {}
    for row in (*mains, *rest):
        role, is_main = (row.role or row.name).rstrip(" 0123456789"), (row.pid, row.tid) in training
        group = found.setdefault((role, is_main, _frames(session, row)), _Group(role, is_main, []))
        group.rows.append(row)
    return list(found.values())


def _frames(session: Session, row: ThreadRow) -> Stack:
    """A thread's most frequent stack, root first; empty without samples."""
    sampled = session.samples.get(row.pid)
    found = sampled.threads.stack_of(row.tid) if sampled is not None else None
    return program_part(session.frames.stack(found[0])) if found is not None else ()


def _group_lines(session: Session, group: _Group) -> Iterator[str]:
    if len(group.rows) == 1:
        yield _thread_line(session, group.rows[0])
        yield from _how_long(session, group.rows[0])
    else:
        yield _threads_line(session, group)
    for frame in list(reversed(_frames(session, group.rows[0])))[:_FRAMES]:
        yield f"  {frame.file}:{frame.line} {frame.function}() {frame.source.strip()}".rstrip()


def _thread_line(session: Session, row: ThreadRow) -> str:
    several = f" x {row.count}" if row.count > 1 else ""
    delay = f", waits {percent(row.delay_ratio)} for a core" if row.delay_ratio else ""
    ranks = _ranks(session, [row])
    ids = f"({f'rank {ranks[0]}, ' if ranks else ''}pid {own_id(row.pid)}, thread {own_id(row.tid)})"
    return f"{row.role or row.name}{several} {ids}: {row.state}, CPU {percent(row.cpu_ratio)} of a core{delay}"


def _threads_line(session: Session, group: _Group) -> str:
    """``main x 7 (ranks 0-2, 4-7): running, CPU 71 % to 79 % of a core``."""
    ranks = _ranks(session, group.rows)
    states = ", ".join(sorted({row.state for row in group.rows}))
    shares = [row.cpu_ratio for row in group.rows if row.cpu_ratio is not None]
    ends = list(dict.fromkeys((percent(min(shares)), percent(max(shares))))) if shares else []
    cpu = f", CPU {' to '.join(ends)} of a core" if ends else ""
    named = f" (ranks {rank_list(ranks)})" if ranks else ""
    return f"{group.role} x {sum(row.count for row in group.rows)}{named}: {states}{cpu}"


def _how_long(session: Session, row: ThreadRow) -> Iterator[str]:
    sampled = session.samples.get(row.pid)
    found = sampled.threads.stack_of(row.tid) if sampled is not None else None
    same_s = sampled.threads.same_stack_s(row.tid) if sampled is not None else None
    if same_s is not None and same_s >= 1:
        yield f"  the same stack for {number(same_s)} s"
    elif found is not None and found[1] < 1:
        yield f"  {percent(found[1])} of its last samples:"


def _ranks(session: Session, rows: list[ThreadRow]) -> list[int]:
    """Ranks of main threads; empty where the run has but one."""
    known = (session.process(row.pid) for row in rows if row.tid == row.pid)
    return sorted({process.rank for process in known if process is not None and process.rank is not None})


def _most_cpu(group: _Group) -> float:
    return max(row.cpu_ratio or 0.0 for row in group.rows)
