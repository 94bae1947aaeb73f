"""The input of ``view`` and ``report``: one log, or the runs whose logs lie in a folder.

Logs with one name are one run, as long as they were written side by side."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from tuimon.errors import NotALog, UnreadableLog, UsageError
from tuimon.records import Notice, Record
from tuimon.sources.base import Done
from tuimon.sources.log.joined import JoinedSource, Run, unreadable_notice
from tuimon.sources.log.lines import RECORD_ONE
from tuimon.sources.log.reader import LogHead, LogSource, log_paths, read_head, read_log
from tuimon.text import plain

#: A log that begins this much later than all others of its name were last written to is of a later run. Windows of a
#: steady run are 10 s long, and the nodes of a job begin within seconds of each other.
_APART_S = 30.0
#: Most runs that a message names.
_NAMED = 8


class Runs(NamedTuple):
    """The runs of a folder, the one that was written to last at the end, and the logs that cannot be read."""

    runs: Sequence[Run]
    unreadable: Sequence[UnreadableLog]


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


class Opened(NamedTuple):
    """A source of records, the path it reads, and notices of what else is in its folder."""

    source: LogSource | JoinedSource
    path: str
    notices: Sequence[Notice]


class Chosen(NamedTuple):
    """The log or the run that a path stands for."""

    path: str  # the log, or the folder where the run has several
    run: Run | None = None
    folder: Runs | None = None  # that it lies in

    @property
    def name(self) -> str:
        """The path, and which run of a folder it is."""
        return self.path if self.run is None or not os.path.isdir(self.path) else f"{self.path} ({self.run.name})"

    @property
    def left_out(self) -> Sequence[UnreadableLog]:
        """The logs of its folder that cannot be read."""
        return self.folder.unreadable if self.folder is not None else ()


def choose(path: str, run: str | None = None) -> Chosen:
    """The run that a path stands for: in a folder the one of that name, or the latest. Raises NotALog, UsageError."""
    if not os.path.isdir(path):
        if run is not None:
            raise UsageError("--run chooses among the runs of a folder", "Name the folder instead of a file in it")
        return Chosen(path)
    chosen, folder = choose_run(path, run)
    return Chosen(path if len(chosen.logs) > 1 else chosen.logs[0].path, chosen, folder)


def choose_all(path: str) -> list[Chosen]:
    """The runs that a path stands for: in a folder every run, the latest at the end. Raises NotALog."""
    if not os.path.isdir(path):
        return [Chosen(path)]
    folder = runs_in(path)
    return [Chosen(path if len(run.logs) > 1 else run.logs[0].path, run, folder) for run in folder.runs]


def open_logs(path: str, run: str | None = None, speed: float | None = None) -> Opened:
    """Open what a path stands for, to be followed. Raises NotALog, UsageError."""
    chosen = choose(path, run)
    source: LogSource | JoinedSource
    if chosen.run is None or (len(chosen.run.logs) == 1 and chosen.run.logs[0].header.run is None):
        source = LogSource(chosen.path, speed, follow=True)
    else:  # though there is one log, those of other nodes may be yet to come
        source = JoinedSource(chosen.run, path, speed, follow=True, left_out=chosen.left_out)
    return Opened(source, chosen.path, _notices(chosen, source.header.t))


def read_logs(chosen: Chosen) -> Iterator[Record]:
    """All records, the header first, then notices of what else is in its folder. Raises NotALog."""
    if chosen.run is None or len(chosen.run.logs) == 1:
        records = read_log(chosen.path)
    else:
        records = _read_all(JoinedSource(chosen.run, chosen.path, left_out=chosen.left_out))
    header = next(records)
    return chain([header, *_notices(chosen, header.t)], records)


def _read_all(source: JoinedSource) -> Iterator[Record]:
    try:
        while True:
            yield from source.read()
    except Done:
        return
    finally:
        source.close()


def _notices(chosen: Chosen, t: float) -> list[Notice]:
    runs = chosen.folder.runs if chosen.folder is not None else ()
    others = [run for run in runs if run is not chosen.run]
    found: list[Notice] = []
    if others and chosen.run is not None:
        message = f"run {chosen.run.name}, of {len(runs)} in this folder; by --run NAME also {names_of(others)}"
        found.append(Notice(t=t, pid=0, source="runs", level="info", message=message))
    if chosen.left_out:
        found.append(unreadable_notice(chosen.left_out, t))
    return found
