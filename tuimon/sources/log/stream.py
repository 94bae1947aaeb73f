"""The records of a log through all its files, in order, and on into those that are begun while it is read."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from itertools import chain

from msgspec import Struct

from tuimon.errors import NotALog, UnreadableLog
from tuimon.records import Header, Notice, Record
from tuimon.sources.base import Backlog
from tuimon.sources.log.decode import check_header, decode
from tuimon.sources.log.lines import Lines
from tuimon.sources.log.names import part_paths
from tuimon.text import plain

#: Records are at most this far apart while a run is recorded: what is missing between two files is more.
_APART_S = 30.0


class _Open(Struct, frozen=True, gc=False):
    """A file whose header has been read."""

    lines: Lines
    header: Header


class LogStream:
    """Reads the files of one log. ``records`` is read to its end, then called again for what has been appended."""

    def __init__(self, path: str) -> None:
        """Open the oldest file that is there. Raises NotALog."""
        self.path = path
        self._why_missing = "removed to stay within --log-max"
        newest = _open(path)
        self._now = next(self._parts_of(newest), newest)
        if self._now.lines is not newest.lines:
            newest.lines.close()
        self.header = self._now.header
        self._closed_bytes = 0  # of files that were read to their ends
        self.skipped = 0  # whole lines that hold no record, or none that is known here
        self._t = self.header.t  # of the latest record
        self._header_due = True
        self._is_gap = False  # whether files between the latest record and the next are missing

    def records(self) -> Iterator[Record]:
        """The records up to the end for now, the header first; a Notice where older files have been removed."""
        return chain.from_iterable(self.blocks())

    def blocks(self) -> Iterator[list[Record]]:
        """The same, some of them at once."""
        if self._header_due:
            self._header_due = False
            yield [self.header, *self._beginning(self._now.header.part)]
        while True:
            yield from self._read()
            following = self._next()
            if following is None:
                return
            # it was begun after the last line of the one before
            yield from self._read()
            missing = following.header.part - self._now.header.part - 1
            self.skipped += self._now.lines.skipped + self._now.lines.damaged
            self._closed_bytes += self._now.lines.backlog().of_bytes
            self._now.lines.close()
            self._now = following
            yield self._beginning(missing)

    def last_records(self) -> Iterator[Record]:
        """The record of a last line that lacks its end, once there will be no more."""
        last = decode(self._now.lines.torn())
        if last is not None and not isinstance(last, Header):
            yield last

    def count_skipped(self) -> int:
        """How many lines have been skipped so far."""
        return self.skipped + self._now.lines.skipped + self._now.lines.damaged

    def backlog(self) -> Backlog:
        """How far its files have been read, all together."""
        read_bytes, of_bytes = self._now.lines.backlog()
        read_bytes, of_bytes = read_bytes + self._closed_bytes, of_bytes + self._closed_bytes
        with contextlib.suppress(OSError):
            files = [os.stat(path) for path in (*(path for _, path in part_paths(self.path)), self.path)]
            places = [at for at, info in enumerate(files) if (info.st_dev, info.st_ino) == self._now.lines.identity]
            of_bytes += sum(info.st_size for info in files[max(places, default=-1) + 1 :])
        return Backlog(read_bytes, of_bytes)

    def close(self) -> None:
        """Close the file."""
        self._now.lines.close()

    def _read(self) -> Iterator[list[Record]]:
        while read := self._now.lines.read_records():
            records = [record for record in read if type(record) is not Header]
            if self._is_gap and records:
                self._is_gap = False
                if records[0].t - self._t > _APART_S:
                    yield [self._missing_notice(records[0].t)]
            self._t = max((self._t, *(record.t for record in records)))
            yield records

    def _beginning(self, missing: int) -> list[Record]:
        """The facts that a file begins with, unless the files before it had them; ``missing``: of these."""
        facts = self._now.lines.take(self._now.header.repeated)
        self._is_gap = self._is_gap or missing > 0
        return facts if missing > 0 else []

    def _next(self) -> _Open | None:
        """The file after the one that is read; None while there is none."""
        try:
            info = os.stat(self.path)
        except OSError:
            return None
        if (info.st_dev, info.st_ino) == self._now.lines.identity:
            return None
        with contextlib.suppress(NotALog):
            newest = _open(self.path)
            if not _is_same_run(newest.header, self.header):
                newest.lines.close()
                return None
            following = next(self._parts_of(newest, self._now.header.part), newest)
            if following.lines is not newest.lines:
                newest.lines.close()
            if following.header.part > self._now.header.part:
                return following
            following.lines.close()
        return None

    def _parts_of(self, newest: _Open, after: int = -1) -> Iterator[_Open]:
        """The older files of a log that come after part ``after``, the oldest first."""
        if newest.header.part == 0:
            return
        try:
            paths = [path for _, path in part_paths(self.path)]
        except OSError:
            return
        for path in paths:
            try:
                part = _open(path)
            except NotALog as error:  # another file of such a name, or it was removed just now
                if isinstance(error, UnreadableLog) and not isinstance(error.__cause__, FileNotFoundError):
                    self._why_missing = error.message
                continue
            if _is_same_run(part.header, newest.header) and after < part.header.part < newest.header.part:
                yield part
            else:
                part.lines.close()

    def _missing_notice(self, t: float) -> Notice:
        lacks = f"the log lacks {_clock(self._t - self.header.t)} to {_clock(t - self.header.t)} of the run"
        return Notice(t=t, pid=0, source="log", level="info", message=f"{lacks}: {self._why_missing}")


def older_parts(path: str) -> list[str]:
    """The other files of the log at ``path``. Raises NotALog."""
    newest = _open(path)
    newest.lines.close()
    found = []
    with contextlib.suppress(OSError):
        for _, name in part_paths(path):
            with contextlib.suppress(NotALog):
                part = _open(name)
                part.lines.close()
                if _is_same_run(part.header, newest.header) and part.lines.identity != newest.lines.identity:
                    found.append(name)
    return found


def _open(path: str) -> _Open:
    """Open a file and read its header. Raises NotALog."""
    lines = Lines(path)
    try:
        first = lines.first()
        if not first:
            raise NotALog(f"{plain(path)} is empty", "The run that was to write it may not have started yet.")
        return _Open(lines, check_header(first, path))
    except NotALog:
        lines.close()
        raise


def _is_same_run(one: Header, other: Header) -> bool:
    return (one.host, one.pid, one.t, one.wall_unix_s) == (other.host, other.pid, other.t, other.wall_unix_s)


def _clock(seconds: float) -> str:
    minutes, second = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{second:02}"
