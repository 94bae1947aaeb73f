"""What a comparison needs of one run, taken from its session: small enough to hold dozens of runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct

from tuimon.diagnosis.comparison.side.facts import RunFacts, facts_of
from tuimon.diagnosis.comparison.side.starved import NOT_STARVED, Starved, gpu_taken, lately_starved, starved_of
from tuimon.diagnosis.evidence.devices import utilisation
from tuimon.diagnosis.finding import Finding
from tuimon.node_ids import own_id
from tuimon.session.course import StepStretch
from tuimon.session.rows import HotLine
from tuimon.session.samples.hot_lines import by_line
from tuimon.session.session import Session
from tuimon.session.steps.split_shares import SplitShares
from tuimon.session.whole_run import WholeRun
from tuimon.session.windows import mean_of_known


class ProcessIdentity(NamedTuple):
    """What no two processes share."""

    host: str | None
    pid: int
    start_unix_s: float


class RunFigures(Struct, frozen=True):
    """One run: its facts, its steps over time, and what was found in it."""

    name: str
    facts: RunFacts
    process: ProcessIdentity | None = None  # in focus
    stretches: tuple[StepStretch, ...] = ()  # of the process in focus
    split: SplitShares | None = None  # how samples divide what markers cannot
    lines: tuple[HotLine, ...] = ()  # of the training thread
    findings: tuple[Finding, ...] = ()  # of the whole run, the first is its verdict
    rss_bytes: int | None = None  # of the training process and its workers, at the end
    gpu_bytes: int | None = None  # most memory in use, of all GPUs of the run on the node in focus
    starved: Starved = NOT_STARVED
    gpu_percent: float | None = None  # share of the steps in which a kernel ran, on its GPUs on the node in focus
    gpu_taken: float = (
        0.0  # share (0..1) of the time of a GPU of the run that other programs took, of the one most taken
    )


def figures_of(session: Session, findings: Sequence[Finding], name: str) -> RunFigures:
    """The figures of a run that has been folded to its end."""
    run, pid = WholeRun(session), session.trainer()
    stats = session.step_stats(pid) if pid is not None else None
    if pid is None or stats is None:
        return RunFigures(name, facts_of(run), findings=tuple(findings))
    samples = run.process_samples(pid)
    return RunFigures(
        name,
        facts_of(run),
        _identity(session, pid),
        tuple(stats.course.stretches()),
        samples.between_shares() if samples is not None else None,
        tuple(by_line(samples.hot_lines())) if samples is not None else (),
        tuple(findings),
        _resident_bytes(run, pid),
        _gpu_bytes(run),
        starved_of(run),
        _gpu_percent(run),
        gpu_taken(run, findings),
    )


def recent_figures(session: Session, findings: Sequence[Finding], since_s: float = -math.inf) -> RunFigures | None:
    """What the last 30 s, or less since a moment, show of the process in focus; None before a step has ended."""
    pid = session.trainer()
    stats = session.step_stats(pid) if pid is not None else None
    stretches = stats.recent_stretches(since_s) if stats is not None else []
    if pid is None or not stretches:
        return None
    samples = session.process_samples(pid)
    return RunFigures(
        f"pid {own_id(pid)}",
        facts_of(session),
        _identity(session, pid),
        tuple(stretches),
        split=samples.between_shares() if samples is not None else None,
        findings=tuple(findings),
        starved=lately_starved(session, since_s),
        gpu_taken=gpu_taken(session, findings),
    )


def _identity(session: Session, pid: int) -> ProcessIdentity | None:
    process = session.process(pid)
    if process is None:
        return None
    return ProcessIdentity(session.header.host if session.header is not None else None, pid, process.start_unix_s)


def _resident_bytes(run: WholeRun, pid: int) -> int | None:
    pids = [pid, *(worker.pid for worker in run.workers(pid))]
    known = [threads.rss_bytes for each in pids if (threads := run.process_threads(each)) is not None]
    sizes = [size for size in known if size is not None]
    return sum(sizes) if sizes else None


def _gpu_percent(run: WholeRun) -> float | None:
    ratio = mean_of_known(utilisation(row) for row in run.gpus() if row.used_by_run)
    return 100 * ratio if ratio is not None else None


def _gpu_bytes(run: WholeRun) -> int | None:
    most = [
        max((size for size in row.memory_history if size is not None), default=None)
        for row in run.gpus()
        if row.used_by_run
    ]
    known = [size for size in most if size is not None]
    return round(sum(known)) if known else None
