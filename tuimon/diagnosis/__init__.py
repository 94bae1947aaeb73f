"""Rules that judge a Session: one file per family, each rule a function from Session and process to Finding or None."""

from __future__ import annotations

from collections.abc import Callable

from tuimon.diagnosis.finding import Finding
from tuimon.diagnosis.rank import folded, ranked
from tuimon.diagnosis.rules.comm import comm_bound
from tuimon.diagnosis.rules.cores import cpu_oversubscribed, neighbour
from tuimon.diagnosis.rules.course import hang, step_time_drift
from tuimon.diagnosis.rules.gil import gil_contention
from tuimon.diagnosis.rules.gpu_copy import transfer_bound
from tuimon.diagnosis.rules.gpu_pace import compute_bound, launch_bound, queue_full
from tuimon.diagnosis.rules.gpu_state import allocator_retries, low_precision_unused, small_batch, throttled
from tuimon.diagnosis.rules.gpu_sync import spin_wait, sync_point
from tuimon.diagnosis.rules.host import compute_bound_cpu, optimizer_bound, side_work
from tuimon.diagnosis.rules.input import input_bound
from tuimon.diagnosis.rules.memory import gc_pauses, memory_pressure
from tuimon.diagnosis.rules.ranks import straggler_rank
from tuimon.diagnosis.rules.start import warmup
from tuimon.diagnosis.unjudged import Unjudged, unjudged
from tuimon.session.session import Session

__all__ = ["RULES", "Rule", "Unjudged", "diagnose", "unjudged"]

Rule = Callable[[Session, int], Finding | None]

RULES: tuple[Rule, ...] = (
    hang,
    input_bound,
    launch_bound,
    sync_point,
    transfer_bound,
    side_work,
    optimizer_bound,
    straggler_rank,
    comm_bound,
    gil_contention,
    cpu_oversubscribed,
    neighbour,
    step_time_drift,
    memory_pressure,
    gc_pauses,
    allocator_retries,
    throttled,
    low_precision_unused,
    small_batch,
    compute_bound,
    queue_full,
    spin_wait,
    compute_bound_cpu,
)


def diagnose(session: Session) -> list[Finding]:
    """What the rules find in the process in focus, most important first; during warm-up nothing else is judged."""
    pid = session.trainer()
    if pid is None:
        return []
    beginning = warmup(session, pid)
    if beginning is not None:
        return [beginning]
    return ranked(folded([finding for rule in RULES if (finding := rule(session, pid)) is not None]))
