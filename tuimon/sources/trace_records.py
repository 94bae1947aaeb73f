"""Passes records of traces to the log of the run: whoever takes a trace leaves its record next to the ring.

So traces by ``tuimon trace``, by another monitor and by the screen's key all come into the log in the same way.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import msgspec
from msgspec import structs

from tuimon.agent.ring.files import TRACED, side_file, write_file
from tuimon.agent.ring.reader import RingReader
from tuimon.bounds import HELD
from tuimon.proc.ring_facts import decoded, read_side_file
from tuimon.records import TraceTaken

#: Records with tables in an hour: a program that takes traces all the time may not fill the log.
_TABLES_AN_HOUR = 60


def leave_record(ring_path: str, record: TraceTaken) -> None:
    """Leave a record next to the ring, for a monitor that writes a log. Raises OSError."""
    write_file(side_file(ring_path, TRACED), msgspec.to_builtins(record))


class TraceRecords:
    """Reads the records left next to one ring, each once."""

    def __init__(self, reader: RingReader) -> None:
        self._reader = reader
        self._awaited: list[tuple[float, int]] = []  # beginning, number of the first step
        self._tables: list[float] = []  # when the latest records with tables came
        self._seen: tuple[int, int] | None = None  # inode and time of the file that was read last

    def add_begin(self, time_ns: int, step: int) -> None:
        """A trace has begun with this step."""
        self._awaited.append((time_ns / 1e9, step))
        del self._awaited[:-HELD]

    def records(self, t: float) -> Iterator[TraceTaken]:
        """The record left since the last call, if any; nothing is read while no trace has begun."""
        if not self._awaited:
            return
        try:
            path = side_file(self._reader.path, TRACED)
            info = os.stat(path, follow_symlinks=False)
        except OSError:
            return
        if self._seen == (info.st_ino, info.st_mtime_ns):
            return
        self._seen = (info.st_ino, info.st_mtime_ns)
        record = decoded(read_side_file(path), TraceTaken)
        # the marker follows the moment that the record names
        begun = next((each for each in self._awaited if record and 0 <= each[0] - record.begin_s < 1.0), None)
        if record is None or begun is None:
            return
        self._awaited.remove(begun)
        yield self._within_limits(structs.replace(record, t=t, pid=self._reader.pid, first_step=begun[1]))

    def _within_limits(self, record: TraceTaken) -> TraceTaken:
        if len(self._tables) < _TABLES_AN_HOUR or record.t - self._tables[0] > 3600:
            self._tables.append(record.t)
            del self._tables[:-_TABLES_AN_HOUR]
            return record
        rows = len(record.operators) + len(record.kernels) + len(record.syncs)
        folded = record.folded + rows
        return structs.replace(record, operators=[], kernels=[], syncs=[], folded=folded)
