"""The lines of one file of a log that may still grow, compressed or not."""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Iterator
from typing import BinaryIO

from tuimon.errors import NotALog
from tuimon.records import Record
from tuimon.sources.log.decode import RECORD_ONE, decode
from tuimon.sources.log.decompress import MAGIC_LENGTH, Decompressed, looks_compressed
from tuimon.text import plain

#: A longer line is no record: the longest are command lines, of 2 MB at most.
LINE_LIMIT = 4 << 20

_LINE_END = 0x0A


class Lines:
    """Whole lines of a file that may still grow, blank ones too, without those that are longer than any record."""

    def __init__(self, path: str) -> None:
        """Open it. Raises NotALog where that cannot be, or when it is no regular file: a pipe, a device."""
        try:
            handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # not waiting for a pipe's writer
        except OSError as error:
            raise NotALog(f"the log {plain(path)} cannot be read: {error.strerror}", RECORD_ONE) from error
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise NotALog(f"{plain(path)} is no tuimon log: it is no regular file", RECORD_ONE)
        info = os.fstat(handle)
        self.identity = (info.st_dev, info.st_ino)
        self._handle = handle
        self._file = _opened(handle)
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

    @property
    def damaged(self) -> bool:
        """Whether what follows cannot be decompressed."""
        raw = getattr(self._file, "raw", None)
        return isinstance(raw, Decompressed) and raw.damaged

    def changed_unix_s(self) -> float:
        """When the file was last written to."""
        return os.fstat(self._handle).st_mtime

    def torn(self) -> bytes:
        """What follows the last line end."""
        return self._rest.strip()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _opened(handle: int) -> BinaryIO:
    """The file as its plain bytes: a compressed one shows by how it begins."""
    beginning = os.pread(handle, MAGIC_LENGTH, 0)
    file: BinaryIO = open(handle, "rb")  # noqa: SIM115  (closed by Lines)
    return io.BufferedReader(Decompressed(file, beginning)) if looks_compressed(beginning) else file
