"""Finds the role of each process of a run: trainer, DataLoader worker, another child of a trainer, or other."""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Mapping
from typing import NamedTuple

from msgspec import Struct

from tuimon.agent import debug_settings
from tuimon.masking import masked
from tuimon.proc.processes import command_line, environment_of, is_python, shortened
from tuimon.proc.procfs import read_bytes, read_process_stat
from tuimon.records import NO_TORCH_YET, ProcessRole


class Variables(Struct, frozen=True, gc=False):
    """The variables of a process's initial environment."""

    rank: int | None = None  # RANK, WORLD_SIZE
    world_size: int | None = None
    inherits_hooks: bool = False  # TUIMON_RUN, and tuimon's folder in PYTHONPATH, which a script may have replaced
    omp_num_threads: int | None = None  # OMP_NUM_THREADS
    markers_off: bool = False  # TUIMON_MARKERS
    debug_settings: tuple[str, ...] = ()  # variables that slow every step down


class ProcessFacts(NamedTuple):
    """The facts from which the role of a process follows."""

    pid: int
    ppid: int
    name: str  # of its main thread
    command: tuple[str, ...]
    is_python: bool
    variables: Variables | None = None  # None: they may not be read

    @property
    def rank(self) -> int | None:
        """RANK in the environment it was started with."""
        return self.variables.rank if self.variables else None


#: The end of an entry of PYTHONPATH that brings hooks in; its beginning differs between installations.
_INJECT = "/tuimon/agent/inject:"


def read_facts(pid: int, name: str) -> ProcessFacts | None:
    """All facts of a process, in about 0.15 ms; None when it is gone."""
    stat = read_process_stat(pid)
    if stat is None:
        return None
    command = shortened(masked(command_line(pid)))  # in this order: half a secret is not recognised
    environ, variables = environment_of(pid), None
    if environ or read_bytes(f"/proc/{pid}/environ", 1) is not None:  # env -i leaves nothing to read
        threads = _number(environ.get("OMP_NUM_THREADS", "").partition(",")[0])  # one number for each level: "4,2"
        variables = Variables(
            rank=_number(environ.get("RANK")),
            world_size=_number(environ.get("WORLD_SIZE")),
            inherits_hooks="TUIMON_RUN" in environ and _INJECT in f"{environ.get('PYTHONPATH')}:",
            omp_num_threads=threads if threads is not None and threads > 0 else None,
            markers_off=environ.get("TUIMON_MARKERS") == "0",
            debug_settings=tuple(debug_settings.of_environment(environ.get)),
        )
    return ProcessFacts(pid, stat.ppid, name, tuple(command), is_python(pid), variables)


def fingerprint(pid: int) -> int:
    """A number that changes if program, command line or environment change. About 20 us."""
    try:
        program = os.readlink(f"/proc/{pid}/exe")
    except OSError:
        program = ""
    return hash((program, read_bytes(f"/proc/{pid}/cmdline"), read_bytes(f"/proc/{pid}/environ")))


