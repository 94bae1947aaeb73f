"""One rank of a training, as views and rules read it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from tuimon.records import Place
from tuimon.session.ranks.stats import RankWindow

RankState = Literal["starting", "training", "stopped", "silent", "lost", "ended"]


class RankRow(NamedTuple):
    """One rank over the last 30 s; None where not measured. ``~``: estimates."""

    rank: int
    pid: int
    host: str | None
    state: RankState
    restarts: int
    steps: int  # since it began
    behind: int  # steps behind the first
    step_ms: float | None = None
    phases: tuple[tuple[str, float], ...] = ()  # name, share of the step
    wait_ms: float | None = None  # ~ in collectives, of a step
    waits: tuple[tuple[str, float], ...] = ()  # ~ phase, share of the step that it waits there
    late_ms: float | None = None  # ~ by how much its own work is longer than the others'
    excess: tuple[tuple[str, float], ...] = ()  # ~ that by phase, in ms
    gpu_ratio: float | None = None  # utilisation of its GPUs over the steps in focus; only ``with_utilisation``
    memory_bytes: int | None = None  # on its GPU; without one, resident
    place: Place | None = None  # the innermost user line of its latest samples
    gc_ms: float = 0.0  # of a step, in the garbage collector
    stopped_ratio: float = 0.0  # share of time that its process was stopped
    cpu_ratio: float | None = None  # of its main thread
    delay_ratio: float | None = None  # share of time that its main thread waited for a core
    open_phase: str | None = None
    on_gpu: bool = False
    history: Sequence[RankWindow] = ()

    @property
    def wait_ratio(self) -> float | None:
        """~ Share of the step that it waits in collectives."""
        return self.wait_ms / self.step_ms if self.wait_ms is not None and self.step_ms else None

    @property
    def late_ratio(self) -> float | None:
        """~ Share of the step by which it holds the others up."""
        return self.late_ms / self.step_ms if self.late_ms is not None and self.step_ms else None
