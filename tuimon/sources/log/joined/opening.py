"""The input of ``view`` and ``report``: one log, or all logs of a run that lie in a folder."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from tuimon.errors import UnreadableLog, UsageError
from tuimon.records import Notice, Record
from tuimon.sources.base import Done
from tuimon.sources.log.joined.runs import Run, Runs, choose_run, names_of, runs_in
from tuimon.sources.log.joined.source import JoinedSource, unreadable_notice
from tuimon.sources.log.reader import LogSource, read_log


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
