"""The processes of this machine that a user may want to attach to, and those that are left of a run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

import psutil

from tuimon.proc import procfs
from tuimon.proc.processes import command_line, environment
from tuimon.proc.ring_facts import RingFacts, read_ring_facts


class Candidate(NamedTuple):
    """A process that a user may want to attach to."""

    pid: int
    ppid: int
    start_ticks: int
    command: list[str]
    facts: RingFacts | None  # None: it has no ring


def find_candidates() -> list[Candidate]:
    """This user's processes that have torch loaded or a live ring, without their workers.

    Those with markers first, then the others: some of these have only imported torch; each the oldest first.
    """
    own, user = os.getpid(), os.getuid()
    listed = [candidate_of(pid, user) for pid in sorted(procfs.pids()) if pid != own]
    found = [candidate for candidate in listed if candidate is not None]
    found.sort(key=lambda candidate: (candidate.facts is None, candidate.start_ticks, candidate.pid))
    commands = {candidate.pid: candidate.command for candidate in found}
    return [candidate for candidate in found if not is_worker(candidate, commands)]


def candidate_of(pid: int, user: int) -> Candidate | None:
    """The process as a candidate; None if it is not one."""
    try:
        process = psutil.Process(pid)
        if process.uids().effective != user:
            return None
        ticks = procfs.start_ticks(pid)
        facts = None if ticks is None else read_ring_facts(pid, ticks)
        if ticks is None or (facts is None and not has_torch(pid)):
            return None
        return Candidate(pid, process.ppid(), ticks, command_line(pid), facts)
    except psutil.Error:
        return None


def has_torch(pid: int) -> bool:
    """True if a process has torch's libraries loaded; False if that cannot be known."""
    return b"/libtorch" in procfs.read_maps(pid)


def is_worker(candidate: Candidate, commands: Mapping[int, list[str]]) -> bool:
    """True if it works for a candidate that has forked or spawned it: a DataLoader worker, a compiler."""
    spawned = any("multiprocessing" in word or "compile_worker" in word for word in candidate.command)
    return candidate.ppid in commands and (spawned or commands[candidate.ppid] == candidate.command)


def processes_of_run(run_id: str) -> list[int]:
    """The live processes that /proc shows and that have this run in their environment, lowest pid first."""
    return [pid for pid in sorted(procfs.pids()) if _run_of(pid) == run_id]


def _run_of(pid: int) -> str | None:
    try:
        return environment(pid).get("TUIMON_RUN")
    except OSError:  # no file handle is left: what has ended is reported without those that outlive it
        return None
