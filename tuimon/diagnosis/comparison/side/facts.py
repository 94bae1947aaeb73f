"""What a run ran on and with: what must be alike for a comparison to mean something."""

from __future__ import annotations

import msgspec

from tuimon.records import LoaderFacts
from tuimon.session.session import Session


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


def facts_of(session: Session) -> RunFacts:
    """The facts of a run, of several ranks those of the one in focus."""
    header, pid = session.header, session.trainer()
    process = session.process(pid) if pid is not None else None
    loader = _loader(session, pid)
    return RunFacts(
        command=list(header.command) if header is not None else [],
        host=header.host or None if header is not None else None,
        nodes=max(1, len(session.nodes.known)),
        cpu_count=session.cpu_count,
        gpus=sorted(row.latest.name for row in session.gpus() if row.used_by_run),
        ranks=max(1, process.world_size or 1) if process is not None else 1,
        batch_size=loader.batch_size if loader is not None else None,
        workers=loader.workers if loader is not None else None,
        torch=process.torch if process is not None else None,
        python=process.python if process is not None else None,
        tuimon=header.versions.get("tuimon") if header is not None else None,
        dtypes=list(process.parameter_dtypes) if process is not None else [],
        tf32=process.tf32 if process is not None else None,
    )


def _loader(session: Session, pid: int | None) -> LoaderFacts | None:
    """The DataLoader for training."""
    rows = session.loader_figures(pid) if pid is not None else ()
    return next((row.facts for row in rows if row.latest.role != "eval"), None)
