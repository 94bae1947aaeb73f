"""Writes the output file of a command: it gets its name once it is complete, and never replaces a log."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from typing import BinaryIO

from tuimon.errors import TuimonError, UsageError
from tuimon.new_files import create_private, folder_hint, link
from tuimon.sources.log.writer import is_log
from tuimon.text import plain

_OTHER_NAME = "Give -o another name"
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NO_RIGHT = (errno.EACCES, errno.EPERM, errno.EROFS)


@contextlib.contextmanager
def output_file(path: str, *, force: bool = False) -> Iterator[BinaryIO]:
    """A new file for its owner alone, at ``path`` once the block has ended; an exception leaves everything as it was.

    ``force``: it may replace a regular file that is not a log. Raises UsageError if something else is at ``path``,
    TuimonError for any OSError, one raised in the block included.
    """
    with _reported(path):
        temporary, handle = _begin(path, force=force)
        try:
            with open(handle, "wb") as file:
                yield file
            _give_name(temporary, path, force=force)
        finally:
            with contextlib.suppress(OSError):
                os.unlink(temporary)


def check_output(path: str, *, force: bool = False) -> None:
    """Raise what ``output_file`` would raise at its beginning, before work is done for it."""
    with _reported(path):
        temporary, handle = _begin(path, force=force)
        os.close(handle)
        os.unlink(temporary)


def _begin(path: str, *, force: bool) -> tuple[str, int]:
    """A new file next to the one to be written, with a name that no user's file has."""
    temporary = os.path.join(os.path.dirname(_target(path, force=force)), f".tuimon-{os.urandom(8).hex()}")
    return temporary, create_private(temporary)


def _give_name(temporary: str, path: str, *, force: bool) -> None:
    """Give the complete file its name; without ``force`` nothing is replaced, even if it appeared meanwhile."""
    target = _target(path, force=force)
    try:
        if force or not link(temporary, target):
            os.rename(temporary, target)
    except FileExistsError:
        raise _exists(path) from None


def _target(path: str, *, force: bool) -> str:
    """The file to write, behind symbolic links. Raises UsageError if it may not be written, OSError."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        if os.path.islink(path):
            raise UsageError(f"{plain(path)} is a symbolic link to nothing", _OTHER_NAME) from None
        return path
    if stat.S_ISDIR(mode):
        raise UsageError(f"{plain(path)} is a folder", "Give -o the name of a file in it")
    if not stat.S_ISREG(mode):
        raise UsageError(
            f"{plain(path)} is not a regular file: pipes and devices are not written to",
            "Give -o the name of a file; report, diff and export write to stdout without -o",
        )
    if is_log(path):
        raise UsageError(f"{plain(path)} is a tuimon log, and no output may replace a log", _OTHER_NAME)
    if not force:
        raise _exists(path)
    return os.path.realpath(path)


def _exists(path: str) -> UsageError:
    return UsageError(f"{plain(path)} exists", f"{_OTHER_NAME}, or replace the file with --force")


@contextlib.contextmanager
def _reported(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        place = f"Give -o a place with {'more room' if error.errno in _NO_ROOM else 'the right to write'}"
        known = error.errno in _NO_ROOM + _NO_RIGHT
        hint = folder_hint(path) or (place if known else _OTHER_NAME)
        raise TuimonError(f"{plain(path)} cannot be written: {error.strerror}", hint) from error
