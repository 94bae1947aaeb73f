"""Threads beside a training: whether the training waits for one of them, and which of them wait for work by nature."""

from __future__ import annotations

import re
from collections.abc import Sequence, Set

from tuimon.records import Frame, Standstill
from tuimon.session.stacks.activity import activity_of, stands_in_wait

#: Calls into C that wait for what another thread does: a queue, a future, a semaphore.
_FOR_A_THREAD = frozenset({"get", "put", "result", "wait", "acquire", "join"})
#: ... and those that may wait for ever with nothing wrong: for work, an event, a connection.
_FOR_WORK = frozenset({"get", "put", "result", "wait", "join", "accept", "select", "poll"})
#: A line that enters a lock's block, ``with self.lock:``, if a lock is all that the block's head names, or acquires it.
_AT_LOCK = re.compile(r"with\s+[A-Za-z_][\w.\[\]'\"]*(\s+as\s+\w+)?\s*[:,]|[\w\])]\.acquire\s*\(")


def waits_for_thread(stack: Sequence[Frame]) -> bool:
    """True if a stack (root first) stands at a lock, a queue, an event or the end of a thread: another's turn."""
    activity = activity_of(stack)
    if activity == "lock" or stands_at_lock(stack) or is_at_exit(stack):
        return True
    return activity == "python" and _calls(stack, _FOR_A_THREAD)


def waits_for_work(stack: Sequence[Frame]) -> bool:
    """True if a thread has nothing to do, as a writer of metrics that gets nothing from its queue.

    Not one that waits for a lock: in the worst case that is half of a deadlock.
    """
    if activity_of(stack) in ("idle", "sleep") or is_at_exit(stack):
        return True
    if stands_at_lock(stack):
        return False
    return stands_in_wait(stack) or _calls(stack, _FOR_WORK)


def training_threads(taken: Standstill) -> dict[int, int]:
    """The thread that trains, by process, where it is not the main one."""
    return {process.pid: process.tid for process in taken.processes if process.tid is not None}


def waiting_processes(taken: Standstill) -> set[int]:
    """The processes whose training thread, or a worker's main thread, waits for another thread."""
    groups, training = [group for group in taken.groups if waits_for_thread(group.frames)], training_threads(taken)
    return {pid for group in groups for pid, tid in group.threads if tid == training.get(pid, pid)}


def stands_at_lock(stack: Sequence[Frame]) -> bool:
    """True if a thread stands at a lock, by its line's text; locks that are written in Python wait in threading."""
    for frame in reversed(stack):
        if frame.user:
            return _AT_LOCK.search(frame.source) is not None
        if not frame.file.endswith("threading.py"):
            break
    return False


def is_at_exit(stack: Sequence[Frame]) -> bool:
    """True if a program has come to its end, and Python waits for its threads that are not daemons."""
    return bool(stack) and stack[0].function == "_shutdown" and stack[0].file.endswith("threading.py")


def _calls(stack: Sequence[Frame], names: Set[str]) -> bool:
    """True if the innermost line is the user's and makes such a call."""
    return bool(stack) and stack[-1].user and not names.isdisjoint(outer_calls(stack[-1].source))


_CALL = re.compile(r"\b([A-Za-z_][\w.]*)\(")
_DEFINES = re.compile(r"^\s*(?:async\s+)?(?:def|class)\b")


def outer_calls(source: str) -> list[str]:
    """The bare names of the calls that no other encloses: ``["open"]`` of ``with io.open(join(a, b)) as f:``.

    Python code that the line calls has a frame of its own: where the line is innermost, only calls into C are left.
    """
    return [name.rpartition(".")[2] for name in outer_call_names(source)]


def outer_call_names(source: str) -> list[str]:
    """The same as they are written: ``["io.open"]``."""
    if _DEFINES.match(source):
        return []
    depth, outer, until = 0, [], 0
    for found in _CALL.finditer(source):
        depth += source.count("(", until, found.start()) - source.count(")", until, found.start())
        until = found.start()
        if depth <= 0:
            outer.append(found[1])
    return outer
