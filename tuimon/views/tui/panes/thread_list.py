"""Which threads the table lists and in which order: filter, sort, helpers in one row."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from tuimon.node_ids import own_id
from tuimon.records import Process
from tuimon.session.rows import ThreadRow
from tuimon.session.series import mean_of_known
from tuimon.text import whole_number
from tuimon.views.format import place

_ROLES = ("training", "main", "worker", "pin-memory", "autograd")


def _by_role(row: ThreadRow) -> tuple[int, str, int, int, float]:
    """Its place in the list: the training thread first, workers by number, pin-memory, autograd; by rank, then CPU."""
    order = _ROLES.index(row.kind) if row.kind in _ROLES else len(_ROLES)
    whose, _, last = row.role.rpartition(" ")
    number = whole_number(last)
    if number is not None:
        return order + 10 * row.ended, whose.rpartition("worker")[0], number, row.rank or 0, 0.0
    return order + 10 * row.ended, "", 0, row.rank or 0, -(row.cpu_ratio or 0.0)


#: Ways to sort, cycled by ``s``: (the column it marks, key). Any: whatever can be compared.
SORTS: tuple[tuple[str, Callable[[ThreadRow], Any]], ...] = (
    ("role", _by_role),
    ("cpu", lambda row: -(row.cpu_ratio or 0.0)),
    ("delay", lambda row: -(row.delay_ratio or 0.0)),
    ("where", lambda row: place(row.place.file, row.place.line) if row.place else "\uffff"),
)


class ThreadList(Struct):
    """The user's choice of threads: filter and order."""

    filter_text: str = ""
    _sort: int = 0
    _rows: list[ThreadRow] = field(default_factory=list)
    _rows_of: tuple[object, ...] = ()  # the input that ``_rows`` was made from

    @property
    def sorted_by(self) -> str:
        """The column that the threads are sorted by."""
        return SORTS[self._sort][0]

    def rows(self, threads: Sequence[ThreadRow], processes: Sequence[Process]) -> list[ThreadRow]:
        """The threads that pass the filter, sorted, and helpers that are alike as one."""
        made_from = (threads, processes, self.filter_text, self._sort)
        if made_from != self._rows_of:
            self._rows_of = made_from
            order = SORTS[self._sort][1]
            rows = sorted((row for row in threads if matches(row, self.filter_text)), key=order)
            self._rows = sorted(with_helpers_folded(rows, processes), key=order)
        return self._rows

    def sort_by_next(self) -> None:
        """Sort by the next column."""
        self._sort = (self._sort + 1) % len(SORTS)


def matches(row: ThreadRow, text: str) -> bool:
    """True if a thread's row contains the text, whatever its case."""
    if not text:
        return True
    where = f"{row.place.file}:{row.place.line} {row.place.function} {row.place.source}" if row.place else ""
    rank = f"rank {row.rank}: " if row.rank is not None else ""
    return (
        text.lower() in f"{rank}{row.role} {row.name} {own_id(row.tid)} {own_id(row.pid)} {row.state} {where}".lower()
    )


#: Roles of a process's own threads that share a row.
_ALIKE = ("native", "intra-op", "CUDA driver", "NCCL", "gloo", "watchdog")
#: The processes that torch.compile starts run this module.
_COMPILE_WORKER = "compile_worker"


def with_helpers_folded(rows: Sequence[ThreadRow], processes: Sequence[Process]) -> list[ThreadRow]:
    """The rows in their order, each group of helpers as one where its first stood: ``compile workers ×16``."""
    others = {process.pid: process for process in processes if process.role in ("other", "child")}
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
