"""Opens the Monitor of each command: of a new run, of a running process, of a log; each loads only what it needs.

A run is a part of a job, as its scheduler, its launcher or the user names it: the same on all its nodes.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from tuimon.errors import LaunchError
from tuimon.installation import version_of
from tuimon.launch.child import Launched, new_run_id, output_path
from tuimon.masking import masked
from tuimon.monitor.monitor import Monitor
from tuimon.monitor.options import Observer, Options
from tuimon.proc.procfs import nvidia_driver
from tuimon.records import Header, Notice
from tuimon.sources.base import NoticeSource, Source
from tuimon.sources.log.output import OutputTail
from tuimon.sources.process_table import ProcessTable

if TYPE_CHECKING:
    from tuimon.monitor.hooks import Hooks
    from tuimon.sources.log.writer import LogWriter

#: Ids of a job that its scheduler gives to all its nodes. Slurm's come first: it has steps and restarts.
_JOB_IDS = ("PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID")
#: The id of a rendezvous, as torchrun's workers and torchrun itself have it in their environment.
_RENDEZVOUS_IDS = ("TORCHELASTIC_RUN_ID", "PET_RDZV_ID")
#: The number of a node within its job.
_NODE_NUMBERS = ("SLURM_NODEID", "GROUP_RANK", "PET_NODE_RANK", "FLUX_TASK_RANK", "JOB_COMPLETION_INDEX")
_RENDEZVOUS_OPTIONS = ("--rdzv-id", "--rdzv_id")
_NODE_OPTIONS = ("--node-rank", "--node_rank")
#: The id that torchrun takes without --rdzv-id: all its runs have it.
_NO_RENDEZVOUS = "none"
_LONGEST = 100


class Job(Struct, frozen=True, gc=False):
    """Name of a run, and this node's number in it; None where it is unknown."""

    name: str | None = None
    node: int | None = None


def job_of(environ: Mapping[str, str], command: Sequence[str], name: str | None = None) -> Job:
    """The job of a process, by its environment and command line; ``name``: as the user calls the run."""
    scheduled = next((f"job-{environ[key]}" for key in _JOB_IDS if environ.get(key)), None)
    ids = [environ.get(key) for key in _RENDEZVOUS_IDS] + [_option(command, _RENDEZVOUS_OPTIONS)]
    rendezvous = next((f"rdzv-{each}" for each in ids if each and each != _NO_RENDEZVOUS), None)
    found = name or _slurm(environ) or scheduled or rendezvous
    texts = [environ.get(key) for key in _NODE_NUMBERS] + [_option(command, _NODE_OPTIONS)]
    numbers = (int(text) for text in texts if text and text.isascii() and text.isdigit() and len(text) < 8)
    return Job(found[:_LONGEST] if found else None, next(numbers, None))


def _slurm(environ: Mapping[str, str]) -> str | None:
    """``slurm-4711.0``: an allocation may run several steps (srun); ``-r1`` after a requeue, which keeps the id."""
    job = environ.get("SLURM_JOB_ID")
    if not job:
        return None
    step, restarts = environ.get("SLURM_STEP_ID"), environ.get("SLURM_RESTART_COUNT", "0")
    return f"slurm-{job}" + (f".{step}" if step else "") + (f"-r{restarts}" if restarts not in ("", "0") else "")


def _option(command: Sequence[str], names: Sequence[str]) -> str | None:
    """The value of an option on a command line: ``--rdzv-id 7`` or ``--rdzv-id=7``."""
    for at, word in enumerate(command):
        name, equals, value = word.partition("=")
        if name in names:
            return value if equals else next(iter(command[at + 1 : at + 2]), None)
    return None


def open_run(command: Sequence[str], options: Options) -> Monitor:
    """Start ``command`` (resolved) and monitor it. Raises LogError before the start, LaunchError when it fails."""
    job = job_of(os.environ, command, options.run)
    log = log_of(options, job)
    run_id = new_run_id()
    try:
        output = None if options.headless else output_path(run_id)
        launched = Launched(command, run_id, output=output, markers=options.markers, memory=options.memory)
    except LaunchError:
        if log is not None:
            log.discard()
        raise
    table = ProcessTable(launched.pid, run_id)
    header = header_of("run", launched.pid, command, options, job)
    return Monitor(
        sources_of(table, options, output),
        header=header,
        log=log,
        process=launched,
        output=OutputTail(output) if output else None,
        observers=options.observers,
    )


