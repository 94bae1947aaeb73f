"""The fold: Records in, the current picture out."""

from __future__ import annotations

from tuimon.records import Cost, Exit, Header, Notice, Process, Record
from tuimon.session.rows import GpuRow, HotLine, PhaseTable, StepSummary, ThreadRow


class Session:
    """The current picture of one run. ``add`` every record in order; ask at any time. Single-threaded, no clock, no I/O."""

    def __init__(self) -> None:
        self.header: Header | None = None
        self.exit: Exit | None = None
        self.cost: Cost | None = None
        self.now_s: float = 0.0  # ``t`` of the latest record
        self.notices: dict[str, Notice] = {}  # per source, what it last said unless "ok"

    def add(self, record: Record) -> None:
        """Fold one record into the picture."""
        raise NotImplementedError

    def processes(self) -> list[Process]:
        """All processes of the run, trainers first, ended ones last."""
        raise NotImplementedError

    def trainers(self) -> list[int]:
        """Processes that train (markers show backwards or updates; without markers: the process attached to), by rank."""
        raise NotImplementedError

    def trainer(self) -> int | None:
        """The process in focus: the first trainer, or the run's root while none is known."""
        raise NotImplementedError

    def phases(self, pid: int) -> PhaseTable | None:
        """Phase breakdown of a process over the last 30 s; None before the first step."""
        raise NotImplementedError

    def steps(self, pid: int) -> StepSummary | None:
        """Step count, rate and times of a process; None without markers."""
        raise NotImplementedError

    def step_history(self, pid: int) -> list[float | None]:
        """Mean step time in ms, one value a window, oldest first; None where no step ended."""
        raise NotImplementedError

    def threads(self) -> list[ThreadRow]:
        """All threads of the run, trainers' first."""
        raise NotImplementedError

    def gpus(self) -> list[GpuRow]:
        """The GPUs of the machine, those the run uses first."""
        raise NotImplementedError

    def hot_lines(self, pid: int, phase: str | None = None) -> list[HotLine]:
        """Innermost user lines of a process's main thread (of all its threads if it is a worker), most samples first."""
        raise NotImplementedError