def _number(text: str | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        return None


#: torch names the main thread of a DataLoader worker so, since 2.6.
WORKER_THREAD = "pt_data_worker"
_SPAWNED = "multiprocessing.spawn"
_FORKSERVER = "multiprocessing.forkserver"
_SERVANTS = ("multiprocessing.resource_tracker", "compile_worker")


def roles_of(
    processes: Mapping[int, ProcessFacts],
    marked: frozenset[int],
    before: Mapping[int, ProcessRole],
    waits: Callable[[int], bool] = lambda pid: False,
    seen: frozenset[int] = frozenset(),
    loading: frozenset[int] = frozenset(),
) -> dict[int, ProcessRole]:
    """The role of every process.

    ``marked``: those known to train; ``before``: the roles at the previous read; ``waits``: whether the main thread of
    a process waits for a child to end; ``seen``: those that samples have shown in backward, used if none is marked;
    ``loading``: those that samples have shown in torch's worker loop. Siblings of a process that trains count as
    children, which are sampled: they may train too.
    """
    trainers = parents = marked & processes.keys()
    if not trainers:
        likely = _likely_trainers({pid: p for pid, p in processes.items() if not _is_left(p, processes, before)}, waits)
        found = {pid for pid in seen & processes.keys() if processes[pid].name != WORKER_THREAD}
        # a process that was seen to train takes the place of the one that started it and does not train itself
        starters = (pid for pid in likely - found if any(_has_ancestor(processes[p], processes, {pid}) for p in found))
        trainers = likely.difference(starters) | found
        parents = trainers | likely
    out: dict[int, ProcessRole] = {}
    for pid, process in processes.items():
        if pid in trainers:
            out[pid] = "trainer"
        elif not process.is_python:
            out[pid] = "other"
        elif process.name == WORKER_THREAD or pid in loading:
            out[pid] = "worker"
        elif _is_left(process, processes, before):
            out[pid] = before[pid]
        else:
            out[pid] = "child" if _is_child(process, processes, parents) else "other"
    return out


def _likely_trainers(processes: Mapping[int, ProcessFacts], waits: Callable[[int], bool]) -> frozenset[int]:
    """The processes that train, until markers show them: those with a rank from a launcher, otherwise the outermost
    Pythons.

    A process that only waits for another Python program to end has launched it: the other one may train.
    """
    # processes that serve a training or load its data may outlive it for a moment
    helpers = {pid for pid, p in processes.items() if any(servant in " ".join(p.command) for servant in _SERVANTS)}
    workers = {pid for pid, p in processes.items() if p.name == WORKER_THREAD}
    pythons = {pid: p for pid, p in processes.items() if p.is_python and pid not in helpers | workers}
    ranked = {pid: p for pid, p in pythons.items() if p.rank is not None}
    candidates = ranked or pythons
    outermost = {pid for pid, p in candidates.items() if not _has_ancestor(p, processes, candidates)}
    while launchers := {pid for pid in {pythons[child].ppid for child in _launched(pythons, outermost)} if waits(pid)}:
        outermost = (outermost - launchers) | _launched(pythons, launchers)
    return frozenset(outermost)


def _is_left(process: ProcessFacts, processes: Mapping[int, ProcessFacts], before: Mapping[int, ProcessRole]) -> bool:
    """True if it is a worker or another child whose trainer has ended."""
    return process.ppid not in processes and before.get(process.pid) in ("worker", "child")


def _launched(pythons: Mapping[int, ProcessFacts], parents: Container[int]) -> set[int]:
    """The children of ``parents`` that are programs of their own: neither forks nor helpers of Python's or torch's."""
    children = ((pid, p, " ".join(p.command)) for pid, p in pythons.items() if p.ppid in parents)
    forks = (_SPAWNED, _FORKSERVER, *_SERVANTS)
    return {
        pid
        for pid, p, line in children
        if p.command != pythons[p.ppid].command and not any(name in line for name in forks)
    }


def _has_ancestor(process: ProcessFacts, processes: Mapping[int, ProcessFacts], among: Container[int]) -> bool:
    parent = processes.get(process.ppid)
    for _ in range(len(processes)):  # pids may be reused between two reads: no endless circle
        if parent is None:
            return False
        if parent.pid in among:
            return True
        parent = processes.get(parent.ppid)
    return False


def _is_child(process: ProcessFacts, processes: Mapping[int, ProcessFacts], trainers: frozenset[int]) -> bool:
    """True if a trainer has forked or spawned it, or Python's fork server has for one."""
    parent, line = processes.get(process.ppid), " ".join(process.command)
    if parent is None or any(servant in line for servant in _SERVANTS):
        return False
    if _FORKSERVER in line:  # the server itself is the trainer's child, what it forks is the server's
        return parent.command == process.command and parent.ppid in trainers
    return parent.pid in trainers and (_SPAWNED in line or parent.command == process.command)


def why_no_markers(process: ProcessFacts, role: ProcessRole, launched: bool, no_ring: str | None = None) -> str | None:
    """The reason why a process lacks markers, for people; None if none are expected. ``no_ring``: as it says itself."""
    if not process.is_python or role in ("worker", "child"):
        return None
    if no_ring is not None:
        return f"no room for its markers: {no_ring}"
    if not launched:
        return "attached: not started by tuimon"
    variables = process.variables
    if (without := without_hooks(process)) is not None:
        return without
    if variables is not None and variables.markers_off:
        return "switched off (--no-markers)"
    return NO_TORCH_YET


def without_hooks(process: ProcessFacts) -> str | None:
    """Why a process of a launched run can have no hooks, by how it was started; None if it can."""
    if _has_option(process.command, "IE"):
        return "started with -I or -E: it ignores PYTHONPATH"
    if _has_option(process.command, "S"):
        return "started with -S: it runs nothing at its start"
    variables = process.variables
    if variables is not None and not variables.markers_off and not variables.inherits_hooks:
        return "started with an environment of its own, without tuimon's PYTHONPATH"
    return None


def _has_option(command: tuple[str, ...], wanted: str) -> bool:
    """True if an interpreter's own options (before script, -c or -m) hold one of these letters."""
    takes_value = False
    for word in command[1:]:
        if takes_value:
            takes_value = False
            continue
        if not word.startswith("-") or word.startswith("--") or word == "-":
            return False
        letters = word[1:]
        for i, letter in enumerate(letters):
            if letter in wanted:
                return True
            if letter in "cm":
                return False
            if letter in "WX":
                takes_value = i == len(letters) - 1
                break
    return False
