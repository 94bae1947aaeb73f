"""Evidence that all processes of the run share at one moment."""

from __future__ import annotations

from functools import cached_property

from msgspec import Struct

from tuimon.diagnosis.evidence.cores import free_cores
from tuimon.diagnosis.evidence.devices import run_gpus
from tuimon.diagnosis.evidence.machines import Machine
from tuimon.node_ids import node_of
from tuimon.records import Exit, MachineMemory, Notice, Process, Threads
from tuimon.session.goodput import Goodput, goodput
from tuimon.session.rows import GpuRow
from tuimon.session.session import SessionView, once


class RunEvidence(Struct, frozen=True, dict=True):
    """The machine (of many, the one in focus), its GPUs, and the processes of the run.

    Each section is read on first use, and once.
    """

    _view: SessionView

    @property
    def now_s(self) -> float:
        """``t`` of the latest record."""
        return self._view.now_s

    @cached_property
    def end(self) -> Exit | None:
        """How it ended; None while it runs."""
        return self._view.session.exit

    @cached_property
    def goodput(self) -> Goodput | None:
        """The division of its wall time; None before any."""
        return goodput(self._view.session)

    @property
    def has_ended(self) -> bool:
        """True if the exit was recorded."""
        return self.end is not None

    @property
    def cores(self) -> int:
        """Cores of the machine; 1 without a header."""
        return self.here.cores if self.here.cores is not None else 1

    @cached_property
    def notices(self) -> dict[str, Notice]:
        """The problem that each source reported last, by source."""
        return dict(self._view.session.notices)

    @cached_property
    def trainers(self) -> tuple[int, ...]:
        """Training processes, by rank."""
        return tuple(self._view.session.trainers())

    @cached_property
    def processes(self) -> dict[int, Process]:
        """All processes of the run, by pid."""
        return {process.pid: process for process in self._view.processes()}

    @property
    def live_threads(self) -> tuple[Threads, ...]:
        """Thread figures of every process on the machine that has not ended."""
        return self.here.live_threads

    @cached_property
    def free_cores(self) -> float:
        """Cores that the run could still get."""
        return free_cores(self.live_threads, self.cores)

    @cached_property
    def gpus(self) -> tuple[GpuRow, ...]:
        """All GPUs of the machine."""
        return tuple(self._view.gpus())

    @cached_property
    def own_gpus(self) -> tuple[GpuRow, ...]:
        """The GPUs that the run uses and whose figures are recent."""
        return run_gpus(self.gpus)

    def gpus_used_on(self, node: int) -> tuple[GpuRow, ...]:
        """Like ``own_gpus``, for any node of the run."""
        return self.own_gpus if node == self._view.session.focus_node else run_gpus(self._view.gpus(node))

    @cached_property
    def memory(self) -> MachineMemory | None:
        """The machine's memory."""
        return self._view.session.machine.latest

    @property
    def here(self) -> Machine:
        """The node in focus."""
        return self.machines[0]

    @cached_property
    def machines(self) -> tuple[Machine, ...]:
        """All nodes of the run, the one in focus first."""
        session = self._view.session
        focus, known = session.focus_node, session.nodes.known
        hosts = {number: node.host for number, node in known.items()} if len(known) > 1 else {}
        numbers = [focus, *(number for number in sorted(known) if number != focus)]
        trainers: dict[int, list[int]] = {}
        for pid in self.trainers:
            trainers.setdefault(node_of(pid), []).append(pid)
        return tuple(
            Machine(number, hosts.get(number), tuple(trainers.get(number, ())), self._view) for number in numbers
        )


@once
def run_evidence(view: SessionView) -> RunEvidence:
    """The run over the view's span: for the evidence of all its processes."""
    return RunEvidence(view)
