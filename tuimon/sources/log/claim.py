"""Opens the file a log goes to: made for its owner alone, locked, and never in place of something else."""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import re
import stat
import time
from typing import NamedTuple

import msgspec

from tuimon.errors import LogError, UnreadableLog
from tuimon.new_files import PRIVATE_MODE, folder_hint
from tuimon.sources.log.compression import COMPRESSED, SUFFIX, Decompressed, looks_compressed, streams_of
from tuimon.text import plain

#: Longer than any first line: a command line has at most 2 MB on Linux (ARG_MAX).
_HEADER_BYTES = 4 << 20


class _HeaderTag(msgspec.Struct):
    """The mark of a log's first line, in all versions, which other JSON lacks."""

    type: str
    schema: int
    host: str
    wall_unix_s: float


#: Names that are tried in a folder: each failure is a file that another tuimon made in the same second.
_TRIES = 1000
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST_IN_NAME = 60


class Created(NamedTuple):
    """A file that a log goes to: its path, a handle, and whether it is new."""

    path: str
    handle: int
    is_new: bool


def create(path: str, run: str | None = None) -> Created:
    """Open the file at ``path``, or a new, compressed one where that is a folder, named by run, host, time and pid.

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
    """A file that nobody else has, also where nodes have one host name and one set of pids, as containers may."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime())
    words = ["tuimon", run, os.uname().nodename.partition(".")[0], stamp, str(os.getpid())]
    stem = os.path.join(folder, "-".join(_NOT_IN_NAMES.sub("_", word)[:_LONGEST_IN_NAME] for word in words if word))
    try:
        os.makedirs(folder, exist_ok=True)
        for number in range(_TRIES):
            path = f"{stem}{f'-{number}' if number else ''}{SUFFIX}{COMPRESSED}"
            with contextlib.suppress(FileExistsError):
                return Created(path, os.open(path, flags | os.O_CREAT | os.O_EXCL, PRIVATE_MODE), True)
    except OSError as error:
        raise cannot_write(folder, error) from error
    raise LogError(f"the folder {plain(folder)} has no free name for a log", "Name another folder with --log.")


def claim(handle: int, path: str, force: bool) -> int:
    """Lock the file; the size of an earlier log in it. Raises LogError when it is not to be overwritten, OSError."""
    os.set_blocking(handle, True)
    info = os.fstat(handle)
    if not stat.S_ISREG(info.st_mode):
        return 0
    if not lock(handle):
        raise LogError(f"another tuimon is writing {plain(path)}", "Name another file, or a folder.")
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


def lock(handle: int) -> bool:
    """Lock a file that is written; False when another run has it. Some network file systems have no locks."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def is_log(path: str) -> bool:
    """True if a regular file is the log of some run, compressed or not. Raises OSError."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return _begins_a_log(os.pread(handle, _HEADER_BYTES, 0))
    finally:
        os.close(handle)


def _begins_a_log(beginning: bytes) -> bool:
    return _is_header(_first_line(beginning))


def _first_line(beginning: bytes) -> bytes:
    if looks_compressed(beginning):
        with contextlib.suppress(UnreadableLog):  # whatever it is, it is not ours to replace
            streams = streams_of(beginning, "")
            with io.BufferedReader(Decompressed(io.BytesIO(beginning), streams)) as lines:
                return lines.readline(_HEADER_BYTES)
        return b""
    return beginning.lstrip(b"\n").partition(b"\n")[0]


def _is_header(line: bytes) -> bool:
    try:
        return msgspec.json.decode(line, type=_HeaderTag).type == "header"
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False


def try_write(handle: int, size: int) -> None:
    """Append a byte and take it back, so that a full disk shows now and not after the run has started."""
    os.write(handle, b"\n")
    with contextlib.suppress(OSError):
        os.ftruncate(handle, size)


def cannot_write(path: str, error: OSError) -> LogError:
    """The error for a log that cannot be written."""
    hint = folder_hint(path) or "Name another file with --log."
    return LogError(f"the log {plain(path)} cannot be written: {error.strerror}", hint)
