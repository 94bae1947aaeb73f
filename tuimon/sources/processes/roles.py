"""What each process of a run is: it trains, it loads data for one that trains, or it is something else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tuimon.records import ProcessRole

#: torch names the main thread of a DataLoader worker so.
_WORKER_THREAD = "pt_data_worker"
_SPAWNED = "multiprocessing.spawn"
_FORKSERVER = "multiprocessing.forkserver"
_SERVANTS = ("multiprocessing.resource_tracker", "compile_worker")


class Kin(NamedTuple):
    """What a role is told by."""

    pid: int
    ppid: int
    comm: str
    command: tuple[str, ...]
    python: bool
    rank: int | None = None  # RANK in the environment it was started with


def roles_of(
    kin: Mapping[int, Kin], marked: frozenset[int], before: Mapping[int, ProcessRole]
) -> dict[int, ProcessRole]:
    """The role of every process. ``marked`` ones train for certain; ``before``: the roles at the last look."""
    trainers = marked & kin.keys() or _likely_trainers(kin)
    out: dict[int, ProcessRole] = {}
    for pid, process in kin.items():
        if pid in trainers:
            out[pid] = "trainer"
        elif process.python and _is_worker(process, kin, trainers, before):
            out[pid] = "worker"
        else:
            out[pid] = "other"
    return out


def _likely_trainers(kin: Mapping[int, Kin]) -> frozenset[int]:
    """Before any marker tells: the processes that a launcher gave a rank, else the outermost Pythons."""
    pythons = {pid: p for pid, p in kin.items() if p.python and p.comm != _WORKER_THREAD}
    ranked = {pid: p for pid, p in pythons.items() if p.rank is not None}
    candidates = ranked or pythons
    return frozenset(pid for pid, p in candidates.items() if not _has_ancestor(p, kin, candidates))


def _has_ancestor(process: Kin, kin: Mapping[int, Kin], among: Mapping[int, Kin]) -> bool:
    parent = kin.get(process.ppid)
    for _ in range(len(kin)):  # pids may be reused while we look: no endless circle
        if parent is None:
            return False
        if parent.pid in among:
            return True
        parent = kin.get(parent.ppid)
    return False


def _is_worker(
    process: Kin, kin: Mapping[int, Kin], trainers: frozenset[int], before: Mapping[int, ProcessRole]
) -> bool:
    if process.comm == _WORKER_THREAD:
        return True
    parent = kin.get(process.ppid)
    if parent is None:  # its trainer is gone before it
        return before.get(process.pid) == "worker"
    line = " ".join(process.command)
    if any(servant in line for servant in _SERVANTS):
        return False
    if _FORKSERVER in line:  # the server itself is the trainer's child, its workers are the server's
        return parent.command == process.command and parent.ppid in trainers
    return parent.pid in trainers and (_SPAWNED in line or parent.command == process.command)


def without_markers(kin: Kin, role: ProcessRole, environ: Mapping[str, str], launched: bool) -> str | None:
    """Why a process has no markers, for people; None where nobody expects any."""
    if not kin.python or role == "worker":
        return None
    if not launched:
        return "attached: not started by tuimon"
    if _ignores_environment(kin.command):
        return "started with -I or -E: it ignores PYTHONPATH"
    if environ.get("TUIMON_MARKERS") == "0":
        return "switched off (--no-markers)"
    if environ and "TUIMON_RUN" not in environ:
        return "started with an environment of its own, without tuimon's PYTHONPATH"
    return "no torch imported yet"


def _ignores_environment(command: tuple[str, ...]) -> bool:
    """Whether an interpreter's own options (before script, -c or -m) hold -I or -E."""
    takes_value = False
    for word in command[1:]:
        if takes_value:
            takes_value = False
            continue
        if not word.startswith("-") or word.startswith("--") or word == "-":
            return False
        letters = word[1:]
        for i, letter in enumerate(letters):
            if letter in "IE":
                return True
            if letter in "cm":
                return False
            if letter in "WX":
                takes_value = i == len(letters) - 1
                break
    return False
