"""Helpers in one row each: processes that neither train nor load, and threads of a process with one role."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from msgspec.structs import replace

from tuimon.records import Process
from tuimon.session.rows import ThreadRow
from tuimon.session.windows import mean_of_known

#: Roles of a process's own threads that share a row.
_ALIKE = ("native", "intra-op", "CUDA driver", "NCCL", "gloo", "watchdog")
#: The processes that torch.compile starts run this module.
_COMPILE_WORKER = "compile_worker"


def with_helpers_folded(rows: Sequence[ThreadRow], processes: Sequence[Process]) -> list[ThreadRow]:
    """The rows in their order, each group of helpers as one where its first stood: ``compile workers ×16``."""
    others = {process.pid: process for process in processes if process.role == "other"}
    groups: dict[Hashable, list[ThreadRow]] = {}
    for row in rows:
        groups.setdefault(_group(row, others.get(row.pid)), []).append(row)
    return [_folded(members, others.get(members[0].pid)) for members in groups.values()]


def _group(row: ThreadRow, helper: Process | None) -> Hashable:
    """The key that a row is folded by; its own ids if it stands alone."""
    if helper is not None:
        return "helper", row.ended, _program(helper)
    return (row.pid, row.ended, row.role) if row.role in _ALIKE else (row.pid, row.tid)


def _program(helper: Process) -> str:
    if any(_COMPILE_WORKER in word for word in helper.command):
        return "compile workers"
    return helper.command[0].rpartition("/")[2] if helper.command else ""


def _folded(members: Sequence[ThreadRow], helper: Process | None) -> ThreadRow:
    first = members[0]
    if len(members) == 1:
        return first
    cpu = [row.cpu_ratio for row in members if row.cpu_ratio is not None]
    return replace(
        first,
        role=(helper and _program(helper)) or first.role,
        cpu_ratio=sum(cpu) if cpu else None,
        delay_ratio=mean_of_known([row.delay_ratio for row in members]),
        state="running" if any(row.state == "running" for row in members) else first.state,
        place=None,
        count=sum(row.count for row in members),
        gil_ratio=None,
    )
