"""One run's figures for a comparison, taken from its session: small enough to hold dozens of runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from msgspec import Struct

from tuimon.diagnosis.evidence.cores import Demand, core_demand, waits_from_outside
from tuimon.diagnosis.evidence.devices import utilisation
from tuimon.diagnosis.finding import Finding
from tuimon.records import LoaderFacts
from tuimon.session.beside_steps import Checkpoints
from tuimon.session.machines import CoresTaken
from tuimon.session.phase_table import SplitShares
from tuimon.session.rows import HotLine
from tuimon.session.series import mean_of_known
from tuimon.session.session import Session, SessionView
from tuimon.session.step_sums import StepStretch


class RunFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts of one run; None where unknown."""

    command: list[str] = msgspec.field(default_factory=list)
    host: str | None = None
    nodes: int = 1
    cpu_count: int | None = None
    gpus: list[str] = msgspec.field(default_factory=list)  # names of those that the run uses, on the node in focus
    ranks: int = 1
    batch_size: int | None = None  # of one rank's DataLoader
    workers: int | None = None
    torch: str | None = None
    python: str | None = None
    tuimon: str | None = None
    dtypes: list[str] = msgspec.field(default_factory=list)  # of the parameters
    tf32: bool | None = None
    checkpoints_to: str | None = None  # type of file system: "nfs4"


class Starved(NamedTuple):
    """How much other programs on the cores held a run up."""

    ratio: float = 0.0  # of its time, in which a thread waited for a core that they had; of the thread that waited most
    in_parallel: bool = False  # several threads of a process want to run: where one waits, the others wait for it


NOT_STARVED = Starved()


class RunFigures(Struct, frozen=True):
    """One run: its facts, its steps over time, and what was found in it."""

    name: str
    facts: RunFacts
    stretches: tuple[StepStretch, ...] = ()  # of the process in focus
    split: SplitShares | None = None  # how samples divide what markers cannot
    lines: tuple[HotLine, ...] = ()  # of the training thread
    findings: tuple[Finding, ...] = ()  # of the whole run, the first is its verdict
    rss_bytes: int | None = None  # of the training process and its workers, at the end
    gpu_bytes: int | None = None  # most memory in use, of all GPUs of the run on the node in focus
    starved: Starved = NOT_STARVED
    gpu_percent: float | None = None  # share of the steps in which a kernel ran, on its GPUs on the node in focus
    checkpoints: Checkpoints | None = None  # of the process in focus
    gpu_taken: float = 0.0  # share (0..1) of the time that other programs took of a GPU of the run, the most taken one


def figures_of(session: Session, findings: Sequence[Finding], name: str) -> RunFigures:
    """The figures of a run that has been folded to its end."""
    run, pid = session.over("whole"), session.trainer()
    stats = session.step_stats.get(pid) if pid is not None else None
    if pid is None or stats is None:
        return RunFigures(name, facts_of(run), findings=tuple(findings))
    samples = run.samples(pid)
    return RunFigures(
        name,
        facts_of(run),
        tuple(stats.stretches()),
        samples.split,
        tuple(samples.without_imports.lines()),
        tuple(findings),
        _resident_bytes(run, pid),
        _gpu_bytes(run),
        starved_of(run),
        _gpu_percent(run),
        session.checkpoints(pid),
        gpu_taken(run, findings),
    )


def _resident_bytes(run: SessionView, pid: int) -> int | None:
    pids = [pid, *(worker.pid for worker in run.workers(pid))]
    known = [threads.rss_bytes for each in pids if (threads := run.process_threads(each)) is not None]
    sizes = [size for size in known if size is not None]
    return sum(sizes) if sizes else None


def _gpu_percent(run: SessionView) -> float | None:
    ratio = mean_of_known(utilisation(row) for row in run.gpus() if row.used_by_run)
    return 100 * ratio if ratio is not None else None


def _gpu_bytes(run: SessionView) -> int | None:
    most = [
        max((size for size in row.history("memory_used_bytes") if size is not None), default=None)
        for row in run.gpus()
        if row.used_by_run
    ]
    known = [size for size in most if size is not None]
    return round(sum(known)) if known else None


def facts_of(run: SessionView) -> RunFacts:
    """The facts of a run, of several ranks those of the one in focus."""
    session, pid = run.session, run.session.trainer()
    header, process = session.header, session.process(pid) if pid is not None else None
    loader, saved = _loader(run, pid), session.checkpoints(pid) if pid is not None else None
    return RunFacts(
        command=list(header.command) if header is not None else [],
        host=header.host or None if header is not None else None,
        nodes=max(1, len(session.nodes.known)),
        cpu_count=session.nodes.all_cores.get(session.focus_node),
        gpus=sorted(row.latest.name for row in run.gpus() if row.used_by_run),
        ranks=max(1, process.world_size or 1) if process is not None else 1,
        batch_size=loader.batch_size if loader is not None else None,
        workers=loader.workers if loader is not None else None,
        torch=process.torch if process is not None else None,
        python=process.python if process is not None else None,
        tuimon=header.versions.get("tuimon") if header is not None else None,
        dtypes=list(process.parameter_dtypes) if process is not None else [],
        tf32=process.tf32 if process is not None else None,
        checkpoints_to=(saved.file_system or None) if saved is not None else None,
    )


def _loader(run: SessionView, pid: int | None) -> LoaderFacts | None:
    """The DataLoader for training."""
    rows = run.loaders(pid) if pid is not None else ()
    return next((row.facts for row in rows if row.latest.role != "eval"), None)


# -- other programs


def starved_of(run: SessionView) -> Starved:
    """The time that other programs may have cost a run, on the node in focus."""
    threads = run.live_threads()
    waits = (row.delay_ratio for process in threads for row in process.threads if row.delay_ratio is not None)
    return _starved(core_demand(threads, run.session.cpu_count), max(waits, default=0.0), run.cores_taken())


def _starved(demand: Demand | None, longest: float, taken: CoresTaken | None) -> Starved:
    """``longest``: the share (0..1) of the time that the thread which waited most has waited."""
    part = waits_from_outside(demand, taken).part
    if demand is None or not part:
        return NOT_STARVED
    return Starved(part * min(1.0, longest), max(demand.busy_threads.values(), default=0) > 1)


def gpu_taken(run: SessionView, findings: Sequence[Finding]) -> float:
    """Share (0..1) of a GPU's time that others take at the end, or took for so long that it was found."""
    at_end = (sum(process.sm_ratio or 0.0 for process in gpu.others) for gpu in run.gpus() if gpu.used_by_run)
    found = (finding.evidence.get("others_sm_ratio") for finding in findings)
    return min(1.0, max((*at_end, *(ratio for ratio in found if isinstance(ratio, float))), default=0.0))
