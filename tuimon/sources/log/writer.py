"""Writes the log: JSON Lines, one record a line, the header first, flushed every window.

Its file is made for its owner alone, locked, and never takes the place of something else."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import os
import re
import stat
import time
import zlib
from collections.abc import Callable
from typing import NamedTuple

import msgspec
from msgspec import structs

from tuimon.errors import LogError, UnreadableLog
from tuimon.new_files import PRIVATE_MODE, folder_hint
from tuimon.records import GPU_FACTS, Frames, Gpu, Header, Loader, Notice, Process, Record, Stacks, Steps
from tuimon.sources.log.compression import COMPRESSED, GZIP_WINDOW_BITS, SUFFIX, decompressed
from tuimon.text import plain

#: Longer than any first line: a command line has at most 2 MB on Linux (ARG_MAX).
_HEADER_BYTES = 4 << 20


class _HeaderTag(msgspec.Struct):
    """The fields by which a log's first line is recognised, in all versions."""

    type: str
    schema: int
    host: str
    wall_unix_s: float


_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")


class Created(NamedTuple):
    """A file that a log goes to: its path, a handle, and whether it is new."""

    path: str
    handle: int
    is_new: bool


def create(path: str, run: str | None = None) -> Created:
    """Open the file at ``path``, or a new, compressed one if that is a folder, named by run, host, time and pid.

    Raises LogError.
    """
    if path.endswith(".zst"):
        raise LogError("logs are compressed with gzip", f"Name it {plain(path.removesuffix('.zst'))}.gz")
    flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK
    if os.path.isdir(path) or path.endswith("/"):
        return _create_in(path, flags, run)
    try:
        try:
            return Created(path, os.open(path, flags | os.O_CREAT | os.O_EXCL, PRIVATE_MODE), True)
        except FileExistsError:
            return Created(path, os.open(path, flags), False)
    except OSError as error:
        raise cannot_write(path, error) from error


def _create_in(folder: str, flags: int, run: str | None) -> Created:
    """A file with a unique name, even if nodes share a host name and a set of pids, as containers may."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime())
    words = ["tuimon", run, os.uname().nodename.partition(".")[0], stamp, str(os.getpid())]
    stem = os.path.join(folder, "-".join(_NOT_IN_NAMES.sub("_", word)[:60] for word in words if word))
    try:
        os.makedirs(folder, exist_ok=True)
        for number in range(1000):  # each failure is a file that another tuimon made in the same second
            path = f"{stem}{f'-{number}' if number else ''}{SUFFIX}{COMPRESSED}"
            with contextlib.suppress(FileExistsError):
                return Created(path, os.open(path, flags | os.O_CREAT | os.O_EXCL, PRIVATE_MODE), True)
    except OSError as error:
        raise cannot_write(folder, error) from error
    raise LogError(f"the folder {plain(folder)} has no free name for a log", "Name another folder with --log.")


def claim_file(handle: int, path: str, force: bool) -> int:
    """Lock the file; the size of an earlier log in it. Raises LogError when it is not to be overwritten, OSError."""
    os.set_blocking(handle, True)
    info = os.fstat(handle)
    if not stat.S_ISREG(info.st_mode):
        return 0
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise LogError(f"another tuimon is writing {plain(path)}", "Name another file, or a folder.") from None
    except OSError:  # some network file systems have no locks
        pass
    beginning = os.pread(handle, _HEADER_BYTES, 0)
    if beginning in (b"", b"\n"):
        return len(beginning)
    if not _begins_a_log(beginning):
        raise LogError(
            f"{plain(path)} exists and is not a tuimon log, so it is not overwritten", "Name another file with --log."
        )
    if not force:
        raise LogError(
            f"{plain(path)} is the log of an earlier run", "Name another file, or a folder; or replace it with --force."
        )
    return info.st_size


def is_log(path: str) -> bool:
    """True if a regular file is the log of some run, compressed or not. Raises OSError."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return _begins_a_log(os.pread(handle, _HEADER_BYTES, 0))
    finally:
        os.close(handle)


