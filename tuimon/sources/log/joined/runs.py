"""The runs whose logs lie in a folder: those with one name are one run, as long as they were written side by side."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tuimon.errors import NotALog, UnreadableLog
from tuimon.records import Header
from tuimon.sources.log.decode import RECORD_ONE, check_header
from tuimon.sources.log.lines import Lines
from tuimon.sources.log.reader import log_paths
from tuimon.text import plain

#: A log that begins this much later than all others of its name were last written to is of a later run. Windows of a
#: steady run are 10 s long, and the nodes of a job begin within seconds of each other.
_APART_S = 30.0
#: Most runs that a message names.
_NAMED = 8


class LogHead(NamedTuple):
    """A log as it shows from outside."""

    path: str
    header: Header
    changed_unix_s: float  # when it was last written to


class Run(NamedTuple):
    """The logs of one run; ``name`` selects it."""

    name: str
    logs: tuple[LogHead, ...]

    @property
    def begun_unix_s(self) -> float:
        """When its first log began, seconds since the epoch."""
        return min(log.header.wall_unix_s for log in self.logs)

    @property
    def changed_unix_s(self) -> float:
        """When any of its logs was last written to."""
        return max(log.changed_unix_s for log in self.logs)


class Runs(NamedTuple):
    """The runs of a folder, the one that was written to last at the end, and the logs that cannot be read."""

    runs: Sequence[Run]
    unreadable: Sequence[UnreadableLog]


def read_head(path: str) -> LogHead | None:
    """The head of a log; None where the file has no first line yet. Raises NotALog where it is something else."""
    lines = Lines(path)
    try:
        first = lines.first()
        return LogHead(path, check_header(first, path), lines.changed_unix_s()) if first else None
    finally:
        lines.close()


def runs_in(folder: str) -> Runs:
    """The contents of a folder. Raises NotALog where there is no run."""
    heads, unreadable, refusal = [], [], None
    for path in log_paths(folder):
        try:
            head = read_head(path)
        except UnreadableLog as error:
            unreadable.append(error)
        except NotALog as error:
            refusal = error
        else:
            heads += [head] if head is not None else []
    if not heads:
        refusal = unreadable[0] if unreadable else refusal
        raise refusal or NotALog(f"the folder {plain(folder)} holds no log", RECORD_ONE)
    return Runs(sorted(_grouped(heads), key=lambda run: run.changed_unix_s), unreadable)


def choose_run(folder: str, name: str | None = None) -> tuple[Run, Runs]:
    """The run of that name, without one the latest, and all that the folder holds. Raises NotALog."""
    found = runs_in(folder)
    run = next((run for run in reversed(found.runs) if name in (None, run.name)), None)
    if run is None:
        there = names_of(found.runs)
        raise NotALog(f"the folder {plain(folder)} holds no run {plain(name or '')!r}", f"It has {there}")
    return run, found


def names_of(runs: Sequence[Run]) -> str:
    """The names of runs, the latest first."""
    names = [plain(run.name) for run in reversed(runs)]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _grouped(heads: Iterable[LogHead]) -> list[Run]:
    runs: list[Run] = []
    by_name: dict[str, list[LogHead]] = {}
    for head in heads:
        if head.header.run is None:
            runs.append(Run(os.path.basename(head.path), (head,)))
        else:
            by_name.setdefault(head.header.run, []).append(head)
    for name, own in by_name.items():
        *earlier, latest = _side_by_side(own)
        for group in earlier:
            begun = time.localtime(min(head.header.wall_unix_s for head in group))
            runs.append(Run(f"{name}@{time.strftime('%Y%m%d-%H%M%S', begun)}", tuple(group)))
        runs.append(Run(name, tuple(latest)))
    return runs


def _side_by_side(heads: Sequence[LogHead]) -> list[list[LogHead]]:
    """Logs of one name in groups, each of one run, in order."""
    groups: list[list[LogHead]] = []
    for head in sorted(heads, key=lambda head: head.header.wall_unix_s):
        begun_s = head.header.wall_unix_s
        group = groups[-1] if groups else []
        same_host = [each.changed_unix_s for each in group if each.header.host == head.header.host]
        over_s = max((each.changed_unix_s for each in group), default=0.0) + _APART_S
        is_later = begun_s > over_s and head.changed_unix_s > over_s  # a clock that is ahead begins late, and no more
        if not group or is_later or (same_host and begun_s > max(same_host)):
            groups.append([head])
        else:
            group.append(head)
    return groups
