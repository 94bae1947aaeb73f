"""The records of a log through all its files, in order, and on into those that are begun while it is read."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from itertools import chain

import msgspec
from msgspec import Struct

from tuimon.errors import NotALog, UnreadableLog
from tuimon.records import Exit, Header, Notice, Record
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
        self._dates = Dates(self._t, self._written_s)
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
        """The record of a last line that lacks its end, and one that waited for it, once there will be no more."""
        last = decode(self._now.lines.torn())
        records = [] if last is None or isinstance(last, Header) else list(self._dates.passed(last))
        self._dates.finish()
        yield from records

    def count_skipped(self) -> int:
        """How many lines have been skipped so far."""
        return self.skipped + self._now.lines.skipped + self._now.lines.damaged + self._dates.left_out

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

    def _written_s(self) -> float:
        """When the file was last written to, by the clock of its records."""
        return self.header.t + self._now.lines.changed_unix_s() - self.header.wall_unix_s

    def _read(self) -> Iterator[list[Record]]:
        while read := self._now.lines.read_records():
            records = [record for record in read if type(record) is not Header]
            if self._is_gap or not self._dates.all_follow(records):
                records = list(self._dated(records))
            self._t = max(self._t, self._dates.t)
            yield records

    def _dated(self, records: Iterable[Record]) -> Iterator[Record]:
        """The records that may be passed on, with a notice where those before them are missing."""
        for read in records:
            for record in self._dates.passed(read):
                if self._is_gap and record.t - self._t > _APART_S:
                    yield self._missing_notice(record.t)
                self._is_gap = False
                self._t = max(self._t, record.t)
                yield record

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


# -- dates


#: Neighbours are dated at most this much later than what came before, in seconds: records are at most 30 s apart while
#: a run is recorded, and longer pauses (a stopped monitor, files that were removed) end with several records.
_CONFIRMED_S = 60.0


class Dates:
    """Passes records on, in their order; holds one that is dated far ahead until the next one shows what it is."""

    def __init__(self, t: float, written_s: Callable[[], float]) -> None:
        """``t``: of the header; ``written_s``: when the file was last written to, on the same clock."""
        self.left_out = 0
        self._written_s = written_s
        self.t = t  # of the latest record that was passed on
        self._held: Record | None = None

    def follows(self, record: Record) -> bool:
        """True if it may be passed on at once, as nearly all may; if not, ``passed`` decides what may."""
        t = record.t
        if self._held is not None or t - self.t > _CONFIRMED_S:
            return False
        self.t = max(self.t, t)
        return True

    def all_follow(self, records: Iterable[Record]) -> bool:
        """True if all of these may be; if not, they are to be passed one by one."""
        t = self.t
        for record in records:
            if record.t > t:
                if record.t - t > _CONFIRMED_S:
                    return False
                t = record.t
        if self._held is not None:
            return False
        self.t = t
        return True

    def passed(self, record: Record) -> Iterable[Record]:
        """The records that may be passed on now that this one has been read."""
        return (record,) if self.follows(record) else self._examined(record)

    def _examined(self, record: Record) -> Iterator[Record]:
        held, self._held = self._held, None
        if held is not None:
            if abs(record.t - held.t) <= _CONFIRMED_S:
                self.t = held.t
                yield held
            else:
                self.left_out += 1
        if record.t - self.t <= _CONFIRMED_S:
            self.t = max(self.t, record.t)
            yield record
        elif isinstance(record, Exit | Notice):  # where the disk was full, they are all that is left of hours
            possible = record.t <= self._written_s() + _CONFIRMED_S
            yield record if possible else msgspec.structs.replace(record, t=self.t)
        else:
            self._held = record

    def finish(self) -> None:
        """End: nothing will confirm the date of a record that is held."""
        self.left_out += self._held is not None
        self._held = None
