"""Figures of a step of a process before it is traced, to stand beside those of the trace."""

from __future__ import annotations

from tuimon.session.session import Session
from tuimon.trace.raw import PhaseBefore, TakenBy


def known_before(session: Session, pid: int) -> TakenBy:
    """Command, rank, length of a step and the phases' times, as far as they are known."""
    process, now = session.process(pid), session.over("recent")
    steps, table = now.steps(pid), now.phases(pid)
    rows = table.rows if table is not None and table.steps else ()
    return TakenBy(
        pid=pid,
        rank=process.rank if process is not None else None,
        command=" ".join(process.command)[:500] if process is not None else "",
        step_ms=steps.median_ms if steps is not None else None,
        before=[
            PhaseBefore(row.name, row.ms_per_step, row.gpu_ms_per_step, row.gpu_idle_ms_per_step or None, row.estimated)
            for row in rows
            if row.name != "eval"
        ],
    )
