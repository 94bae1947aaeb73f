"""Processes that already run: candidates to attach to, whether tuimon may watch one, and processes left of a run."""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

from msgspec import Struct

from tuimon.errors import TargetError
from tuimon.launch.child import ExitStatus, own_output
from tuimon.proc import procfs
from tuimon.proc.processes import command_line, environment_of, has_torch, is_alive, is_fork_of, is_name, is_python
from tuimon.proc.ring_facts import RingFacts, read_ring_facts


class Attached(Struct, frozen=True):
    """A process that tuimon monitors but did not start; its start distinguishes it from a later one of that pid."""

    pid: int
    start_ticks: int
    command: list[str]
    run_id: str | None = None
    output: str | None = None

    def poll(self) -> ExitStatus | None:
        """How it ended; None while it runs. Only its parent can know its exit code."""
        try:
            return None if is_alive(self.pid, self.start_ticks) else ExitStatus(None, None)
        except OSError:  # no file handle is left to read with
            return None


def attach(pid: int) -> Attached:
    """Check that ``pid`` can be watched. Raises TargetError."""
    ticks, uids = procfs.start_ticks(pid), procfs.user_ids(pid)
    if ticks is None or not uids or not is_alive(pid, ticks):
        raise TargetError(f"there is no process {pid}", "List the running trainings: tuimon ps")
    if (process := procfs.read_fields(f"/proc/{pid}/status").get("Tgid", str(pid))) != str(pid):  # /proc has threads
        raise TargetError(f"{pid} is a thread of process {process}", f"Watch the process: tuimon attach {process}")
    owner = uids[1]
    if owner != os.getuid() and os.getuid() != 0:
        raise TargetError(
            f"process {pid} belongs to {user_name(owner)}",
            f"Only its owner or root can watch it: sudo -u {user_name(owner)} tuimon attach {pid}",
        )
    # without a ring: a shell that tuimon launched, or a Python that has not imported torch yet
    facts, variables = read_ring_facts(pid, ticks), environment_of(pid)
    if facts is None and (run := variables.get("TUIMON_RUN")):
        facts = RingFacts(run=run, output=variables.get("TUIMON_OUTPUT"))
    command = command_line(pid)
    if facts is None and not is_python(pid):
        _refuse(pid, os.path.basename(command[0]) if command else "a kernel thread")
    run_id, output = (facts.run, facts.output) if facts else (None, None)
    return Attached(pid, ticks, command, run_id, own_output(output, run_id, owner))


def _refuse(pid: int, program: str) -> None:
    """Raise, unless the process may be Python: it hides its program but has Python's name."""
    try:
        os.readlink(f"/proc/{pid}/exe")
    except PermissionError:
        if is_name(program):
            return
        raise TargetError(
            f"process {pid} ({program}) hides which program it runs, and its stacks",
            "If it is a training: start it with `tuimon run`, or let it `import tuimon`.",
        ) from None
    except OSError:  # it has ended
        pass
    raise TargetError(f"process {pid} ({program}) is not a Python interpreter", "List the running trainings: tuimon ps")


def user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


class Candidate(NamedTuple):
    """A process that a user may want to attach to."""

    pid: int
    ppid: int
    start_ticks: int
    command: list[str]
    facts: RingFacts | None  # None: it has no ring


def find_candidates() -> list[Candidate]:
    """This user's processes that have torch loaded or a live ring, without their workers.

    Processes with markers come first, then the others, some of which have only imported torch; the oldest first in each
    group.
    """
    own, user = os.getpid(), os.getuid()
    listed = [candidate_of(pid, user) for pid in sorted(procfs.pids()) if pid != own]
    found = [candidate for candidate in listed if candidate is not None]
    found.sort(key=lambda candidate: (candidate.facts is None, candidate.start_ticks, candidate.pid))
    commands = {candidate.pid: candidate.command for candidate in found}
    return [candidate for candidate in found if not is_worker(candidate, commands)]


def candidate_of(pid: int, user: int) -> Candidate | None:
    stat = procfs.read_process_stat(pid)
    if stat is None or procfs.user_ids(pid)[1:] != [user]:
        return None
    facts = read_ring_facts(pid, stat.start_ticks)
    return Candidate(pid, stat.ppid, stat.start_ticks, command_line(pid), facts) if facts or has_torch(pid) else None


def is_worker(candidate: Candidate, commands: Mapping[int, list[str]]) -> bool:
    """True if it works for a candidate that has forked or spawned it: a DataLoader worker, a compiler."""
    spawned = any("multiprocessing" in word or "compile_worker" in word for word in candidate.command)
    parent, command = candidate.ppid, candidate.command
    return parent in commands and (spawned or (commands[parent] == command and is_fork_of(candidate.pid, parent)))


def processes_of_run(run_id: str) -> list[int]:
    """The live processes that /proc shows and that have this run in their environment, lowest pid first."""
    found = []
    for pid in sorted(procfs.pids()):
        with suppress(OSError):  # no file handle is left: the run's end is reported without processes left of it
            if environment_of(pid).get("TUIMON_RUN") == run_id:
                found.append(pid)
    return found
