"""Reads a log back as records, whole or while it grows."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import BinaryIO

import msgspec

from tuimon.errors import NotALog
from tuimon.records import SCHEMA, AnyRecord, Header, Record
from tuimon.sources.base import Done
from tuimon.sources.log.writer import SUFFIX
from tuimon.text import plain

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
    """Whole lines of a file that may still grow."""

    def __init__(self, path: str) -> None:
        try:
            self._file: BinaryIO = open(path, "rb")  # noqa: SIM115  (closed by close)
        except OSError as error:
            raise NotALog(f"the log {plain(path)} cannot be read: {error.strerror}", _RECORD_ONE) from error
        self._rest = b""

    def __iter__(self) -> Iterator[bytes]:
        while chunk := self._file.readline(1 << 20):
            self._rest += chunk
            if not chunk.endswith(b"\n"):
                if len(self._rest) > 64 << 20:
                    self._rest = b""
                continue
            line, self._rest = self._rest, b""
            yield line.strip()

    def torn(self) -> bytes:
        """What follows the last line end."""
        return self._rest.strip()

    def close(self) -> None:
        self._file.close()


_RECORD_ONE = "Record one: tuimon run --log FILE.jsonl train.py"


def decode(line: bytes) -> Record | None:
    """The record of a line; None for an unknown type or a torn line."""
    try:
        return _DECODER.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


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
    """All records of a log, the header first; torn lines and unknown types are skipped. Raises NotALog."""
    path = find_log(path)
    lines = _Lines(path)
    try:
        header_seen = False
        for line in lines:
            if not line:
                continue
            if not header_seen:
                header_seen = True
                yield check_header(line, path)
            elif (record := decode(line)) is not None:
                yield record
        if header_seen:
            if (record := decode(lines.torn())) is not None:  # complete except for its line end
                yield record
        elif lines.torn():
            yield check_header(lines.torn(), path)
        else:
            raise NotALog(f"{plain(path)} is empty", "The run that was to write it may not have started yet.")
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
        self._held: Record | None = None
        self._began: tuple[float, float] | None = None  # (monotonic clock, ``t``) at the first record
        self._ended = False

    def read(self) -> Iterator[Record]:
        """The records that are due. Raises Done at the end of a log that is no longer written."""
        lines = iter(self._lines)
        for _ in range(self.BATCH):
            record = self._held or self._next(lines)
            self._held = None
            if record is None:
                self.at_end = True
                if not self._follow or self._ended:
                    raise Done
                return
            if not self._due(record):
                self._held = record
                return
            self._ended = self._ended or record.__struct_config__.tag == "exit"
            yield record

    def close(self) -> None:
        """Close the file."""
        self._lines.close()

    def _next(self, lines: Iterator[bytes]) -> Record | None:
        for line in lines:
            record = decode(line) if line else None
            if record is not None:
                return record
        return None

    def _due(self, record: Record) -> bool:
        if self._speed is None:
            return True
        now_s = time.monotonic()
        if self._began is None:
            self._began = (now_s, record.t)
        clock_s, record_s = self._began
        return record.t - record_s <= (now_s - clock_s) * self._speed
