"""The facts of a run: what it ran on, and with which settings."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from msgspec import Struct, field

from tuimon.session.session import Session

if TYPE_CHECKING:
    from tuimon.diagnosis.evidence.evidence import Evidence


class RunFacts(Struct, frozen=True, kw_only=True):
    """Facts of one run (of several ranks, those of the one in focus); None if unknown."""

    command: list[str] = field(default_factory=list)
    host: str | None = None
    nodes: int = 1
    cpu_count: int | None = None
    gpus: list[str] = field(default_factory=list)  # names of the GPUs that the run uses on the node in focus
    ranks: int = 1
    batch_size: int | None = None  # of one rank's DataLoader
    workers: int | None = None
    driver: str | None = None  # of NVIDIA's GPUs
    cuda: str | None = None  # version that torch was built for
    torch: str | None = None
    python: str | None = None
    tuimon: str | None = None
    dtypes: list[str] = field(default_factory=list)  # of the parameters
    tf32: bool | None = None
    checkpoints_to: str | None = None  # type of their file system: "nfs4"

    @property
    def gpu_names(self) -> str | None:
        """``2 × H100``: the GPUs' names with the number of each; None without GPUs."""
        counts = Counter(self.gpus)
        return ", ".join(f"{number} × {name}" if number > 1 else name for name, number in counts.items()) or None


def facts_of(session: Session, evidence: Evidence | None) -> RunFacts:
    """The known facts of a run; ``evidence``: on the whole run, None without a training process."""
    header = session.header
    process = evidence.process if evidence is not None else None
    saved = evidence.view.session.checkpoints(evidence.pid) if evidence is not None else None
    loader = evidence.data.loader.facts if evidence is not None and evidence.data.loader is not None else None
    versions = header.versions if header is not None else {}
    torch = process.torch if process is not None else None
    cuda = re.search(r"\+cu(\d+)(\d)", torch or "")  # of "2.11.0+cu130": 13.0
    return RunFacts(
        command=list(header.command) if header is not None else [],
        host=header.host or None if header is not None else None,
        nodes=max(1, len(session.nodes.known)),
        cpu_count=session.nodes.all_cores.get(session.focus_node),
        gpus=sorted(row.latest.name for row in evidence.view.gpus() if row.used_by_run) if evidence is not None else [],
        ranks=evidence.world_size if evidence is not None else 1,
        batch_size=loader.batch_size if loader is not None else None,
        workers=loader.workers if loader is not None else None,
        driver=versions.get("driver"),
        cuda=f"{cuda[1]}.{cuda[2]}" if cuda is not None else None,
        torch=torch,
        python=process.python if process is not None else None,
        tuimon=versions.get("tuimon"),
        dtypes=list(process.parameter_dtypes) if process is not None else [],
        tf32=process.tf32 if process is not None else None,
        checkpoints_to=(saved.file_system or None) if saved is not None else None,
    )
