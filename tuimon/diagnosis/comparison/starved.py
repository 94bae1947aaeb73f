"""What other programs on the cores, or on the GPU, cost a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tuimon.diagnosis.evidence.demand import Demand, core_demand
from tuimon.diagnosis.finding import Finding
from tuimon.diagnosis.rules.cores import WANTED_RATIO
from tuimon.diagnosis.threshold import Threshold
from tuimon.session.session import Session

OWN_CORES = Threshold(
    0.9,
    "of the machine's cores that the run uses by itself, from which its waits for a core are its own doing",
    "our choice: what is left are the system's own threads and the monitor",
)


class Starved(NamedTuple):
    """What other programs on the cores cost a run."""

    ratio: float = 0.0  # of its time, in which a thread waited for a core that they had; of the thread that waited most
    in_parallel: bool = False  # several threads of a process want to run: where one waits, the others wait for it
    part: float = 1.0  # of all its waits for a core, those that others may have caused


NOT_STARVED = Starved(part=0.0)


def starved_of(run: Session, busy_cores: float | None) -> Starved:
    """What others may have cost a run; ``busy_cores``: those that all programs used, None where it was not measured.

    A core that others use for a second keeps the run from it for a second at most. What its threads wait longer than
    that in total, they wait for one another: of 1 s of waits beside programs that use 0.2 s, 0.2 s are theirs.
    """
    threads = run.live_threads()
    demand = core_demand(threads, run.cpu_count)
    if demand is None:
        return NOT_STARVED
    part = _by_its_threads(demand) if busy_cores is None else _measured(demand, _others(run, busy_cores))
    if not part:
        return NOT_STARVED
    waits = [row.delay_ratio for process in threads for row in process.threads if row.delay_ratio is not None]
    most = min(1.0, max(waits, default=0.0))
    return Starved(part * most, max(demand.busy_threads.values(), default=0) > 1, part)


def _others(run: Session, busy_cores: float) -> float:
    """Cores that neither the run nor tuimon used."""
    own = sum(process.cpu_ratio or 0.0 for process in run.live_threads())
    return max(0.0, busy_cores - own - (run.cost.cpu_ratio if run.cost is not None else 0.0))


def _measured(demand: Demand, others: float) -> float:
    return min(1.0, others / demand.delay) if demand.delay > 0 else 0.0


def _by_its_threads(demand: Demand) -> float:
    """Where nothing tells what others used: all, unless the run itself wants as many cores as there are."""
    crowded = sum(demand.busy_threads.values()) > demand.cores
    wants_all = demand.cpu >= OWN_CORES * demand.cores or demand.wanted >= WANTED_RATIO * demand.cores
    return 0.0 if crowded or wants_all else 1.0


def gpu_taken(run: Session, findings: Sequence[Finding]) -> float:
    """Share (0..1) of a GPU's time that others take at the end, or took for so long that it was found."""
    at_end = (sum(process.sm_ratio or 0.0 for process in gpu.others) for gpu in run.gpus() if gpu.used_by_run)
    found = (finding.evidence.get("others_sm_ratio") for finding in findings)
    return min(1.0, max((*at_end, *(ratio for ratio in found if isinstance(ratio, float))), default=0.0))
