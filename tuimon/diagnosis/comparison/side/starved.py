"""What other programs on the cores, or on the GPU, cost a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tuimon.diagnosis.evidence.core_waits import waits_from_outside
from tuimon.diagnosis.evidence.demand import Demand, core_demand
from tuimon.diagnosis.finding import Finding
from tuimon.session.processes.core_use import CoresTaken
from tuimon.session.session import Session


class Starved(NamedTuple):
    """What other programs on the cores cost a run."""

    ratio: float = 0.0  # of its time, in which a thread waited for a core that they had; of the thread that waited most
    in_parallel: bool = False  # several threads of a process want to run: where one waits, the others wait for it
    part: float = 1.0  # of all its waits for a core, those that others may have caused


NOT_STARVED = Starved(part=0.0)


def starved_of(run: Session) -> Starved:
    """What others may have cost a run, on the node in focus."""
    threads = run.live_threads()
    waits = (row.delay_ratio for process in threads for row in process.threads if row.delay_ratio is not None)
    return _starved(core_demand(threads, run.cpu_count), max(waits, default=0.0), run.cores_taken())


def lately_starved(session: Session, since_s: float) -> Starved:
    """The same over the last 30 s, or less since a moment; how many threads want to run is that of the moment."""
    demand, waits = core_demand(session.live_threads(), session.cpu_count), session.waits_since(since_s)
    if demand is None or waits is None:
        return NOT_STARVED
    demand = demand._replace(cpu=waits.cpu, delay=waits.delay)
    return _starved(demand, waits.longest, session.cores_taken_since(since_s))


def _starved(demand: Demand | None, longest: float, taken: CoresTaken | None) -> Starved:
    """``longest``: the share (0..1) of the time that the thread which waited most has waited."""
    part = waits_from_outside(demand, taken).part
    if demand is None or not part:
        return NOT_STARVED
    return Starved(part * min(1.0, longest), max(demand.busy_threads.values(), default=0) > 1, part)


def gpu_taken(run: Session, findings: Sequence[Finding]) -> float:
    """Share (0..1) of a GPU's time that others take at the end, or took for so long that it was found."""
    at_end = (sum(process.sm_ratio or 0.0 for process in gpu.others) for gpu in run.gpus() if gpu.used_by_run)
    found = (finding.evidence.get("others_sm_ratio") for finding in findings)
    return min(1.0, max((*at_end, *(ratio for ratio in found if isinstance(ratio, float))), default=0.0))
