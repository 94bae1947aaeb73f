"""Files that tuimon writes: for their owner alone, as they hold command lines, source lines and paths."""

from __future__ import annotations

import itertools
import os

from tuimon.text import plain

#: Files of their owner alone.
PRIVATE_MODE = 0o600


def create_private(path: str) -> int:
    """Create a file for its owner alone; returns a handle to write to it. Raises OSError, also if the path exists."""
    # O_EXCL follows no symbolic link either
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, PRIVATE_MODE)


def link(path: str, name: str) -> bool:
    """Give a file a second name; False if the file system cannot. Raises OSError if something has that name."""
    try:
        os.link(path, name, follow_symlinks=False)
    except FileExistsError:
        raise
    except OSError:
        if os.path.lexists(name):
            raise
        return False
    return True


def folder_hint(path: str) -> str | None:
    """Advice on making the missing folder of a file; None if the folder exists, or cannot be made."""
    folder = parent = os.path.dirname(path) or "."
    if os.path.isdir(folder):
        return None
    while not os.path.lexists(parent):
        parent = os.path.dirname(parent) or "."
    # a file system without blocks, such as /proc, holds nothing that is not its own
    is_open = os.path.isdir(parent) and os.access(parent, os.W_OK) and os.statvfs(parent).f_blocks > 0
    return f"Make the folder first: mkdir -p {plain(folder)}" if is_open else None


def free_name(stem: str, *endings: str) -> str:
    """``STEM``, or ``STEM-2``, ``STEM-3`` ...: the first for which no file has the name with any of these endings."""
    names = (f"{stem}{f'-{number}' if number > 1 else ''}" for number in itertools.count(1))
    return next(name for name in names if not any(os.path.lexists(name + ending) for ending in endings))