def open_attach(pid: int, options: Options, hooks: Hooks | None = None) -> Monitor:
    """Monitor a running process. Raises TargetError when that cannot be, LogError when the log cannot be written.

    ``hooks``: what may be brought into it on request.
    """
    from tuimon.launch.attached import attach
    from tuimon.proc.processes import environment

    attached = attach(pid)
    job = job_of(environment(pid), attached.command, options.run)
    log = log_of(options, job)
    table = ProcessTable(pid, attached.run_id)
    return Monitor(
        sources_of(table, options, attached.output),
        header=header_of("attach", pid, attached.command, options, job),
        log=log,
        process=attached,
        hooks=hooks,
        output=OutputTail(attached.output) if attached.output else None,
        observers=options.observers,
    )


def open_log(
    path: str, speed: float | None = None, run: str | None = None, observers: Sequence[Observer] = ()
) -> Monitor:
    """Replay a log, or the logs of a run in a folder, and follow while they are written. Raises NotALog, UsageError."""
    from tuimon.sources.log.runs import open_logs

    opened = open_logs(path, run, speed)
    sources: list[Source] = [opened.source]
    if opened.notices:
        sources.append(NoticeSource(opened.notices))
    return Monitor(sources, replay=True, observers=observers)


def log_of(options: Options, job: Job) -> LogWriter | None:
    """The log that the options name, empty. Raises LogError when it cannot be written."""
    if not options.log:
        return None
    from tuimon.sources.log.writer import LogWriter

    return LogWriter(options.log, force=options.force, run=job.name)


def sources_of(table: ProcessTable, options: Options, output: str | None = None) -> Iterator[Source]:
    """The sources of a live run; what is switched off is reported. ``output``: the file that holds what it prints.

    Each is loaded and made when it is taken: the monitor takes them when it begins to read.
    """
    from tuimon.sources.processes.machine import MachineSource
    from tuimon.sources.processes.source import ProcessSource

    yield ProcessSource(table, options.window_s)
    yield MachineSource(table)
    if output is not None:
        from tuimon.sources.log.output import PrintedSource

        yield PrintedSource(output, table.root_pid)
    if options.markers:
        from tuimon.sources.markers.source import MarkerSource
        from tuimon.sources.memory import MemorySource

        yield MarkerSource(table, options.window_s)
        yield MemorySource(table, options.memory)
    if options.stacks:
        from tuimon.sources.stacks.source import StackSource
        from tuimon.sources.standstill import StandstillSource

        yield StackSource(table, options.rate_hz, options.sampling_ratio)
        yield StandstillSource(table)
    if options.native:
        from tuimon.sources.native.source import NativeSource

        yield NativeSource(table)
    if options.gpu:
        from tuimon.sources.gpus.source import gpu_sources

        yield from gpu_sources(table, options.window_s)
    off = [_off(name) for name in _OPTIONAL if not getattr(options, name)]
    if off:
        yield NoticeSource(off)


_Optional = Literal["markers", "stacks", "native", "gpu"]
_OPTIONAL: dict[_Optional, str] = {
    "markers": "markers",
    "stacks": "stack samples",
    "native": "samples below Python",
    "gpu": "GPU counters",
}


def _off(source: _Optional) -> Notice:
    message = f"{_OPTIONAL[source]} are switched off (--no-{source})"
    return Notice(t=time.monotonic(), pid=0, source=source, level="info", message=message)


def header_of(mode: Literal["run", "attach"], pid: int, command: Sequence[str], options: Options, job: Job) -> Header:
    driver = nvidia_driver()
    return Header(
        t=time.monotonic(),
        pid=pid,
        mode=mode,
        command=masked(command),
        host=os.uname().nodename,
        wall_unix_s=time.time(),
        interval_s=options.window_s,
        cpu_count=len(os.sched_getaffinity(0)),  # cores that a container or a scheduler allows, not all there are
        versions={
            "tuimon": version_of("tuimon"),
            "python": platform.python_version(),
            "py-spy": version_of("py-spy"),
            "system": f"{platform.system()} {platform.release()}",
            **({"driver": driver} if driver is not None else {}),
        },
        run=job.name,
        node=job.node,
    )