def _begins_a_log(beginning: bytes) -> bool:
    try:
        line = decompressed(io.BytesIO(beginning.lstrip(b"\n")), beginning, "").readline(_HEADER_BYTES)
        return msgspec.json.decode(line, type=_HeaderTag).type == "header"
    except (UnreadableLog, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False  # we may not replace it, whatever it is


def cannot_write(path: str, error: OSError) -> LogError:
    hint = folder_hint(path) or "Name another file with --log."
    return LogError(f"the log {plain(path)} cannot be written: {error.strerror}", hint)


#: Time between a failed write and the next attempt.
WRITE_RETRY_S = 5.0
#: At the end of the run: how often a write is tried, and the time between.
_LAST_TRIES, _LAST_RETRY_S = 5, 0.2
#: Most records that are kept while the log cannot be written.
PENDING_LIMIT = 2000
#: ... and most earlier records that are kept because later records need facts that come only once.
FACTS_LIMIT = 20_000


_ENCODER = msgspec.json.Encoder()


def log_line(record: Record) -> bytes:
    """A record as its line in the log."""
    return _ENCODER.encode(record) + b"\n"


def brings_facts(record: Record) -> bool:
    """True if a record has facts that are written only once, and that later records need."""
    match record:
        case Header() | Process() | Frames():
            return True
        case Steps():
            return bool(record.range_places) or record.first_step_s is not None or record.first_backward_s is not None
        case Stacks():
            return bool(record.parked or record.loop)
        case Loader():
            return record.facts is not None
        case _:
            return False


def write_some(handle: int, data: bytes) -> int:
    """Write some of ``data``; returns how many bytes, at least one."""
    count = os.write(handle, data)
    if count == 0:
        raise OSError(errno.EIO, os.strerror(errno.EIO))
    return count


class LogWriter:
    """Writes records to a file, a Header first. Once open it raises nothing: ``flush`` returns a Notice of a failure.

    The file is locked (flock) while it is written, so that two runs do not mix.
    """

    def __init__(
        self,
        path: str,
        *,
        force: bool = False,
        run: str | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Create the file for its owner alone, or one with a name of its own if ``path`` is a folder.

        ``run``: the run's, in that name. ``force``: an earlier log of that name is replaced once the first records are
        written. Raises LogError if the file cannot be written, is locked, is an earlier log, or is not a log.
        """
        self.lost = 0  # records dropped
        self._sleep = sleep
        self._pending: list[Record] = []
        self._facts: list[Record] = []  # of the earlier records, which are dropped
        self._gpus: dict[str, tuple[object, ...]] = {}  # the facts of each GPU that the file has
        self._broken = False
        self._retry_s = 0.0
        self._begun = False  # True if the header is in the file
        self._has_name = True  # False once the file was deleted or replaced
        self.path, self._handle, self._created = create(path, run)  # opened to append
        self._torn = False  # True if the file ends in a part of a batch that could not be taken back
        #: the compressor of the file; None for plain lines
        self._stream = zlib.compressobj(wbits=GZIP_WINDOW_BITS) if self.path.endswith(COMPRESSED) else None
        try:
            self._earlier_bytes = claim_file(self._handle, self.path, force)
            os.write(self._handle, b"\n")  # and taken back: a full disk shows now, not after the run has started
            with contextlib.suppress(OSError):
                os.ftruncate(self._handle, self._earlier_bytes)
        except OSError as error:
            self.discard()
            raise cannot_write(self.path, error) from error
        except LogError:
            self.discard()
            raise

    def add_record(self, record: Record) -> None:
        """Keep a record for the next ``flush``."""
        if len(self._pending) >= PENDING_LIMIT:
            oldest = self._pending.pop(0)
            is_kept = brings_facts(oldest) and len(self._facts) < FACTS_LIMIT
            self.lost += not is_kept
            self._facts += [oldest] if is_kept else []
        self._pending.append(record)

    def flush(self, now_s: float) -> Notice | None:
        """Write the records kept; a Notice when writing fails or works again, or the file is gone.

        ``now_s``: monotonic.
        """
        if not self._pending or now_s < self._retry_s:
            return None
        try:
            self._write_pending()
        except OSError as error:
            self._retry_s = now_s + WRITE_RETRY_S
            if self._broken:
                return None
            self._broken = True
            message = f"{plain(self.path)} cannot be written: {error.strerror}"
            hint = "The run goes on; tuimon tries again every few seconds."
            return Notice(t=now_s, pid=0, source="log", level="warning", message=message, hint=hint)
        if self._has_name and self._was_deleted():
            self._has_name = False
            message = f"{plain(self.path)} was deleted or replaced: the log goes on without a name, until tuimon ends"
            hint = f"Until then it can be saved: cp /proc/{os.getpid()}/fd/{self._handle} FILE"
            return Notice(t=now_s, pid=0, source="log", level="warning", message=message, hint=hint)
        if not self._broken:
            return None
        self._broken = False
        lost = f"; {self.lost} records were lost" if self.lost else ""
        return Notice(t=now_s, pid=0, source="log", level="ok", message=f"the log can be written again{lost}")

    def close(self) -> None:
        """Write the remaining records, if there is room, and close the file."""
        if self._handle < 0:
            return
        for attempt in range(_LAST_TRIES):
            if attempt:
                self._sleep(_LAST_RETRY_S)
            with contextlib.suppress(OSError):
                self._write_pending()
                break
        self.lost += len(self._pending)
        if self._stream is not None and self._begun and not self._torn:
            with contextlib.suppress(OSError):
                self._write(self._stream.flush())
        self._close()

    def discard(self) -> None:
        """Close the file and, if it is ours and nothing was recorded, remove it."""
        self._close()
        if self._created and not self._begun:
            with contextlib.suppress(OSError):
                os.unlink(self.path)

    def _was_deleted(self) -> bool:
        """True if the path no longer names the regular file that is written."""
        own = os.fstat(self._handle)
        try:
            return stat.S_ISREG(own.st_mode) and not os.path.samestat(own, os.stat(self.path))
        except OSError as error:
            return isinstance(error, FileNotFoundError)

    def _write_pending(self) -> None:
        """Write the records kept, as many as there is room for. Raises OSError."""
        if not self._pending:
            return
        self._pending[:0], self._facts = self._facts, []
        if self._earlier_bytes:
            os.ftruncate(self._handle, 0)
            self._earlier_bytes = 0
            with contextlib.suppress(OSError):
                os.fchmod(self._handle, PRIVATE_MODE)
        while self._pending:
            try:
                self._append(50)  # written whole or not at all
            except OSError:
                self._append(1)

    def _append(self, count: int) -> None:
        """Write the oldest records kept, or none of them. Raises OSError."""
        if self._torn and self._stream is not None:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        # in a plain file readers skip a partial line and lose nothing else
        lines = b"\n" * self._torn + b"".join(
            log_line(self._without_known_facts(each)) for each in self._pending[:count]
        )
        stream = self._stream and self._stream.copy()
        if stream is not None:  # a reader of these bytes has all lines so far
            lines = stream.compress(lines) + stream.flush(zlib.Z_SYNC_FLUSH)
        try:
            self._write(lines)
        except OSError:
            self._gpus.clear()  # the latest may not be in the file
            raise
        self._stream = stream
        del self._pending[:count]
        self._begun = True

    def _write(self, data: bytes) -> None:
        """Append a batch, or nothing of it. Raises OSError."""
        size, written = os.fstat(self._handle).st_size, 0
        try:
            while written < len(data):
                written += write_some(self._handle, data[written:])
        except OSError:
            if written:
                self._torn = True
                with contextlib.suppress(OSError):
                    os.ftruncate(self._handle, size)
                    self._torn = False
            raise
        self._torn = False

    def _close(self) -> None:
        if self._handle >= 0:
            with contextlib.suppress(OSError):
                os.close(self._handle)
            self._handle = -1

    def _without_known_facts(self, record: Record) -> Record:
        """The record to write: a GPU's facts that seldom change are only written if they have changed."""
        if not isinstance(record, Gpu):
            return record
        facts = tuple(getattr(record, name) for name in GPU_FACTS)
        if self._gpus.get(record.uuid) == facts:
            return structs.replace(record, **dict.fromkeys(GPU_FACTS))
        self._gpus[record.uuid] = facts
        return record
