"""Writes the log: JSON Lines, one record a line, the header first, flushed every window."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import time

import msgspec

from tuimon.errors import LogError
from tuimon.records import Notice, Record
from tuimon.text import plain

_ENCODER = msgspec.json.Encoder()
#: Time between a failed write and the next attempt.
RETRY_S = 5.0
#: Most records that are kept while the log cannot be written.
PENDING_LIMIT = 2000
SUFFIX = ".jsonl"
_MODE = 0o600
#: Longer than any first line: a command line has at most 2 MB on Linux (ARG_MAX).
_HEADER_BYTES = 4 << 20


class _HeaderTag(msgspec.Struct):
    """What tells a log's first line from other JSON, in all versions."""

    type: str
    schema: int
    host: str
    wall_unix_s: float


class LogWriter:
    """Writes records to a file, a Header first. Once open it raises nothing: ``flush`` returns a Notice of a failure.

    The file is locked (flock) while it is written, so that two runs do not mix.
    """

    def __init__(self, path: str, *, force: bool = False) -> None:
        """Create the file for its owner alone, or one named by time and pid where ``path`` is a folder.

        ``force``: an earlier log of that name is replaced once the first records are written. Raises LogError when
        the file cannot be written, is locked, is an earlier log, or is no log at all.
        """
        self.path = _file_in(path)
        self.lost = 0  # records dropped
        self._pending: list[Record] = []
        self._broken = False
        self._torn = False  # whether the file ends in a partial line
        self._retry_s = 0.0
        self._begun = False  # whether the header is in the file
        self._handle, self._created = _create(self.path)
        try:
            self._earlier_bytes = _claim(self._handle, self.path, force)
            _try_write(self._handle, self._earlier_bytes)
        except OSError as error:
            self.discard()
            raise _cannot_write(self.path, error) from error
        except LogError:
            self.discard()
            raise

    def add_record(self, record: Record) -> None:
        """Keep a record for the next ``flush``."""
        if len(self._pending) >= PENDING_LIMIT:
            del self._pending[0 if self._begun else 1]  # never the header: without it the rest cannot be read
            self.lost += 1
        self._pending.append(record)

    def flush(self, now_s: float) -> Notice | None:
        """Write the records kept; a Notice when writing fails or works again. ``now_s``: monotonic."""
        if not self._pending or now_s < self._retry_s:
            return None
        data = b"".join(_ENCODER.encode(record) + b"\n" for record in self._pending)
        if self._torn:
            data = b"\n" + data  # readers skip the partial line and lose nothing else
        written = 0
        try:
            self._drop_earlier()
            while written < len(data):
                written += self._write(data[written:])
        except OSError as error:
            self._forget_written(data[:written])
            self._retry_s = now_s + RETRY_S
            return self._fail(error, now_s)
        self._torn = False
        self._begun = True
        self._pending.clear()
        if not self._broken:
            return None
        self._broken = False
        lost = f"; {self.lost} records were lost" if self.lost else ""
        return Notice(t=now_s, pid=0, source="log", level="ok", message=f"the log is written again{lost}")

    def close(self) -> None:
        """Close the file; records that were not flushed are lost."""
        if self._handle >= 0:
            with contextlib.suppress(OSError):
                os.close(self._handle)
            self._handle = -1

    def discard(self) -> None:
        """Close the file and, if it is ours and nothing was recorded, remove it."""
        self.close()
        if self._created and not self._begun:
            with contextlib.suppress(OSError):
                os.unlink(self.path)

    def _drop_earlier(self) -> None:
        if self._earlier_bytes:
            os.ftruncate(self._handle, 0)
            self._earlier_bytes = 0
            with contextlib.suppress(OSError):
                os.fchmod(self._handle, _MODE)

    def _fail(self, error: OSError, now_s: float) -> Notice | None:
        if self._broken:
            return None
        self._broken = True
        return Notice(
            t=now_s,
            pid=0,
            source="log",
            level="warning",
            message=f"{plain(self.path)} cannot be written: {error.strerror}",
            hint="The run goes on; writing is tried again every few seconds.",
        )

    def _forget_written(self, written: bytes) -> None:
        if not written:
            return
        lines = written.count(b"\n") - (1 if self._torn else 0)
        del self._pending[:lines]
        self._begun = self._begun or lines > 0
        self._torn = not written.endswith(b"\n")
        if not self._begun:  # half a header would make the whole file no log
            with contextlib.suppress(OSError):
                os.ftruncate(self._handle, 0)
                self._torn = False

    def _write(self, data: bytes) -> int:
        """Write some of ``data``; returns how many bytes, at least one."""
        count = os.write(self._handle, data)
        if count == 0:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return count


def _create(path: str) -> tuple[int, bool]:
    """A handle of the file, and whether it is new. Raises LogError."""
    flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        try:
            return os.open(path, flags | os.O_CREAT | os.O_EXCL, _MODE), True
        except FileExistsError:
            return os.open(path, flags), False
    except OSError as error:
        raise _cannot_write(path, error) from error


def _claim(handle: int, path: str, force: bool) -> int:
    """Lock the file; the size of an earlier log in it. Raises LogError when it is not to be overwritten, OSError."""
    os.set_blocking(handle, True)
    info = os.fstat(handle)
    if not stat.S_ISREG(info.st_mode):
        return 0
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise LogError(f"another tuimon is writing {plain(path)}", "Name another file, or a folder.") from None
    except OSError:
        pass  # some network file systems have no locks
    beginning = os.pread(handle, _HEADER_BYTES, 0)
    if beginning in (b"", b"\n"):
        return len(beginning)
    if not _is_header(beginning.partition(b"\n")[0]):
        raise LogError(
            f"{plain(path)} exists and is no tuimon log, so it is not overwritten", "Name another file with --log."
        )
    if not force:
        raise LogError(
            f"{plain(path)} is the log of an earlier run", "Name another file, or a folder; or replace it with --force."
        )
    return info.st_size


def _is_header(line: bytes) -> bool:
    try:
        return msgspec.json.decode(line, type=_HeaderTag).type == "header"
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False


def _try_write(handle: int, size: int) -> None:
    """Append a byte and take it back, so that a full disk shows now and not after the run has started."""
    os.write(handle, b"\n")
    with contextlib.suppress(OSError):
        os.ftruncate(handle, size)


def _file_in(path: str) -> str:
    if not (os.path.isdir(path) or path.endswith("/")):
        return path
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise _cannot_write(path, error) from error
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime())
    return os.path.join(path, f"tuimon-{stamp}-{os.getpid()}{SUFFIX}")


def _cannot_write(path: str, error: OSError) -> LogError:
    folder = os.path.dirname(path) or "."
    hint = f"Make the folder first: mkdir -p {plain(folder)}" if error.errno == errno.ENOENT else None
    return LogError(
        f"the log {plain(path)} cannot be written: {error.strerror}", hint or "Name another file with --log."
    )
