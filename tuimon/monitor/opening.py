"""Opens the Monitor for each command: a new run, a running process, or a log; each loads only what it needs.

A run is named after its scheduler's or launcher's job, or by the user: the same name on all its nodes.
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

#: Variables with the id that a scheduler gives to a job on all nodes. Slurm comes first, as it has steps and restarts.
_JOB_IDS = ("PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID")
#: Variables with the id of a rendezvous, in torchrun's workers and for torchrun itself.
_RENDEZVOUS_IDS = ("TORCHELASTIC_RUN_ID", "PET_RDZV_ID")
#: Variables with the number of a node within its job.
_NODE_NUMBERS = ("SLURM_NODEID", "GROUP_RANK", "PET_NODE_RANK", "FLUX_TASK_RANK", "JOB_COMPLETION_INDEX")
_RENDEZVOUS_OPTIONS = ("--rdzv-id", "--rdzv_id")
_NODE_OPTIONS = ("--node-rank", "--node_rank")
#: The id that torchrun uses without --rdzv-id, the same for all runs.
_NO_RENDEZVOUS = "none"


class Job(Struct, frozen=True, gc=False):
    """The name of a run, and this node's number in it; None if unknown."""

    name: str | None = None
    node: int | None = None


def job_of(environ: Mapping[str, str], command: Sequence[str], name: str | None = None) -> Job:
    """The job of a process, from its environment and command line; ``name``: the run's name from the user, if any."""
    scheduled = next((f"job-{environ[key]}" for key in _JOB_IDS if environ.get(key)), None)
    ids = [environ.get(key) for key in _RENDEZVOUS_IDS] + [_option(command, _RENDEZVOUS_OPTIONS)]
    rendezvous = next((f"rdzv-{each}" for each in ids if each and each != _NO_RENDEZVOUS), None)
    slurm = None
    if allocation := environ.get("SLURM_JOB_ID"):  # which may run several steps (srun), and be requeued
        step, restarts = environ.get("SLURM_STEP_ID"), environ.get("SLURM_RESTART_COUNT", "0")
        requeued = f"-r{restarts}" if restarts not in ("", "0") else ""
        slurm = f"slurm-{allocation}{f'.{step}' if step else ''}{requeued}"
    found = name or slurm or scheduled or rendezvous
    texts = [environ.get(key) for key in _NODE_NUMBERS] + [_option(command, _NODE_OPTIONS)]
    numbers = (int(text) for text in texts if text and text.isascii() and text.isdigit() and len(text) < 8)
    return Job(found[:100] if found else None, next(numbers, None))


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
    log = log_writer_of(options, job)
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
        table=table,
        output=OutputTail(output) if output else None,
        observers=options.observers,
    )


def open_attach(pid: int, options: Options, hooks: Hooks | None = None) -> Monitor:
    """Monitor a running process. Raises TargetError if that is impossible, LogError if the log cannot be written.

    ``hooks``: hooks that may be brought into the process on request.
    """
    from tuimon.launch.attached import attach
    from tuimon.proc.processes import environment_of

    attached = attach(pid)
    job = job_of(environment_of(pid), attached.command, options.run)
    log = log_writer_of(options, job)
    table = ProcessTable(pid, attached.run_id)
    return Monitor(
        sources_of(table, options, attached.output),
        header=header_of("attach", pid, attached.command, options, job),
        log=log,
        process=attached,
        table=table,
        hooks=hooks,
        output=OutputTail(attached.output) if attached.output else None,
        observers=options.observers,
    )


def open_log(
    path: str, speed: float | None = None, run: str | None = None, observers: Sequence[Observer] = ()
) -> Monitor:
    """Replay a log, or all logs of a run in a folder, following them while written. Raises NotALog, UsageError."""
    from tuimon.sources.log.runs import choose
    from tuimon.sources.log.source import LogSource, PlayPace

    pace = PlayPace(speed) if speed is not None else None
    return Monitor([LogSource(choose(path, run), pace, follow=True)], replay=True, observers=observers)


def log_writer_of(options: Options, job: Job) -> LogWriter | None:
    """The new, empty log that the options name; None if there is none. Raises LogError if it cannot be written."""
    if not options.log:
        return None
    from tuimon.sources.log.writer import LogWriter

    return LogWriter(options.log, force=options.force, run=job.name)


def sources_of(table: ProcessTable, options: Options, output: str | None = None) -> Iterator[Source]:
    """The sources of a live run, and notices for those switched off. ``output``: the file with the run's output.

    Each is loaded and made only when it is taken, which is when the monitor begins to read.
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
        from tuimon.sources.step_counts import CountSource

        yield MarkerSource(table, options.window_s)
        yield MemorySource(table, options.memory)
        yield CountSource(table)
    if options.stacks:
        from tuimon.sources.stacks.source import StackSource
        from tuimon.sources.standstill import StandstillSource

        yield StackSource(table, options.rate_hz, options.sampling_ratio)
        yield StandstillSource(table)
    if options.native:
        from tuimon.sources.native import NativeSource

        yield NativeSource(table)
    if options.gpu:
        from tuimon.sources.gpus.source import gpu_sources

        yield from gpu_sources(table, options.window_s)
    texts = {name: f"{what} are switched off (--no-{name})" for name, what in _OPTIONAL.items()}
    off = {name: text for name, text in texts.items() if not getattr(options, name)}
    if off:
        now_s = time.monotonic()
        yield NoticeSource([Notice(t=now_s, pid=0, source=name, level="info", message=off[name]) for name in off])


_OPTIONAL = {"markers": "markers", "stacks": "stack samples", "native": "samples below Python", "gpu": "GPU counters"}


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
