"""The meaning of a path: one log, or the runs whose logs are in a folder.

Logs with one name are one run, as long as they were written side by side.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from tuimon.errors import NotALog, UnreadableLog, UsageError
from tuimon.records import Notice
from tuimon.sources.log.reader import RECORD_ONE, LogHead, log_paths, read_head
from tuimon.text import plain

#: A log that begins this long after the last write to all others of its name belongs to a later run. Windows of a
#: steady run are 10 s long, and the nodes of a job begin within seconds of each other.
_APART_S = 30.0
#: Most runs that a message names; most logs, and most nodes.
_RUNS, _NAMED = 8, 3
#: The source of a notice of logs that cannot be read.
UNREADABLE = "unreadable"


class Chosen(NamedTuple):
    """The run that a path stands for, with its logs."""

    path: str  # the log, or the folder if the run has several
    run: str | None = None  # the name that selects it among those of a folder
    logs: Sequence[LogHead] = ()  # of the run
    others: Sequence[str] = ()  # all other runs that lie there, the latest first
    left_out: Sequence[UnreadableLog] = ()  # the logs there that cannot be read

    @property
    def name(self) -> str:
        """The path, and which run of a folder it is."""
        return f"{self.path} ({self.run})" if len(self.logs) > 1 else self.path

    def notices(self, t: float) -> Iterator[Notice]:
        """The other runs in its folder."""
        if self.others:
            which = f"run {self.run}, of {1 + len(self.others)} in this folder"
            message = f"{which}; by --run NAME also {names(self.others, _RUNS, 'more')}"
            yield Notice(t=t, pid=0, source="runs", level="info", message=message)
        if self.left_out:
            yield unreadable_notice(self.left_out, t)


def names(each: Sequence[str], most: int = _NAMED, more: str = "more nodes") -> str:
    """A list of names, of which only some are shown: ``n1, n2, n3 and 5 more nodes``."""
    if len(each) <= most + 1:
        return plain(", ".join(each))
    return plain(f"{', '.join(each[:most])} and {len(each) - most} {more}")


def unreadable_notice(errors: Sequence[UnreadableLog], t: float) -> Notice:
    """A notice of the logs that could not be read, or only in part, while the others were."""
    more = f"; and {len(errors) - _NAMED} more" if len(errors) > _NAMED else ""
    message = f"read without what is unreadable: {'; '.join(each.message for each in errors[:_NAMED])}{more}"
    return Notice(t=t, pid=0, source=UNREADABLE, level="warning", message=message, hint=errors[0].hint)


def choose(path: str, name: str | None = None) -> Chosen:
    """The run that a path stands for: in a folder the one of that name, or the latest. Raises NotALog, UsageError."""
    if name is not None and not os.path.isdir(path):
        raise UsageError("--run chooses among the runs of a folder", "Name the folder instead of a file in it")
    *_, latest = found = choose_all(path)
    chosen = latest if name is None else next((each for each in reversed(found) if each.run == name), None)
    if chosen is None:
        there = names([latest.run or "", *latest.others], _RUNS, "more")
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
    runs = sorted(_grouped(heads), key=lambda run: max(log.changed_unix_s for log in run[1]))
    return [
        Chosen(
            path if len(logs) > 1 else logs[0].path,
            name,
            logs,
            [other for other, _ in reversed(runs) if other != name],
            unreadable,
        )
        for name, logs in runs
    ]


def _grouped(heads: Iterable[LogHead]) -> Iterator[tuple[str, Sequence[LogHead]]]:
    """The runs, each by its name with its logs."""
    by_name: dict[str, list[LogHead]] = {}
    for head in heads:
        if head.header.run is None:
            yield os.path.basename(head.path), [head]
        else:
            by_name.setdefault(head.header.run, []).append(head)
    for name, own in by_name.items():
        *earlier, latest = _side_by_side(own)
        for group in earlier:
            begun = time.localtime(min(head.header.wall_unix_s for head in group))
            yield f"{name}@{time.strftime('%Y%m%d-%H%M%S', begun)}", group
        yield name, latest


def _side_by_side(heads: Sequence[LogHead]) -> list[list[LogHead]]:
    """Logs of one name in groups, each of one run, in order."""
    groups: list[list[LogHead]] = []
    for head in sorted(heads, key=lambda head: head.header.wall_unix_s):
        begun_s = head.header.wall_unix_s
        group = groups[-1] if groups else []
        same_host = [each.changed_unix_s for each in group if each.header.host == head.header.host]
        over_s = max((each.changed_unix_s for each in group), default=0.0) + _APART_S
        is_later = begun_s > over_s and head.changed_unix_s > over_s  # a clock that is ahead only seems to begin late
        if not group or is_later or (same_host and begun_s > max(same_host)):
            groups.append([head])
        else:
            group.append(head)
    return groups
