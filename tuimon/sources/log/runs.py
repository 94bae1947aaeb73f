"""The input of ``view`` and ``report``: one log, or the runs whose logs lie in a folder.

Logs with one name are one run, as long as they were written side by side.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from tuimon.errors import NotALog, UnreadableLog, UsageError
from tuimon.records import Notice, Record
from tuimon.sources.log.reader import RECORD_ONE, LogHead, log_paths, read_head
from tuimon.sources.log.source import LogSource, OneRun, names, unreadable_notice
from tuimon.text import plain

#: A log that begins this long after the last write to all others of its name belongs to a later run. Windows of a
#: steady run are 10 s long, and the nodes of a job begin within seconds of each other.
_APART_S = 30.0
#: Most runs that a message names.
_NAMED = 8


def names_of(runs: Sequence[OneRun]) -> str:
    """The names of runs, the latest first."""
    return names([plain(run.name) for run in reversed(runs)], _NAMED, "more")


def _grouped(heads: Iterable[LogHead]) -> list[OneRun]:
    runs: list[OneRun] = []
    by_name: dict[str, list[LogHead]] = {}
    for head in heads:
        if head.header.run is None:
            runs.append(OneRun(os.path.basename(head.path), (head,)))
        else:
            by_name.setdefault(head.header.run, []).append(head)
    for name, own in by_name.items():
        *earlier, latest = _side_by_side(own)
        for group in earlier:
            begun = time.localtime(min(head.header.wall_unix_s for head in group))
            runs.append(OneRun(f"{name}@{time.strftime('%Y%m%d-%H%M%S', begun)}", tuple(group)))
        runs.append(OneRun(name, tuple(latest)))
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

    source: LogSource
    path: str
    notices: Sequence[Notice]


class Chosen(NamedTuple):
    """The log or the run that a path stands for."""

    path: str  # the log, or the folder where the run has several
    run: OneRun | None = None
    folder: Sequence[OneRun] = ()  # all runs that lie there
    left_out: Sequence[UnreadableLog] = ()  # the logs there that cannot be read

    @property
    def name(self) -> str:
        """The path, and which run of a folder it is."""
        return self.path if self.run is None or not os.path.isdir(self.path) else f"{self.path} ({self.run.name})"


def choose(path: str, name: str | None = None) -> Chosen:
    """The run that a path stands for: in a folder the one of that name, or the latest. Raises NotALog, UsageError."""
    if name is not None and not os.path.isdir(path):
        raise UsageError("--run chooses among the runs of a folder", "Name the folder instead of a file in it")
    *_, latest = found = choose_all(path)
    chosen = latest if name is None else next((x for x in reversed(found) if x.run and x.run.name == name), None)
    if chosen is None:
        there = names_of(latest.folder)
        raise NotALog(f"the folder {plain(path)} holds no run {plain(name or '')!r}", f"It has {there}")
    return chosen


def choose_all(path: str) -> list[Chosen]:
    """The runs that a path stands for: in a folder every run, the one that was written to last at the end.

    Raises NotALog.
    """
    if not os.path.isdir(path):
        return [Chosen(path)]
    heads, unreadable, refusal = [], [], None
    for log in log_paths(path):
        try:
            head = read_head(log)
        except UnreadableLog as error:
            unreadable.append(error)
        except NotALog as error:
            refusal = error
        else:
            heads += [head] if head is not None else []
    if not heads:
        refusal = unreadable[0] if unreadable else refusal
        raise refusal or NotALog(f"the folder {plain(path)} holds no log", RECORD_ONE)
    runs = sorted(_grouped(heads), key=lambda run: run.changed_unix_s)
    return [Chosen(path if len(run.logs) > 1 else run.logs[0].path, run, runs, unreadable) for run in runs]


def open_logs(path: str, run: str | None = None, speed: float | None = None) -> Opened:
    """Open what a path stands for, to be followed. Raises NotALog, UsageError."""
    chosen = choose(path, run)
    if chosen.run is None or (len(chosen.run.logs) == 1 and chosen.run.logs[0].header.run is None):
        source = LogSource(chosen.path, None, speed, follow=True)
    else:  # though there is one log, those of other nodes may be yet to come
        source = LogSource(path, chosen.run, speed, follow=True, left_out=chosen.left_out)
    return Opened(source, chosen.path, _notices(chosen, source.header.t))


def read_logs(chosen: Chosen) -> Iterator[Record]:
    """All records, the header first, then notices of what else is in its folder. Raises NotALog."""
    run = chosen.run if chosen.run is not None and len(chosen.run.logs) > 1 else None
    records = LogSource(chosen.path, run, left_out=chosen.left_out).read_all()
    header = next(records)
    return chain([header, *_notices(chosen, header.t)], records)


def _notices(chosen: Chosen, t: float) -> list[Notice]:
    others = [run for run in chosen.folder if run is not chosen.run]
    found: list[Notice] = []
    if others and chosen.run is not None:
        message = (
            f"run {chosen.run.name}, of {len(chosen.folder)} in this folder; by --run NAME also {names_of(others)}"
        )
        found.append(Notice(t=t, pid=0, source="runs", level="info", message=message))
    if chosen.left_out:
        found.append(unreadable_notice(chosen.left_out, t))
    return found
