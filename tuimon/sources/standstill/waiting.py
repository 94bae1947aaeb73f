"""Waits of processes at a standstill for something outside: the other end of a pipe or a connection, and children."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from msgspec import Struct

from tuimon.proc import connections, procfs
from tuimon.sources.base import Suspect

#: Bytes a second from which a process moves: our choice, above what logs, heartbeats and our own sampling thread write
#: (10 kB/s), and below any storage that still answers.
MOVING_BYTES_PER_S = 32 * 1024


#: CPU from which a process that the training may wait for works: our choice, what one that computes gets on a machine
#: with five times as much to do as cores; monitors and loggers take less.
WORKING_RATIO = 0.2


class Blocked(Struct, frozen=True, gc=False):
    """A thread in a transfer: over which pipe or connection, and how often it had gone to sleep."""

    link: str
    wake_ups: int | None


class Used(Struct, frozen=True, gc=False):
    """CPU time, reads and writes of a process up to a moment; None where these may not be read."""

    t: float
    cpu_s: float
    io: procfs.ProcessIo | None


class Waiting(Struct, frozen=True, gc=False):
    """One reading of a standstill: what the suspects are blocked on, and what they and their children have used."""

    blocked: Mapping[int, Blocked]
    suspects: Mapping[int, Used]
    children: Mapping[int, Used]


def read_waiting(suspects: Iterable[Suspect], run_pids: Iterable[int], now_s: float) -> Waiting:
    """Read it; ``run_pids``: all processes of the run."""
    tids, blocked = {each.pid: each.tid or each.pid for each in suspects}, {}
    for pid, tid in tids.items():
        link = connections.blocked_on(pid, tid)
        if link is not None:
            blocked[pid] = Blocked(link, connections.wake_ups(pid, tid))
    stats = {pid: stat for pid in run_pids if (stat := procfs.read_process_stat(pid)) is not None}
    below = set(tids)
    while more := {pid for pid, stat in stats.items() if stat.ppid in below} - below:
        below |= more
    children = {pid: Used(now_s, stats[pid].cpu_s, procfs.read_io(pid)) for pid in below - tids.keys()}
    return Waiting(blocked, {pid: Used(now_s, 0.0, procfs.read_io(pid)) for pid in tids}, children)


def bytes_per_s(before: Used | None, after: Used | None) -> float | None:
    """Between two readings; None where either is not known.

    Bytes through system calls and bytes to the disk overlap, and each has what the other lacks (the page cache,
    mapped files): the greater of the two counts.
    """
    if before is None or after is None or before.io is None or after.io is None or after.t <= before.t:
        return None
    moved = max(after.io.by_calls - before.io.by_calls, after.io.by_disk - before.io.by_disk)
    return max(0.0, moved / (after.t - before.t))


def moving(before: Waiting, after: Waiting) -> list[int]:
    """The suspects that read or wrote, or were woken in a transfer: something came, or went; children that worked."""
    found = [pid for pid, now in after.suspects.items() if _has_worked(before.suspects.get(pid), now)]
    for pid, now in after.blocked.items():
        then = before.blocked.get(pid)
        if then is not None and then.link == now.link and then.wake_ups != now.wake_ups:
            found.append(pid)
    found += [pid for pid, now in after.children.items() if _has_worked(before.children.get(pid), now)]
    return list(dict.fromkeys(found))


def _has_worked(before: Used | None, after: Used) -> bool:
    if before is None or after.t <= before.t:
        return False
    has_computed = (after.cpu_s - before.cpu_s) / (after.t - before.t) >= WORKING_RATIO
    return has_computed or (bytes_per_s(before, after) or 0.0) >= MOVING_BYTES_PER_S


def idle_peers(pid: int, before: Waiting, after: Waiting, run_pids: Collection[int]) -> list[int] | None:
    """Who of the run is at the other end of what a suspect is blocked on, and waits too; ``StandingProcess.peers``."""
    now = after.blocked.get(pid)
    if now is None or before.blocked.get(pid) != now:
        return None
    peers = connections.other_ends(pid, now.link, run_pids)
    if not peers or any(connections.is_sleeping(peer) for peer in peers):
        return None
    return None if any(connections.has_other_connections(peer, run_pids) for peer in peers - {pid}) else sorted(peers)
