"""The files of one log in turn: the newest is written; with a limit, it is set aside when full and the oldest goes."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from tuimon.new_files import PRIVATE_MODE, link
from tuimon.records import Record
from tuimon.sources.log.claim import lock
from tuimon.sources.log.facts import Facts
from tuimon.sources.log.names import is_compressed, part_path, part_paths

if TYPE_CHECKING:
    import zstandard

#: An empty last block: it ends a frame that is cut off after any other block (RFC 8878, 3.1.1.2).
_LAST_BLOCK = b"\x01\x00\x00"
#: Zstandard's level, up to 22: 6 makes a log a tenth smaller than 3, for 20 us more a window; 10 makes it no smaller.
_LEVEL = 6
#: 256 KB: what the compressor may refer back to, some minutes of a log; and its tables: 1.1 MB of memory instead of the
#: level's own 3.6 MB (with 512 KB), and the log is no larger.
_SIZES = {"window_log": 18, "hash_log": 15, "chain_log": 16}


class Plain:
    """Lines as they are."""

    def encode(self, lines: bytes) -> bytes:
        """The bytes to append."""
        return lines

    def keep(self) -> None:
        """The bytes of the last call are in the file."""

    def abandon(self) -> None:
        """They are not, or have been taken back."""

    def end(self) -> bytes:
        """The bytes that end the file."""
        return b""


class Compressed(Plain):
    """Lines in one frame; after a failure in another, as a frame cannot go back."""

    def __init__(self) -> None:
        import zstandard  # noqa: PLC0415  (not needed by other logs)

        parameters = zstandard.ZstdCompressionParameters.from_level(_LEVEL, **_SIZES)
        self._compressor = zstandard.ZstdCompressor(compression_params=parameters)
        self._flush_block = zstandard.COMPRESSOBJ_FLUSH_BLOCK
        self._frame: zstandard.ZstdCompressionObj | None = None
        self._open = False  # whether the file ends in a frame that has not ended

    def encode(self, lines: bytes) -> bytes:
        """The bytes to append: a reader that has them has all lines so far."""
        cut = b""
        if self._frame is None:
            cut = _LAST_BLOCK if self._open else b""
            self._frame = self._compressor.compressobj()
        return cut + self._frame.compress(lines) + self._frame.flush(self._flush_block)

    def keep(self) -> None:
        """The bytes of the last call are in the file."""
        self._open = True

    def abandon(self) -> None:
        """They are not, or have been taken back."""
        self._frame = None

    def end(self) -> bytes:
        """The bytes that end the file."""
        if not self._open:
            return b""
        self._open = False
        return self._frame.flush() if self._frame is not None else _LAST_BLOCK


class LogFile:
    """An open file that only grows. ``handle`` must be opened with O_APPEND; closed by ``close``."""

    def __init__(self, handle: int) -> None:
        self.handle = handle
        self.size = 0  # bytes of whole batches
        self.torn = False  # whether the file ends in a part of a batch that could not be taken back
        info = os.fstat(handle)
        self.identity = (info.st_dev, info.st_ino)
        self.regular = stat.S_ISREG(info.st_mode)  # no pipe or device

    def append(self, data: bytes) -> None:
        """Append a batch, or nothing of it. Raises OSError."""
        written = 0
        try:
            while written < len(data):
                written += _write(self.handle, data[written:])
        except OSError:
            self.torn = written > 0 and not self._take_back()
            raise
        self.size += len(data)
        self.torn = False

    def empty(self) -> None:
        """Drop what was in the file before. Raises OSError."""
        os.ftruncate(self.handle, 0)
        self.size = 0

    def close(self) -> None:
        """Close the file."""
        if self.handle >= 0:
            with contextlib.suppress(OSError):
                os.close(self.handle)
            self.handle = -1

    def _take_back(self) -> bool:
        try:
            os.ftruncate(self.handle, self.size)
        except OSError:
            return False
        return True


def _write(handle: int, data: bytes) -> int:
    """Write some of ``data``; returns how many bytes, at least one."""
    count = os.write(handle, data)
    if count == 0:
        raise OSError(errno.EIO, os.strerror(errno.EIO))
    return count


#: A limited log is in so many files: when the oldest goes, three quarters of what may be kept are there.
_PARTS = 4
#: Beyond what is written: the batches that fill files.
_SLACK_BYTES = 192 << 10
#: The smallest limit: each file of it holds about a minute at the highest rate we have seen (13 MB an hour).
LEAST_LIMIT_BYTES = 1_000_000

_ENCODER = msgspec.json.Encoder()


class _Part(Struct, frozen=True, gc=False):
    """A file that was set aside."""

    path: str
    identity: tuple[int, int]
    size: int


class Parts:
    """Appends records to the newest file of a log."""

    def __init__(self, path: str, handle: int, limit_bytes: int | None = None) -> None:
        """``handle``: of the file at ``path``, claimed; ``limit_bytes``: of all files together."""
        self.path = path
        self.file = LogFile(handle)
        self.facts = Facts()
        self._limit_bytes = limit_bytes
        self._encoder = self._new_encoder()
        self._number = 0
        self._begun_bytes = 0  # of the newest file: what it began with
        self._set_aside: list[_Part] = []

    def append(self, records: Sequence[Record]) -> None:
        """Append a batch, or nothing of it. Raises OSError."""
        if self._is_full():
            self._begin_next()
        if self.file.torn and is_compressed(self.path):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        # in a plain file readers skip a partial line and lose nothing else
        whole = (each for record in records for each in self.facts.complete(record))
        lines = b"\n" * self.file.torn + b"".join(map(line_of, whole))
        try:
            self.file.append(self._encoder.encode(lines))
        except OSError:
            self._encoder.abandon()
            self.facts.forget_written()
            raise
        self._encoder.keep()

    def close(self) -> None:
        """Close the newest file."""
        if self.file.handle >= 0:
            with contextlib.suppress(OSError):
                self.file.append(self._encoder.end())
            self.file.close()

    def _new_encoder(self) -> Plain:
        return Compressed() if is_compressed(self.path) else Plain()

    # -- the next file

    @property
    def _part_bytes(self) -> int | None:
        return None if self._limit_bytes is None else (self._limit_bytes - _SLACK_BYTES) // _PARTS

    def _is_full(self) -> bool:
        part_bytes = self._part_bytes
        # a command line may be longer than a file of a small limit: as much again fits behind it
        return part_bytes is not None and self.file.regular and self.file.size >= max(part_bytes, 2 * self._begun_bytes)

    def _begin_next(self) -> None:
        """Begin a file with all facts under a name of its own, then let it take the place of the full one.

        At every moment the log's own name stands for a whole file. Raises OSError, and then all is as it was.
        """
        self._remove_oldest()
        fresh = f"{self.path}.next-{os.getpid()}"
        # O_EXCL follows no symbolic link either
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        file = LogFile(os.open(fresh, flags, PRIVATE_MODE))
        encoder = self._new_encoder()
        try:
            lock(file.handle)
            facts = self.facts.begin_file(self._number + 1, (self._part_bytes or 0) // 2)
            file.append(encoder.encode(b"".join(map(line_of, facts))))
            encoder.keep()
            aside = self._exchange(fresh)
        except OSError:
            file.close()
            with contextlib.suppress(OSError):
                os.unlink(fresh)
            self.facts.forget_written()
            raise
        self.close()
        self._set_aside.append(_Part(aside, self.file.identity, self.file.size))
        self.file, self._encoder = file, encoder
        self._number += 1
        self._begun_bytes = file.size

    def _exchange(self, fresh: str) -> str:
        """Let a file take the log's name; returns the name that the full one has from now on. Raises OSError."""
        info = os.stat(self.path)
        if (info.st_dev, info.st_ino) != self.file.identity:  # moved away: what has its name now is not ours
            raise OSError(errno.ESTALE, "it is no longer the file that was begun")
        number = max((number for number, _ in part_paths(self.path)), default=0) + 1
        aside = part_path(self.path, number)
        linked = link(self.path, aside)
        if not linked:  # no hard links on this file system: for a moment the log's name stands for nothing
            os.rename(self.path, aside)
        try:
            os.replace(fresh, self.path)
        except OSError:
            if linked:
                os.unlink(aside)
            else:
                os.rename(aside, self.path)
            raise
        return aside

    def _remove_oldest(self) -> None:
        """Make room for one more file within the limit."""
        assert self._limit_bytes is not None
        assert self._part_bytes is not None
        room = self._limit_bytes - self._part_bytes - _SLACK_BYTES - self.file.size
        while self._set_aside and sum(part.size for part in self._set_aside) > room:
            part = self._set_aside.pop(0)
            with contextlib.suppress(OSError):
                info = os.lstat(part.path)
                if (info.st_dev, info.st_ino) == part.identity:
                    os.unlink(part.path)


def line_of(record: Record) -> bytes:
    """A record as its line in the log."""
    return _ENCODER.encode(record) + b"\n"
