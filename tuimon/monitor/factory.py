"""Builds the Monitor of each command: of a new run, of a running process, of a log."""

from __future__ import annotations

import os
import platform
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tuimon.errors import LaunchError
from tuimon.launch.attached import attach
from tuimon.launch.child import Launched, new_run_id
from tuimon.launch.job import Job, job_of
from tuimon.launch.places import output_path
from tuimon.masking import masked
from tuimon.monitor.hooks import Hooks
from tuimon.monitor.monitor import Monitor
from tuimon.monitor.observers import Observer
from tuimon.monitor.versions import version_of
from tuimon.proc.processes import environment
from tuimon.records import Header, Notice
from tuimon.sources.base import Source
from tuimon.sources.log.joined.opening import open_logs
from tuimon.sources.log.output import OutputTail
from tuimon.sources.log.writer import LogWriter
from tuimon.sources.notices import NoticeSource
from tuimon.sources.process_table import ProcessTable


@dataclass(frozen=True, slots=True)
class Options:
    """The options of the command line; None: the default of the mode."""

    headless: bool = False
    log: str | None = None
    force: bool = False  # replace an earlier log
    log_max_bytes: int | None = None  # of all its files
    run: str | None = None  # name that the logs of one run on all its nodes have
    interval_s: float | None = None  # window of the records, and between two refreshes of the view
    rate_hz: float | None = None  # highest rate of stack samples
    max_cpu_ratio: float | None = None  # of one core, for sampling stacks
    stacks: bool = True
    gpu: bool = True
    markers: bool = True
    memory: bool = False  # watch for errors for want of memory, and record the allocator's history once
    observers: tuple[Observer, ...] = ()  # views beside the screen or the lines

    @property
    def window_s(self) -> float:
        """Length of one record's window."""
        return self.interval_s or 1.0

    @property
    def refresh_s(self) -> float:
        """Time between two refreshes of the view: a line headless, a frame in the TUI."""
        return self.interval_s or (1.0 if self.headless else 0.5)

    @property
    def sampling_ratio(self) -> float:
        """CPU that stack sampling may use, 1.0 = one core: of the 5 % of a core (headless 2 %) that tuimon may use."""
        return self.max_cpu_ratio or (0.02 if self.headless else 0.03)


def open_run(command: Sequence[str], options: Options) -> Monitor:
    """Start ``command`` (resolved) and monitor it. Raises LogError before the start, LaunchError when it fails."""
    job = job_of(os.environ, command, options.run)
    log = _log(options, job)
    run_id = new_run_id()
    try:
        output = None if options.headless else output_path(run_id)
        launched = Launched(command, run_id, output=output, markers=options.markers, memory=options.memory)
    except LaunchError:
        if log is not None:
            log.discard()
        raise
    table = ProcessTable(launched.pid, run_id)
    return Monitor(
        _sources(table, options),
        header=_header("run", launched.pid, command, options, job),
        log=log,
        process=launched,
        output=OutputTail(output) if output else None,
        observers=options.observers,
    )


def open_attach(pid: int, options: Options, hooks: Hooks | None = None) -> Monitor:
    """Monitor a running process. Raises TargetError when that cannot be, LogError when the log cannot be written.

    ``hooks``: what may be brought into it on request.
    """
    attached = attach(pid)
    job = job_of(environment(pid), attached.command, options.run)
    log = _log(options, job)
    table = ProcessTable(pid, attached.run_id)
    return Monitor(
        _sources(table, options),
        header=_header("attach", pid, attached.command, options, job),
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
    opened = open_logs(path, run, speed)
    sources: list[Source] = [opened.source]
    if opened.notice:
        sources.append(NoticeSource([opened.notice]))
    return Monitor(sources, replay=True, observers=observers)


def _log(options: Options, job: Job) -> LogWriter | None:
    if not options.log:
        return None
    return LogWriter(options.log, force=options.force, limit_bytes=options.log_max_bytes, run=job.name)


def _sources(table: ProcessTable, options: Options) -> list[Source]:
    from tuimon.sources.processes.machine import MachineSource  # noqa: PLC0415  (a replay needs none of these)
    from tuimon.sources.processes.source import ProcessSource  # noqa: PLC0415

    sources: list[Source] = [ProcessSource(table, options.window_s), MachineSource(table)]
    switched_off: list[Notice] = []
    if options.markers:
        from tuimon.sources.markers.source import MarkerSource  # noqa: PLC0415
        from tuimon.sources.memory.source import MemorySource  # noqa: PLC0415

        sources.append(MarkerSource(table, options.window_s))
        sources.append(MemorySource(table, options.memory))
    else:
        switched_off.append(_off("markers"))
    if options.stacks:
        from tuimon.sources.stacks.source import StackSource  # noqa: PLC0415
        from tuimon.sources.standstill.source import StandstillSource  # noqa: PLC0415

        sources.append(StackSource(table, options.rate_hz, options.sampling_ratio))
        sources.append(StandstillSource(table))
    else:
        switched_off.append(_off("stacks"))
    if options.gpu:
        from tuimon.sources.nvml.source import GpuSource  # noqa: PLC0415

        sources.append(GpuSource(table, options.window_s))
    else:
        switched_off.append(_off("gpu"))
    return [*sources, NoticeSource(switched_off)] if switched_off else sources


def _off(source: Literal["markers", "stacks", "gpu"]) -> Notice:
    return Notice(t=time.monotonic(), pid=0, source=source, level="info", message=f"switched off (--no-{source})")


def _header(mode: Literal["run", "attach"], pid: int, command: Sequence[str], options: Options, job: Job) -> Header:
    return Header(
        t=time.monotonic(),
        pid=pid,
        mode=mode,
        command=masked(command),
        host=socket.gethostname(),
        wall_unix_s=time.time(),
        interval_s=options.window_s,
        cpu_count=_cpu_count(),
        versions={
            "tuimon": version_of("tuimon"),
            "python": platform.python_version(),
            "py-spy": version_of("py-spy"),
            "system": f"{platform.system()} {platform.release()}",
        },
        run=job.name,
        node=job.node,
    )


def _cpu_count() -> int:
    try:
        return len(os.sched_getaffinity(0))  # what a container or a scheduler allows, not what the machine has
    except (AttributeError, OSError):
        return os.cpu_count() or 1
