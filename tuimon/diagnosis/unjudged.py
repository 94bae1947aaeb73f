"""Which rules had nothing to judge by, and why."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tuimon.diagnosis.evidence.common import uses_gpu
from tuimon.diagnosis.evidence.gpu import MIN_TURNS, gpus_of
from tuimon.diagnosis.evidence.gpu_waits import waits_of
from tuimon.diagnosis.rules.cores import demand_of
from tuimon.diagnosis.rules.course import SPAN_WINDOWS, WARMUP_WINDOWS
from tuimon.session.session import Session

_STEPS = ("input_bound", "side_work", "optimizer_bound", "compute_bound_cpu")
_EVENTS = ("launch_bound", "sync_point", "transfer_bound", "queue_full", "spin_wait", "compute_bound")
_SAMPLED = ("sync_point", "transfer_bound", "queue_full")


class Unjudged(NamedTuple):
    """A rule, or a part of it, that abstains for want of evidence."""

    rule: str
    reason: str


def unjudged(session: Session) -> list[Unjudged]:
    """For the process in focus."""
    pid = session.trainer()
    return list(_missing(session, pid)) if pid is not None else [Unjudged("all", "no training process was seen")]


def _missing(session: Session, pid: int) -> Iterator[Unjudged]:
    table = session.phases(pid)
    if table is None:
        yield from (Unjudged(rule, _why_no_steps(session, pid)) for rule in _STEPS)
    elif table.inferred:
        yield Unjudged("step_time_drift", "no markers: shares are inferred from stacks, step times are not known")
        yield Unjudged("hang", "no markers: the beginning and end of a step are not known")
    elif len(session.step_history(pid)) < WARMUP_WINDOWS + 3 * SPAN_WINDOWS // 2:
        yield Unjudged("step_time_drift", "the run is too short to compare its end with its beginning")
    hotspots = session.hotspots(pid)
    if hotspots is None or not hotspots.samples:
        notice = session.notices.get("stacks")
        yield Unjudged("places", f"no stack samples: {notice.message}" if notice else "no stack samples")
    if demand_of(session) is None and any(not process.ended for process in session.processes()):
        reason = "the kernel does not tell how long threads wait for a core (schedstat)"
        yield from (Unjudged(rule, reason) for rule in ("cpu_oversubscribed", "neighbour"))
    if uses_gpu(session, pid) is not False:
        yield from _missing_of_gpu(session, pid)
    yield from _missing_of_memory(session, pid)


def _missing_of_gpu(session: Session, pid: int) -> Iterator[Unjudged]:
    time = session.gpu_time(pid)
    if time is None or time.steps < MIN_TURNS:
        yield from (Unjudged(rule, _why_no_events(session, pid)) for rule in _EVENTS)
    elif waits_of(session, pid) is None:
        yield from (Unjudged(rule, "too few stack samples to tell what the CPU waits at") for rule in _SAMPLED)
    gpus = gpus_of(session, pid)
    if not gpus:
        notice = session.notices.get("gpu")
        reason = notice.message if notice else "no figures of the GPU"
        yield from (Unjudged(rule, reason) for rule in ("throttled", "small_batch", "low_precision_unused"))
        return
    if all(gpu.latest.tensor_ratio is None for gpu in gpus):
        yield Unjudged(
            "low_precision_unused", "this GPU does not tell what its tensor cores do (GPM: Hopper and later)"
        )
    if all(gpu.latest.util_ratio is None or gpu.latest.memory_used_bytes is None for gpu in gpus):
        yield Unjudged("small_batch", "this GPU does not tell its utilisation and memory")
    if all(memory.retries is None for memory in session.torch_memory(pid)):
        yield Unjudged("allocator_retries", "torch's allocator has not told its counters, or not for long enough")


def _missing_of_memory(session: Session, pid: int) -> Iterator[Unjudged]:
    stats = session.step_stats(pid)
    if stats is None or stats.recent().gc_ns is None:
        yield Unjudged("gc_pauses", "without markers the garbage collector's pauses are not told")
    if session.machine.latest is None:
        yield Unjudged("memory_pressure", "the machine's memory is not recorded")


def _why_no_events(session: Session, pid: int) -> str:
    process = session.process(pid)
    if process is not None and not process.markers:
        return "no GPU events: attached without markers"
    if session.phases(pid) is None:
        return "no GPU events: no step has ended yet"
    return "no GPU events yet, or none that could be timed (captured graphs, other streams, another accelerator)"


def _why_no_steps(session: Session, pid: int) -> str:
    process = session.process(pid)
    if process is not None and not process.markers:
        return f"no markers: {process.markers_reason or 'attached without them'}; and no samples of a training loop"
    return "no step has ended yet"
