"""Sources, header and log of the monitors of live runs."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal

from tuimon.launch.job import Job
from tuimon.masking import masked
from tuimon.monitor.opening.options import Options
from tuimon.monitor.versions import version_of
from tuimon.records import Header, Notice
from tuimon.sources.base import Source
from tuimon.sources.process_table import ProcessTable

if TYPE_CHECKING:
    from tuimon.sources.log.writer import LogWriter


def log_of(options: Options, job: Job) -> LogWriter | None:
    """The log that the options name, empty. Raises LogError when it cannot be written."""
    if not options.log:
        return None
    from tuimon.sources.log.writer import LogWriter

    return LogWriter(options.log, force=options.force, limit_bytes=options.log_max_bytes, run=job.name)


def sources_of(table: ProcessTable, options: Options, output: str | None = None) -> Iterator[Source]:
    """The sources of a live run; what is switched off is reported. ``output``: the file that holds what it prints.

    Each is loaded and made when it is taken: the monitor takes them when it begins to read.
    """
    from tuimon.sources.processes.machine import MachineSource
    from tuimon.sources.processes.source import ProcessSource

    yield ProcessSource(table, options.window_s)
    yield MachineSource(table)
    if output is not None:
        from tuimon.sources.log.printed import PrintedSource

        yield PrintedSource(output, table.root_pid)
    switched_off: list[Notice] = []
    if options.markers:
        from tuimon.sources.markers.source import MarkerSource
        from tuimon.sources.memory import MemorySource

        yield MarkerSource(table, options.window_s)
        yield MemorySource(table, options.memory)
    else:
        switched_off.append(_off("markers"))
    if options.stacks:
        from tuimon.sources.stacks.source import StackSource
        from tuimon.sources.standstill.source import StandstillSource

        yield StackSource(table, options.rate_hz, options.sampling_ratio)
        yield StandstillSource(table)
    else:
        switched_off.append(_off("stacks"))
    if options.gpu:
        from tuimon.sources.nvml.source import GpuSource

        yield GpuSource(table, options.window_s)
    else:
        switched_off.append(_off("gpu"))
    if switched_off:
        from tuimon.sources.notices import NoticeSource

        yield NoticeSource(switched_off)


_OPTIONAL = {"markers": "markers", "stacks": "stack samples", "gpu": "GPU counters"}


def _off(source: Literal["markers", "stacks", "gpu"]) -> Notice:
    message = f"{_OPTIONAL[source]} are switched off (--no-{source})"
    return Notice(t=time.monotonic(), pid=0, source=source, level="info", message=message)


def header_of(mode: Literal["run", "attach"], pid: int, command: Sequence[str], options: Options, job: Job) -> Header:
    """The log's first record."""
    return Header(
        t=time.monotonic(),
        pid=pid,
        mode=mode,
        command=masked(command),
        host=os.uname().nodename,
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
        price=options.price,
    )


def _cpu_count() -> int:
    try:
        return len(os.sched_getaffinity(0))  # cores that a container or a scheduler allows, not those of the machine
    except (AttributeError, OSError):
        return os.cpu_count() or 1
