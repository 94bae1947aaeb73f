"""Threads by process: each process is a row that can be folded, its threads and children below it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from msgspec.structs import replace

from tuimon.records import Place, Process
from tuimon.session.rows import ThreadRow
from tuimon.views.format import plain

#: ``tid`` of a row that stands for a whole process.
WHOLE = -1
#: With more rows than this only training processes are unfolded at first.
UNFOLDED_ROWS = 40


class TreeRow(NamedTuple):
    """A row as it is drawn, and what it stands for."""

    drawn: ThreadRow  # its role is indented; a process's row bears its threads' CPU time, and ``WHOLE`` as tid
    thread: ThreadRow  # the thread that Enter opens; of a process the main one

    @property
    def is_process(self) -> bool:
        """True if it stands for a process."""
        return self.drawn.tid == WHOLE


def tree_rows(threads: Sequence[ThreadRow], processes: Sequence[Process], folded: AbstractSet[int]) -> list[TreeRow]:
    """The rows in the order they are shown: parents before their children, threads in the order given."""
    of: dict[int, list[ThreadRow]] = {}
    for row in threads:
        of.setdefault(row.pid, []).append(row)
    known = {process.pid: process for process in processes}
    children = _children(of, known)
    found: list[TreeRow] = []
    stack = [(pid, 0) for pid in reversed(children[None])]
    while stack:
        pid, depth = stack.pop()
        below = children.get(pid, [])
        if len(of[pid]) == 1:  # the process is its thread
            (only,) = of[pid]
            found.append(TreeRow(replace(only, role=f"{'  ' * depth}  {_name(only, known.get(pid))}", rank=None), only))
            stack += [(child, depth + 1) for child in reversed(below)]
            continue
        found.append(_process_row(pid, of[pid], known.get(pid), depth, folded=pid in folded))
        if pid not in folded:
            indent = "  " * (depth + 1)
            found += [TreeRow(replace(row, role=indent + (row.role or row.name), rank=None), row) for row in of[pid]]
            stack += [(child, depth + 1) for child in reversed(below)]
    return found


def folded_at_first(threads: Sequence[ThreadRow], roles: Iterable[Process]) -> set[int]:
    """Which processes are folded at first: none, or where there are many threads all that do not train."""
    if len(threads) <= UNFOLDED_ROWS:
        return set()
    trainers = {process.pid for process in roles if process.role == "trainer"}
    pids = {row.pid for row in threads}
    return pids - trainers if pids & trainers else pids


def _children(of: dict[int, list[ThreadRow]], known: dict[int, Process]) -> dict[int | None, list[int]]:
    """Processes with threads, by their nearest ancestor with some (None: at the root), in the order of the threads."""
    found: dict[int | None, list[int]] = {None: []}
    for pid in of:
        found.setdefault(_nearest(pid, of.keys(), known), []).append(pid)
    return found


def _nearest(pid: int, shown: AbstractSet[int], known: dict[int, Process]) -> int | None:
    """The nearest ancestor among those shown; None without one, or where reused ids make a circle of parents."""
    nearest = None
    passed = {pid}
    at = pid
    while at in known:
        at = known[at].ppid
        if at in passed:
            return None
        passed.add(at)
        if nearest is None and at in shown:
            nearest = at
    return nearest


def _process_row(
    pid: int, threads: Sequence[ThreadRow], process: Process | None, depth: int, *, folded: bool
) -> TreeRow:
    main = next((row for row in threads if row.tid == pid), threads[0])
    cpu = [row.cpu_ratio for row in threads if row.cpu_ratio is not None]
    drawn = ThreadRow(
        pid=pid,
        tid=WHOLE,
        role=f"{'  ' * depth}{'▸' if folded else '▾'} {_name(main, process)}",
        name="",
        cpu_ratio=sum(cpu) if cpu else None,
        state="",
        delay_ratio=None,
        place=_command(process),
        count=sum(row.count for row in threads),
        ended=bool(process and process.ended),
    )
    return TreeRow(drawn, main)


def _name(main: ThreadRow, process: Process | None) -> str:
    if process is not None and process.rank is not None and (process.world_size or 2) > 1:
        return f"rank {process.rank}"
    return "training" if main.role == "main" else main.role or main.name


def _command(process: Process | None) -> Place | None:
    """Its script and its command, in the place of a line of code."""
    if process is None or not process.command:
        return None
    words = [plain(word) for word in process.command]
    script = next((word for word in words[1:] if word.endswith(".py")), words[0])
    return Place(script, 0, "", " ".join(words)[:200])
