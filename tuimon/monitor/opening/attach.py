"""A process that runs already."""

from __future__ import annotations

from tuimon.launch.attached import attach
from tuimon.launch.job import job_of
from tuimon.monitor.hooks import Hooks
from tuimon.monitor.monitor import Monitor
from tuimon.monitor.opening.options import Options
from tuimon.monitor.opening.parts import header_of, log_of, sources_of
from tuimon.proc.processes import environment
from tuimon.sources.log.output import OutputTail
from tuimon.sources.process_table import ProcessTable


def open_attach(pid: int, options: Options, hooks: Hooks | None = None) -> Monitor:
    """Monitor a running process. Raises TargetError when that cannot be, LogError when the log cannot be written.

    ``hooks``: what may be brought into it on request.
    """
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
