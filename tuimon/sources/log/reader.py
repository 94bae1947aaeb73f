"""Reads a log back as records, whole or while it grows."""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Iterator
from typing import BinaryIO

import msgspec

from tuimon.errors import NotALog
from tuimon.records import SCHEMA, AnyRecord, Header, Notice, Record
from tuimon.sources.base import Done
from tuimon.sources.log.writer import SUFFIX
from tuimon.sources.plain_records import TEXT_LIMIT, plain_record
from tuimon.text import plain

#: A longer line is no record: the longest are command lines, of 2 MB at most.
LINE_LIMIT = 4 << 20

# JSON's escapes but for quotes, slashes and backslashes: each may be a control character.
_ESCAPED = re.compile(rb'\\[^"/\\]')
_LINE_END, _BACKSLASH, _DELETE = b"\n\\\x7f"
_DECODER: msgspec.json.Decoder[AnyRecord] = msgspec.json.Decoder(AnyRecord)


class _Tag(msgspec.Struct):
    """The part of a line that identifies it."""

    type: str = ""
    schema: int | None = None


def find_log(path: str) -> str:
    """The log that ``path`` stands for: the file itself, or the newest log in a folder. Raises NotALog."""
    if not os.path.isdir(path):
        return path
    try:
        logs = [os.path.join(path, name) for name in os.listdir(path) if name.endswith(SUFFIX)]
        logs.sort(key=os.path.getmtime)
    except OSError as error:
        raise NotALog(f"the folder {plain(path)} cannot be read: {error.strerror}") from error
    if not logs:
        raise NotALog(f"the folder {plain(path)} holds no log", "Record one: tuimon run --log FILE.jsonl train.py")
    return logs[-1]


class _Lines:
    """Whole lines of a file that may still grow, blank ones too, without those that are longer than any record."""

    def __init__(self, path: str) -> None:
        """Open it. Raises NotALog where that cannot be, or when it is no regular file: a pipe, a device."""
        try:
            handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # not waiting for a pipe's writer
        except OSError as error:
            raise NotALog(f"the log {plain(path)} cannot be read: {error.strerror}", _RECORD_ONE) from error
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise NotALog(f"{plain(path)} is no tuimon log: it is no regular file", _RECORD_ONE)
        self._file: BinaryIO = open(handle, "rb")  # noqa: SIM115  (closed by close)
        self._rest = b""
        self._too_long = False
        self.skipped = 0  # whole lines that hold no record, or none that is known here

    def __iter__(self) -> Iterator[bytes]:
        while chunk := self._file.readline(LINE_LIMIT):
            if chunk[-1] != _LINE_END:
                self._rest += chunk
                if len(self._rest) > LINE_LIMIT:
                    self._rest, self._too_long = b"", True
            elif self._too_long:
                self._rest, self._too_long = b"", False
                self.skipped += 1
            elif self._rest:
                line, self._rest = self._rest + chunk, b""
                if len(line) <= LINE_LIMIT:
                    yield line
                else:
                    self.skipped += 1
            else:
                yield chunk

    def first(self) -> bytes:
        """The first line that is not blank, also where its end is missing; empty in an empty file."""
        for line in iter(lambda: self._file.readline(LINE_LIMIT), b""):
            if line.strip():
                self._rest = b"" if line[-1] == _LINE_END else line
                return line
        return b""

    def records(self) -> Iterator[Record]:
        """The records of the lines."""
        for line in self:
            record = decode(line)
            if record is not None:
                yield record
            elif line.rstrip().endswith(b"}"):  # otherwise it is blank, or torn, and was written again
                self.skipped += 1

    def torn(self) -> bytes:
        """What follows the last line end."""
        return self._rest.strip()

    def close(self) -> None:
        self._file.close()


_RECORD_ONE = "Record one: tuimon run --log FILE.jsonl train.py"


