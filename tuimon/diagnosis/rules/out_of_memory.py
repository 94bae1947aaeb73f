"""A run that ended for want of memory: the kernel killed it or a child of it, or an allocation failed."""

from __future__ import annotations

import re

from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.machines import Machine
from tuimon.diagnosis.finding import Finding, Fix
from tuimon.diagnosis.rules.memory_growth import kept_in, less_memory, let_go, places_of, who
from tuimon.node_ids import own_id
from tuimon.records import Exit, Place
from tuimon.text import size_text

#: The exit code of a shell, or of a container, whose program was killed.
_KILLED_CODE = 137
_WORKER = re.compile(r"DataLoader worker \(pid(?:\(s\))? \d+\) (?:is killed by signal: Killed|exited unexpectedly)")
#: Launchers report so that a process of theirs was killed, and ranks that another one is gone.
_CHILD = re.compile(r"ChildFailedError|SIGKILL|exitcode: -9|[Cc]onnection (?:closed|reset) by peer|DistBackendError")
_ON_GPU = re.compile(r"(?:\w+\.)*OutOfMemoryError\b|RuntimeError: (?:CUDA|HIP) out of memory")
_ON_HOST = re.compile(r"(?:\w+\.)*_?(?:Array)?MemoryError\b|RuntimeError: .*DefaultCPUAllocator: can't allocate memory")
#: The size that torch or numpy asked for.
_WANTED = re.compile(r"(?:Tried to allocate|Unable to allocate) (\d+\.?\d*) ?([KMGT]iB)")


def out_of_memory(evidence: Evidence) -> Finding | None:
    """The last line of the output, or the kernel's count of kills, shows that memory ended the run."""
    end = evidence.run.end
    if end is None or not end.has_failed:
        return None
    line = end.last_line or ""
    machines = evidence.run.machines
    killed = next((each for each in machines if each.memory is not None and each.memory.oom_kills), None)
    victim = _victim(end, line)
    if killed is not None and victim is not None:
        headline = f"{killed.place}the kernel killed {victim} for memory: {_held(evidence, killed)}"
        return _finding(evidence, killed, headline, on_gpu=False)
    if on_gpu := _ON_GPU.match(line) is not None:
        return _finding(evidence, evidence.run.here, _refused("a GPU", line), on_gpu=on_gpu)
    if _ON_HOST.match(line):
        return _finding(evidence, evidence.run.here, _refused("the machine", line), on_gpu=False)
    return None


def _victim(end: Exit, line: str) -> str | None:
    """The process that the kernel killed; None if the run ended by something else."""
    if end.signal == "SIGKILL" or end.exit_code == _KILLED_CODE:
        return "the training"
    if _WORKER.search(line):
        return "a DataLoader worker"
    return "a process of the run" if not line or _CHILD.search(line) else None


def _held(evidence: Evidence, machine: Machine) -> str:
    """``the container's 512 MiB are full``, and which process held most at a reading."""
    memory = machine.memory
    limit_bytes = memory.limit_bytes if memory is not None else None
    total_bytes = memory.total_bytes if memory is not None else None
    store, size = ("container", limit_bytes) if limit_bytes is not None else ("machine", total_bytes)
    text = f"the {store}'s {size_text(size)} are full" if size is not None else f"the {store} is full"
    most = machine.most_held
    return text if most is None else f"{text}, {who(evidence.run, most.pid)} held {size_text(most.held_bytes)}"


def _refused(where: str, line: str) -> str:
    wanted, error = _WANTED.search(line), line.partition(":")[0]
    size = f" for {wanted[1]} {wanted[2]}" if wanted is not None else ""
    return f"the training ended as {where} had no room{size}: {error.rpartition('.')[2]}"


def _raised_at(evidence: Evidence) -> tuple[Place, ...]:
    place = evidence.run.end.raised_at if evidence.run.end is not None else None
    return () if place is None else (place,)


def _finding(evidence: Evidence, machine: Machine, headline: str, *, on_gpu: bool) -> Finding:
    memory, most = machine.memory, machine.most_held
    keeping = machine.keeping if on_gpu else kept_in(machine, most.pid) if most is not None else ()
    torch = max(evidence.torch_memory, key=lambda row: row.peak_bytes or 0, default=None) if on_gpu else None
    smaller = (
        "make batches smaller, and accumulate gradients over several; or recompute activations"
        " (torch.utils.checkpoint); tuimon run --memory lists what is allocated at such an error"
    )
    return Finding(
        severity="critical",
        cause="out_of_memory",
        headline=headline,
        fixes=let_go(keeping) or (Fix(smaller if on_gpu else less_memory(evidence, most.pid if most else None)),),
        where=places_of(keeping) or _raised_at(evidence),
        evidence={
            "exit_code": evidence.run.end.exit_code if evidence.run.end is not None else None,
            "oom_kills": memory.oom_kills if memory is not None else None,
            "limit_bytes": memory.limit_bytes if memory is not None else None,
            "total_bytes": memory.total_bytes if memory is not None else None,
            "most_held_pid": own_id(most.pid) if most is not None else None,
            "most_held_bytes": most.held_bytes if most is not None else None,
            **({"torch_peak_bytes": torch.peak_bytes, "reserved_bytes": torch.reserved_bytes} if torch else {}),
            **machine.facts,
        },
    )
