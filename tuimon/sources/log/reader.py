"""Finds logs, and reads one that may still grow, compressed or not: its lines, and the record of each, made safe."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import msgspec

from tuimon.errors import NotALog, UnreadableLog
from tuimon.records import SCHEMA, AnyRecord, Header, Record
from tuimon.sources.log.compression import MAGIC_LENGTH, Decompressed, decompressed, is_log_name
from tuimon.sources.plain_records import TEXT_LIMIT, are_plain, plain_record
from tuimon.text import plain, whole_number

RECORD_ONE = "Record one: tuimon run --log FILE.jsonl train.py"


class _Tag(msgspec.Struct):
    """The part of a line that identifies it."""

    type: str = ""
    schema: int | None = None


@cache
def _decoder() -> msgspec.json.Decoder[Record]:
    """The decoder of all lines, made on first use: that takes 7 ms, and a live run reads no log."""
    return msgspec.json.Decoder(AnyRecord)


def decode(line: bytes) -> Record | None:
    """The record of a line, its text made safe; None for an unknown type, a torn line, or figures beyond any run."""
    try:
        record = _decoder().decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return record if len(line) <= TEXT_LIMIT and are_plain(line) else plain_record(record)


def decode_lines(lines: bytes) -> tuple[list[Record], int]:
    """The records of whole lines, in a third of the time that ``decode`` takes line by line; and the number of other
    lines.

    Blank and torn lines are not counted: what was torn was written again.
    """
    each = lines.split(b"\n")
    if max(map(len, each)) <= TEXT_LIMIT and are_plain(lines):
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            records: list[Record] = list(_decoder().decode_lines(lines))
            if len(records) == len(each) - 1:  # otherwise lines are blank, or not what they seem
                return records, 0
    decoded = [(decode(line), line) for line in each]
    skipped = sum(record is None and line.rstrip().endswith(b"}") for record, line in decoded)
    return [record for record, _ in decoded if record is not None], skipped


def check_header(line: bytes, path: str) -> Header:
    """The header on the first line. Raises NotALog with what the file is instead."""
    name = plain(path)
    try:
        tag = msgspec.json.decode(line, type=_Tag)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise NotALog(f"{name} is not a tuimon log", RECORD_ONE) from None
    if tag.type != "header":
        raise NotALog(f"{name} is not a tuimon log: its first line is not a header", RECORD_ONE)
    if tag.schema is not None and tag.schema > SCHEMA:
        from tuimon.installation import upgrade_command  # noqa: PLC0415  (needed only after a mistake)

        raise NotALog(
            f"{name} was written by a newer tuimon (schema {tag.schema}, this one reads {SCHEMA})",
            f"Upgrade: {upgrade_command()}",
        )
    header = decode(line)
    if not isinstance(header, Header):
        raise NotALog(f"{name} is not a tuimon log: its header is damaged", RECORD_ONE)
    return header


#: A longer line is not a record: the longest are command lines, of 2 MB at most.
LINE_LIMIT = 4 << 20

#: The user's next step if the operating system refuses a log.
_NEXT_STEPS = {
    errno.EACCES: "Read it as the user who recorded it: only the owner of a log may read it",
    errno.EPERM: "Read it as the user who recorded it: only the owner of a log may read it",
    errno.EIO: "Its disk or file system fails: see dmesg, or read a copy of the log",
    errno.ESTALE: "The file server has another file there now: try again",
}
_LINE_END = b"\n"
#: Read and decoded in one piece: some hundred lines.
_BLOCK_BYTES = 64 << 10


class Lines:
    """The records on whole lines of a file that may still grow."""

    def __init__(self, path: str) -> None:
        """Open it. Raises UnreadableLog, or NotALog when it is not a regular file: a pipe, a device."""
        self._path = path
        self._failure: UnreadableLog | None = None  # final: a read that fails may have lost what it had before
        with self._named_errors(), contextlib.ExitStack() as undo:
            handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # not waiting for a pipe's writer
            undo.callback(os.close, handle)
            info = os.fstat(handle)
            if not stat.S_ISREG(info.st_mode):
                raise NotALog(f"{plain(path)} is not a tuimon log: it is not a regular file", RECORD_ONE)
            self._handle = handle
            undo.pop_all()
            file = undo.enter_context(open(handle, "rb"))
            self._file = decompressed(file, os.pread(handle, MAGIC_LENGTH, 0), path)
            undo.pop_all()
        self._rest = b""
        self._too_long = False  # the line whose beginning was dropped
        self._passed_over = 0

    def read_records(self) -> list[Record]:
        """The records of the next few whole lines; none if there is no whole line yet. Raises UnreadableLog."""
        while chunk := self._read(_BLOCK_BYTES):
            records, skipped = decode_lines(self._whole_lines(chunk))
            self._passed_over += skipped
            if records:
                return records
        return []

    def _read(self, count: int) -> bytes:
        if self._failure is not None:
            raise UnreadableLog(self._failure.message, self._failure.hint)
        with self._named_errors():
            return self._file.read(count)

    def _whole_lines(self, chunk: bytes) -> bytes:
        """The lines that end in a chunk; what follows them is kept for the next."""
        end = chunk.rfind(_LINE_END) + 1
        if not end:
            self._keep(self._rest + chunk)
            return b""
        first = chunk.find(_LINE_END) + 1
        if self._too_long or len(self._rest) + first > LINE_LIMIT:
            self._passed_over += 1
            self._rest, self._too_long = b"", False
            whole = chunk[first:end]
        else:
            whole = self._rest + chunk[:end]
        self._keep(chunk[end:])
        return whole

    def _keep(self, rest: bytes) -> None:
        self._too_long = self._too_long or len(rest) > LINE_LIMIT
        self._rest = b"" if self._too_long else rest

    def first(self) -> bytes:
        """The first line that is not blank, even if its end is missing; empty if there is none.

        Raises UnreadableLog.
        """
        with self._named_errors():
            for line in iter(lambda: self._file.readline(LINE_LIMIT), b""):
                if line.strip():
                    self._rest = b"" if line.endswith(_LINE_END) else line
                    return line
        return b""

    @property
    def skipped(self) -> int:
        """Whole lines so far without a record of a known type; data that cannot be decompressed counts as one."""
        raw = getattr(self._file, "raw", None)
        return self._passed_over + (isinstance(raw, Decompressed) and raw.damaged)

    def bytes_read(self) -> tuple[int, int]:
        """The bytes read of the file as it lies on the disk, and its size; both 0 if unknown."""
        with contextlib.suppress(OSError):
            return os.lseek(self._handle, 0, os.SEEK_CUR), os.fstat(self._handle).st_size
        return 0, 0

    def changed_unix_s(self) -> float:
        """When the file was last written to. Raises UnreadableLog."""
        with self._named_errors():
            return os.fstat(self._handle).st_mtime

    def torn(self) -> bytes:
        """The bytes after the last line end."""
        return self._rest.strip()

    def close(self) -> None:
        self._file.close()

    @contextlib.contextmanager
    def _named_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._failure = unreadable(f"the log {plain(self._path)}", error)
            if isinstance(error, FileNotFoundError) and whole_number(self._path) is not None:
                self._failure.hint = f"A process is watched by: tuimon attach {self._path}"
            raise self._failure from error


def unreadable(name: str, error: OSError) -> UnreadableLog:
    """The error for a log or a folder that the operating system does not let us read."""
    return UnreadableLog(f"{name} cannot be read: {error.strerror}", _NEXT_STEPS.get(error.errno or 0, RECORD_ONE))


class LogHead(NamedTuple):
    """The facts that a log's first line holds."""

    path: str
    header: Header
    changed_unix_s: float  # when it was last written to


def read_head(path: str) -> LogHead | None:
    """The head of a log; None if the file has no first line yet. Raises NotALog if it is something else."""
    lines = Lines(path)
    try:
        first = lines.first()
        return LogHead(path, check_header(first, path), lines.changed_unix_s()) if first else None
    finally:
        lines.close()


def log_paths(folder: str) -> list[str]:
    """The files of a folder that have a log's name. Raises UnreadableLog."""
    try:
        names = os.listdir(folder)
    except OSError as error:
        raise unreadable(f"the folder {plain(folder)}", error) from error
    return sorted(os.path.join(folder, name) for name in names if is_log_name(name))