def decode(line: bytes) -> Record | None:
    """The record of a line, its text made safe; None for an unknown type, a torn line, or figures beyond any run."""
    try:
        record = _DECODER.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    # a tenth of a microsecond in all: most lines hold nothing that could be unsafe
    safe = len(line) <= TEXT_LIMIT and line.isascii() and _DELETE not in line
    if safe and (_BACKSLASH not in line or _ESCAPED.search(line) is None):
        return record
    return plain_record(record)


def skipped_notice(count: int, t: float) -> Notice:
    """How many lines of a log were left out."""
    lines = "1 line" if count == 1 else f"{count} lines"
    message = f"{lines} of the log skipped: damaged, or written by a newer tuimon"
    return Notice(t=t, pid=0, source="log", level="warning", message=message)


def check_header(line: bytes, path: str) -> Header:
    """The header on the first line. Raises NotALog with what the file is instead."""
    name = plain(path)
    try:
        tag = msgspec.json.decode(line, type=_Tag)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise NotALog(f"{name} is no tuimon log", _RECORD_ONE) from None
    if tag.type != "header":
        raise NotALog(f"{name} is no tuimon log: its first line is no header", _RECORD_ONE)
    if tag.schema is not None and tag.schema > SCHEMA:
        raise NotALog(
            f"{name} was written by a newer tuimon (schema {tag.schema}, this one reads {SCHEMA})",
            "Upgrade: pip install --upgrade tuimon",
        )
    header = decode(line)
    if not isinstance(header, Header):
        raise NotALog(f"{name} is no tuimon log: its header is damaged", _RECORD_ONE)
    return header


def read_log(path: str) -> Iterator[Record]:
    """All records of a log, the header first; at the end a Notice of lines that were skipped. Raises NotALog.

    Torn lines do not count: the last one of a run that was killed, or any before which the disk was full.
    """
    path = find_log(path)
    lines = _Lines(path)
    try:
        first = lines.first()
        if not first:
            raise NotALog(f"{plain(path)} is empty", "The run that was to write it may not have started yet.")
        header = check_header(first, path)
        yield header
        t = header.t
        for record in lines.records():
            t = record.t
            yield record
        last = decode(lines.torn())
        if last is not None and not isinstance(last, Header):
            yield last  # complete except for its line end
        if lines.skipped:
            yield skipped_notice(lines.skipped, t)
    finally:
        lines.close()


class LogSource:
    """A log as a Source: its records at once, or at ``speed`` times the recorded pace, then those that are appended."""

    name = "log"
    #: Most records in one ``read``.
    BATCH = 5000

    def __init__(self, path: str, speed: float | None = None, *, follow: bool = False) -> None:
        """Open it and check the header. Raises NotALog."""
        self.path = find_log(path)
        self.header = next(record for record in read_log(self.path) if isinstance(record, Header))
        self.period_s = 0.2
        self.at_end = False  # whether the whole file has been read so far
        self._speed = speed
        self._follow = follow
        self._lines = _Lines(self.path)
        self._reported = 0  # skipped lines that a Notice has counted
        self._held: Record | None = None
        self._t = self.header.t  # of the latest record
        self._began: tuple[float, float] | None = None  # (monotonic clock, ``t``) at the first record
        self._ended = False

    def read(self) -> Iterator[Record]:
        """The records that are due. Raises Done at the end of a log that is no longer written."""
        records = self._lines.records()
        for _ in range(self.BATCH):
            record = self._held or next(records, None)
            self._held = None
            if record is None:
                self.at_end = True
                if self._lines.skipped > self._reported:
                    self._reported = self._lines.skipped
                    yield skipped_notice(self._reported, self._t)
                if not self._follow or self._ended:
                    raise Done
                return
            if not self._due(record):
                self._held = record
                return
            self._t = record.t
            self._ended = self._ended or record.__struct_config__.tag == "exit"
            yield record

    def close(self) -> None:
        """Close the file."""
        self._lines.close()

    def _due(self, record: Record) -> bool:
        if self._speed is None:
            return True
        now_s = time.monotonic()
        if self._began is None:
            self._began = (now_s, record.t)
        clock_s, record_s = self._began
        return record.t - record_s <= (now_s - clock_s) * self._speed
