"""The machines of a run: their memory, and whether their GPUs are held down; all ranks wait for the worst."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from tuimon.records import MachineMemory
from tuimon.session.processes.machine import Growth
from tuimon.session.processes.nodes import NodeTables


@dataclass(frozen=True)
class Machine:
    """One node; each section is read on first use, and once."""

    node: int
    host: str | None  # None where the run has no other
    _tables: NodeTables = field(repr=False)

    @property
    def place(self) -> str:
        """What a headline begins with: ``on node7: ``; empty of the only machine."""
        return f"on {self.host}: " if self.host is not None else ""

    @cached_property
    def memory(self) -> MachineMemory | None:
        """Its memory."""
        return self._tables.machine.latest

    @cached_property
    def growing(self) -> tuple[Growth, ...]:
        """Processes whose resident memory grows, the fastest first."""
        return tuple(self._tables.machine.growing())

    @cached_property
    def is_held_down(self) -> bool:
        """Whether something has held the clocks of one of its GPUs down lately."""
        return self._tables.devices.is_held_down
