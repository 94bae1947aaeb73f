"""Finds logs, and reads the records of one, whole or while it grows."""

from __future__ import annotations

import math
import os
import stat
import time
from collections.abc import Callable, Iterator
from itertools import chain
from typing import NamedTuple

from tuimon.errors import NotALog
from tuimon.records import Header, Notice, Record
from tuimon.sources.log.compression import is_log_name
from tuimon.sources.log.lines import RECORD_ONE, Lines, check_header, decode, unreadable
from tuimon.text import plain


class PlayPace:
    """Plays at ``speed`` times the recorded pace; without a speed all is due at once.

    ``at_once_s``: so many recorded seconds are due at once, the rest is played, to ``most_s`` at most.
    """

    def __init__(
        self,
        speed: float | None,
        clock: Callable[[], float] = time.monotonic,
        *,
        at_once_s: float = 0.0,
        most_s: float = math.inf,
    ) -> None:
        self._speed = speed
        self._at_once_s = at_once_s
        self._most_s = most_s - at_once_s
        self._clock = clock
        self._began: tuple[float, float] | None = None  # a moment of the clock, and the ``t`` due at it

    def is_due(self, t: float) -> bool:
        """True if a record of that moment is due."""
        if self._speed is None:
            return True
        now_s = self._clock()
        if self._began is None:
            self._began = (now_s, t + self._at_once_s)
        clock_s, record_s = self._began
        return t - record_s <= min((now_s - clock_s) * self._speed, self._most_s)


def find_log(path: str) -> str:
    """The log that ``path`` stands for: the file itself, or the newest log in a folder. Raises NotALog."""
    if not os.path.isdir(path):
        return path
    logs = log_paths(path)
    if not logs:
        raise NotALog(f"the folder {plain(path)} holds no log", RECORD_ONE)
    return max(logs, key=_changed_unix_s)


def log_paths(folder: str) -> list[str]:
    """The files of a folder that have a log's name. Raises UnreadableLog."""
    try:
        names = os.listdir(folder)
    except OSError as error:
        raise unreadable(f"the folder {plain(folder)}", error) from error
    return sorted(os.path.join(folder, name) for name in names if is_log_name(name))


def _changed_unix_s(path: str) -> float:
    """When a file was last written to; minus infinity if it is no readable file."""
    try:
        info = os.stat(path)
    except OSError:
        return -math.inf
    return info.st_mtime if stat.S_ISREG(info.st_mode) else -math.inf


class LogStream(Lines):
    """Reads a log. ``records`` is read to its end, then called again for what has been appended."""

    def __init__(self, path: str) -> None:
        """Open it and read its header. Raises NotALog."""
        super().__init__(path)
        try:
            first = self.first()
            if not first:
                raise NotALog(f"{plain(path)} is empty", "The run that was to write it may not have started yet.")
            self.header = check_header(first, path)
        except NotALog:
            self.close()
            raise
        self._header_due = True

    def records(self) -> Iterator[Record]:
        """The records up to the end for now, the header first."""
        return chain.from_iterable(self.blocks())

    def blocks(self) -> Iterator[list[Record]]:
        """Like ``records``, some of them at once."""
        if self._header_due:
            self._header_due = False
            yield [self.header]
        while read := self.read_records():
            yield [record for record in read if type(record) is not Header]

    def last_records(self) -> Iterator[Record]:
        """The record of a last line that lacks its end, once there will be no more."""
        last = decode(self.torn())
        if last is not None and not isinstance(last, Header):
            yield last


class LogHead(NamedTuple):
    """A log as it shows from outside."""

    path: str
    header: Header
    changed_unix_s: float  # when it was last written to


def read_head(path: str) -> LogHead | None:
    """The head of a log; None where the file has no first line yet. Raises NotALog where it is something else."""
    lines = Lines(path)
    try:
        first = lines.first()
        return LogHead(path, check_header(first, path), lines.changed_unix_s()) if first else None
    finally:
        lines.close()


def skipped_notice(count: int, t: float) -> Notice:
    """How many lines of a log were left out."""
    lines = "1 line" if count == 1 else f"{count} lines"
    message = f"{lines} of the log skipped: damaged, or written by a newer tuimon"
    return Notice(t=t, pid=0, source="log", level="warning", message=message)
