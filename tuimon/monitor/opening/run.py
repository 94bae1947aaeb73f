"""A new run."""

from __future__ import annotations

import os
from collections.abc import Sequence

from tuimon.errors import LaunchError
from tuimon.launch.child import Launched, new_run_id
from tuimon.launch.job import job_of
from tuimon.launch.places import output_path
from tuimon.monitor.monitor import Monitor
from tuimon.monitor.opening.options import Options
from tuimon.monitor.opening.parts import header_of, log_of, sources_of
from tuimon.sources.log.output import OutputTail
from tuimon.sources.process_table import ProcessTable


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
    return Monitor(
        sources_of(table, options, output),
        header=header_of("run", launched.pid, command, options, job),
        log=log,
        process=launched,
        output=OutputTail(output) if output else None,
        observers=options.observers,
    )
